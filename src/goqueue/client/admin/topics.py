"""Topics in the SDK: make them, look at them, change them, find places in them."""

from collections.abc import Mapping, Sequence

from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.protocol.positions import Position, resolve, time_of
from goqueue.wire import calls
from goqueue.wire.overview_calls import Overview
from goqueue.wire.packet import Operation

DEFAULT_PARTITIONS = 3


class AsyncTopics(AsyncCalls):
    """The calls on topics."""

    async def create_topic(
        self, /, name: str, *, partitions: int = DEFAULT_PARTITIONS, **settings: str | float
    ) -> calls.TopicState:
        """Make a topic. Settings are those of ``goqueue topic config``."""
        return await self._once(
            Operation.CREATE_TOPIC, calls.CreateTopic(name, partitions, settings), calls.TopicState
        )

    async def configure_topic(self, /, name: str, **settings: str | float) -> calls.TopicState:
        """Change settings of a topic."""
        return await self._call(
            Operation.CONFIGURE_TOPIC, calls.ConfigureTopic(name, settings), calls.TopicState
        )

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with all its messages."""
        await self._once(Operation.DELETE_TOPIC, calls.TopicCall(name), calls.Nothing)

    async def describe_topic(self, name: str) -> calls.TopicState:
        """Return a topic's settings and the range of each partition."""
        return await self._call(Operation.DESCRIBE_TOPIC, calls.TopicCall(name), calls.TopicState)

    async def list_topics(self) -> list[calls.TopicSummary]:
        """Return every topic."""
        reply = await self._call(Operation.LIST_TOPICS, calls.Nothing(), calls.TopicList)
        return sorted(reply.topics, key=lambda topic: topic.name)

    async def add_partitions(
        self, name: str, count: int, *, assignments: Mapping[int, Sequence[str]] | None = None
    ) -> calls.PartitionsAdded:
        """Give a topic more partitions: ``count`` is the new total, and can only grow.

        Keys may go to other partitions from then on. In a cluster ``assignments`` says which nodes
        hold each new one, the preferred leader first.
        """
        placed = {number: list(nodes) for number, nodes in (assignments or {}).items()}
        call = calls.AddPartitions(name, count, placed)
        return await self._once(Operation.ADD_PARTITIONS, call, calls.PartitionsAdded)

    async def compact_topic(
        self, name: str, partitions: Sequence[int] | None = None, *, dry_run: bool = False
    ) -> list[calls.CompactedPart]:
        """Keep only the last message of each key, or with ``dry_run`` tell how many would go."""
        chosen = None if partitions is None else list(partitions)
        call = calls.CompactTopic(name, chosen, dry_run)
        return (await self._once(Operation.COMPACT_TOPIC, call, calls.Compacted)).parts

    async def offsets(self, topic: str, at: Position = "latest") -> dict[int, int]:
        """Return an offset per partition: the earliest, the latest, or the first at a time."""
        return await self._resolve(topic, at, await self._ranges(topic, None))

    async def overview(self) -> Overview:
        """Return how all topics and groups stand, as ``goqueue top`` shows it."""
        return await self._call(Operation.OVERVIEW, calls.Nothing(), Overview)

    async def ping(self) -> None:
        """Return when the broker has answered."""
        await self._call(Operation.PING, calls.Nothing(), calls.Nothing)

    async def _ranges(
        self, topic: str, timestamp_us: int | None, *, is_committed: bool = True
    ) -> list[calls.OffsetsPart]:
        header = calls.Offsets(topic, timestamp_us, is_committed)
        return (await self._call(Operation.OFFSETS, header, calls.OffsetsReply)).parts

    async def _resolve(
        self,
        topic: str,
        position: Position,
        parts: list[calls.OffsetsPart],
        *,
        other: str = "earliest",
    ) -> dict[int, int]:
        moment = time_of(position)
        at_time = [] if moment is None else await self._ranges(topic, moment)
        return resolve(position, parts, at_time, other=other)
