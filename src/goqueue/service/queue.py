"""Messages as a queue: polls, settlements, and the offsets groups read on from."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import GroupNotFoundError
from goqueue.base.grant import Grant
from goqueue.base.ids import MemberId, Offset
from goqueue.base.units import US_PER_MS
from goqueue.core.record.frame import Buffer
from goqueue.runtime.broker import Broker
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import Polled, PollLimits
from goqueue.runtime.queue.settlements import Settling
from goqueue.runtime.queue.waiting_polls import PendingPoll
from goqueue.service.gate import Gate
from goqueue.service.settlements import place_of, settled_part, settlement_of
from goqueue.service.verb import Later, Reply, RequestContext, caller_verb, granted_verb, verb
from goqueue.wire import calls, queue_calls
from goqueue.wire.http.group_offsets import GroupOffsets
from goqueue.wire.times import format_time_us

__all__ = ["Polled", "Queue", "Standing"]


class Standing(NamedTuple):
    """A member of a group, as its coordinator has it."""

    generation: int
    places: list[tuple[str, int]]
    """The partitions it may read, by topic and number."""
    has_one_topic: bool
    session_timeout_ms: int


class Queue:
    """What members of a group ask for, and where groups stand."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self.gate = gate
        self._groups = broker.groups
        self._found = broker.consume.groups
        """Groups that other nodes host are seen there, too."""
        self._consume = broker.consume

    # Leasing.

    @granted_verb(Deed.POLL)
    async def poll(
        self, grant: Grant, call: queue_calls.Poll, context: RequestContext
    ) -> Reply | Later:
        """Lease messages as frames, waiting a while for some to be ready."""
        demand = PollLimits(call.limit, call.bytes_max, call.wait_ms, context.room)
        # Another generation is told in the reply: what a member still owns it may go on reading.
        poll = await self._consume.begin_poll(
            grant, call.group, call.member, None, demand, seen=call.generation
        )
        finish = partial(self._polled, call.group, poll)
        return finish() if poll.ready is None else Later(poll.ready, finish, self._undo(poll))

    @granted_verb(Deed.NEXT)
    async def next(
        self, grant: Grant, call: queue_calls.Next, context: RequestContext
    ) -> Reply | Later:
        """Settle messages and lease the next ones as frames."""
        demand = PollLimits(call.limit, call.bytes_max, call.wait_ms, context.room)
        settlements = [settlement_of(place, part) for place, part in enumerate(call.parts)]
        begun = await self._consume.begin_next(
            grant, call.group, call.member, settlements, demand, seen=call.generation
        )
        ready, (settling, poll) = begun.ready, begun
        finish = partial(self._polled, call.group, poll, settling)
        return finish() if ready is None else Later(ready, finish, self._undo(poll))

    def _undo(self, poll: PendingPoll) -> Callable[[], None]:
        return partial(self._consume.give_back, poll.group.name, poll.parts)

    def _polled(self, group: str, poll: PendingPoll, settling: Settling | None = None) -> Reply:
        """Return what was leased, and what became of what was settled, as it travels."""
        polled = self._consume.finish_poll(poll)
        payload: list[Buffer] = []
        parts: list[queue_calls.PolledPart] = []
        for part in polled.parts:
            frames = part.packed()
            payload += frames
            parts.append(_polled_part(part, size=sum(map(len, frames))))
        settled: list[queue_calls.SettledPart] = []
        if settling is not None:
            settling.tell()
            settled = [settled_part(outcome) for outcome in settling.outcomes]
        header = queue_calls.Polled(polled.generation, polled.lease_ms, parts, settled)
        return Reply(header, payload, partial(self._consume.give_back, group, polled.parts))

    @granted_verb(Deed.POLL)
    async def lease_ready(
        self, grant: Grant, call: queue_calls.Poll, context: RequestContext
    ) -> Polled | None:
        """Lease messages that are ready; None where there are none and a poll would wait."""
        demand = PollLimits(call.limit, call.bytes_max, call.wait_ms, context.room)
        generation = call.generation or None
        return await self._consume.poll_ready(grant, call.group, call.member, generation, demand)

    @granted_verb(Deed.POLL)
    async def lease(self, grant: Grant, call: queue_calls.Poll, context: RequestContext) -> Polled:
        """Lease messages, waiting a while for some; another generation than the call's fails."""
        demand = PollLimits(call.limit, call.bytes_max, call.wait_ms, context.room)
        generation = call.generation or None
        return await self._consume.poll(grant, call.group, call.member, generation, demand)

    @verb(Deed.POLL, Deed.NEXT)
    def give_back(self, group: str, polled: Polled) -> None:
        """End leases whose messages were not received; that is no failed attempt."""
        self._consume.give_back(group, polled.parts)

    @verb(Deed.POLL, Deed.NEXT)
    def touch(self, group: str, member: str) -> None:
        """Note that a member is there: it waits for messages."""
        self._found.get(group).touch(member)

    @verb(Deed.POLL, Deed.NEXT)
    async def standing(self, group: str, member: str) -> Standing:
        """Note that a member is there; return what it may read."""
        hosted = self._found.get(group)
        hosted.touch(member)
        return Standing(
            hosted.generation,
            [(one.topic, one.partition) for one in hosted.partitions_of(MemberId(member))],
            len(hosted.topics) == 1,
            hosted.options.session_timeout_ms,
        )

    @verb(Deed.POLL, Deed.NEXT)
    def begin_wait(self, group: str, member: str) -> int:
        """Let a poll stand for its member as a connection does; return its number."""
        hosted = self._groups.get(group)
        number = self._groups.connect()
        hosted.attach(member, number)
        return number

    @verb(Deed.POLL, Deed.NEXT)
    def end_wait(self, number: int, *, is_cut: bool) -> None:
        """Take note that a poll ended; one that was cut is a lost connection."""
        self._groups.disconnect(number, is_lost=is_cut)

    @verb(Deed.POLL, Deed.NEXT)
    def has_one_topic(self, group: str) -> bool:
        """Return True if the members of a group read a single topic."""
        return len(self._found.get(group).topics) == 1

    @verb(Deed.POLL, Deed.NEXT)
    def session_timeout_ms(self, group: str) -> int:
        """Return how long a member of a group may be silent."""
        return self._found.get(group).options.session_timeout_ms

    # Settling.

    @granted_verb(Deed.SETTLE)
    async def settle(self, grant: Grant, call: queue_calls.Settle) -> Reply | Later:
        """Settle leased messages; the reply waits for the disk."""
        settlements = [settlement_of(place, part) for place, part in enumerate(call.parts)]
        settling = self._consume.begin_settle(grant, call.group, call.member, settlements)
        finish = partial(_settled, settling)
        return finish() if settling.durable is None else Later(settling.durable, finish)

    # Offsets.

    @caller_verb(Deed.COMMIT_OFFSETS)
    async def commit_offsets(
        self, caller: Caller, call: queue_calls.CommitOffsets
    ) -> calls.Nothing:
        """Settle everything before some offsets, as the owner of their partitions."""
        for topic in {one.topic for one in call.offsets}:
            self.gate.admit(caller, Deed.FETCH, (topic,))
        offsets = {place_of(one.topic, one.partition): Offset(one.offset) for one in call.offsets}
        await self._consume.commit_offsets(
            call.group, call.member, call.generation, offsets, connection=caller.connection
        )
        return calls.Nothing()

    @verb(Deed.DESCRIBE_PROGRESS)
    async def progress(self, call: queue_calls.GroupCall) -> queue_calls.GroupProgress:
        """Return how far a group is, by partition."""
        await self._found.prepare(call.group)
        group = self._found.get(call.group)
        parts = [
            queue_calls.Progress(
                one.partition.topic,
                one.partition.partition,
                one.committed_offset,
                one.end_offset,
                one.lag,
                one.in_flight,
                one.waiting,
                one.delayed,
                one.dead,
                one.lag_ms,
            )
            for one in sorted(await self._consume.progress(call.group))
        ]
        return queue_calls.GroupProgress(group.generation, parts)

    @verb(Deed.DESCRIBE_PROGRESS)
    async def committed(self, name: str) -> GroupOffsets:
        """Return where a group reads on; one that does not exist has no topics."""
        try:
            await self._found.prepare(name)
            group = self._found.get(name)
        except GroupNotFoundError:
            return GroupOffsets(group_id=name, topics={})
        topics: dict[str, dict[str, int]] = {}
        changed_ms = 0
        for place, hosted in sorted(self._consume.ledgers.of(name).items()):
            topics.setdefault(place.topic, {})[str(place.partition)] = hosted.ledger.committed
            changed_ms = max(changed_ms, hosted.changed_ms)
        return GroupOffsets(
            group_id=name,
            topics=topics,
            generation=group.generation,
            updated_at=format_time_us(changed_ms * US_PER_MS) if changed_ms else None,
        )

    @caller_verb(Deed.RESET_OFFSETS)
    async def reset_offsets(
        self, caller: Caller, call: queue_calls.ResetOffsets
    ) -> queue_calls.OffsetsSet:
        """Let a group begin anew at other offsets of a topic."""
        placed = await self._reset(caller, call)
        return queue_calls.OffsetsSet(
            [
                queue_calls.OffsetOf(call.topic, partition, offset)
                for partition, (offset, _) in placed.items()
            ]
        )

    @caller_verb(Deed.RESET_OFFSETS)
    async def move_offsets(
        self, caller: Caller, call: queue_calls.ResetOffsets, *, dry_run: bool
    ) -> dict[int, tuple[int, int | None]]:
        """Do the same; return, by partition, the new offset and the one read on from before."""
        return await self._reset(caller, call, dry_run=dry_run)

    async def _reset(
        self, caller: Caller, call: queue_calls.ResetOffsets, *, dry_run: bool = False
    ) -> dict[int, tuple[int, int | None]]:
        self.gate.admit(caller, Deed.FETCH, (call.topic,))
        await self._found.prepare(call.group)
        group = self._found.get(call.group)
        offsets = self._consume.resolve(
            call.topic,
            to=call.to,
            timestamp_us=call.timestamp_us,
            offset=call.offset,
            partitions=call.partitions,
        )
        known = self._consume.ledgers.of(group.name)
        places: dict[int, tuple[int, int | None]] = {
            place.partition: (offset, known[place].ledger.committed if place in known else None)
            for place, offset in offsets.items()
        }
        if not dry_run:
            await self._consume.reset_offsets(group.name, offsets)
        return places


def _settled(settling: Settling) -> Reply:
    settling.tell()
    return Reply(queue_calls.Settled([settled_part(outcome) for outcome in settling.outcomes]))


def _polled_part(part: Leased, *, size: int) -> queue_calls.PolledPart:
    name = part.partition
    return queue_calls.PolledPart(
        name.topic,
        name.partition,
        size,
        part.nonce,
        part.order,
        list(part.failures.items()),
        part.gathered,
        part.traced,
        part.tag,
    )
