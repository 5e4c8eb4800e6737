"""Consumer groups in the SDK: members, progress, and resets of their offsets."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.protocol.positions import time_of
from goqueue.wire import calls, group_calls
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import (
    CommitOffsets,
    GroupCall,
    GroupProgress,
    OffsetOf,
    OffsetsSet,
    Progress,
    ResetOffsets,
)


class AsyncGroups(AsyncCalls):
    """The calls on consumer groups."""

    async def list_groups(self) -> list[group_calls.GroupSummary]:
        """Return every consumer group."""
        reply = await self._call(Operation.LIST_GROUPS, calls.Nothing(), group_calls.GroupList)
        return reply.groups

    async def describe_group(self, name: str) -> group_calls.GroupState:
        """Return a group's members, its options and who reads what."""
        header = GroupCall(name)
        return await self._call(Operation.DESCRIBE_GROUP, header, group_calls.GroupState)

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        """End a group with everything known of it; one that has members only with ``force``."""
        header = group_calls.DeleteGroup(name, force)
        await self._once(Operation.DELETE_GROUP, header, calls.Nothing)

    async def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, member: str, generation: int
    ) -> None:
        """Settle everything before offsets of (topic, partition), as their owner in a group."""
        places = [OffsetOf(topic, part, offset) for (topic, part), offset in offsets.items()]
        header = CommitOffsets(group, member, generation, places)
        await self._call(Operation.COMMIT_OFFSETS, header, calls.Nothing)

    async def group_progress(self, group: str) -> list[Progress]:
        """Return how far a group is in each partition: committed offset, lag, in flight."""
        reply = await self._call(Operation.GROUP_PROGRESS, GroupCall(group), GroupProgress)
        return sorted(reply.parts, key=lambda part: (part.topic, part.partition))

    async def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offset of each (topic, partition) of a group."""
        parts = await self.group_progress(group)
        return {(part.topic, part.partition): part.committed_offset for part in parts}

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | datetime = "earliest",
        *,
        partitions: Sequence[int] | None = None,
    ) -> dict[tuple[str, int], int]:
        """Reset a group to "earliest", "latest", an offset or a time."""
        header = ResetOffsets(
            group,
            topic,
            to if isinstance(to, str) else "",
            time_of(to),
            to if isinstance(to, int) else None,
            None if partitions is None else list(partitions),
        )
        reply = await self._call(Operation.RESET_OFFSETS, header, OffsetsSet)
        return {(one.topic, one.partition): one.offset for one in reply.offsets}
