"""The queue's native operations: polls, settlements, offsets."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import IN_FLIGHT_MAX
from goqueue.core.delivery.runs import count_of, is_written, peek_at
from goqueue.core.delivery.settle import Settled
from goqueue.core.record.frame import Buffer
from goqueue.runtime.broker import Broker
from goqueue.runtime.consume import Settlement, Settling
from goqueue.runtime.leasing import Leased
from goqueue.runtime.polling import Demand
from goqueue.transport.native.reply import Begun, Beside, Reply, failure_of
from goqueue.wire import calls, queue_calls
from goqueue.wire.packet import Operation

OFFSET_MAX = 2**62


class QueueOperations:
    """Translates the queue's requests into broker calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add every operation to a dispatch."""
        add(Operation.POLL, queue_calls.Poll, self._poll)
        add(Operation.SETTLE, queue_calls.Settle, self._settle)
        add(Operation.COMMIT_OFFSETS, queue_calls.CommitOffsets, self._commit_offsets)
        add(Operation.GROUP_PROGRESS, queue_calls.GroupCall, self._progress)
        add(Operation.RESET_OFFSETS, queue_calls.ResetOffsets, self._reset_offsets)

    async def _poll(self, call: queue_calls.Poll, beside: Beside) -> Reply:
        kept = beside.kept if call.keeps else None
        demand = Demand(call.limit, call.bytes_max, call.wait_ms, beside.room, kept)
        # Another generation is told in the reply: what a member still owns it may go on reading.
        polled = await self._broker.consume.poll(call.group, call.member, None, demand)
        payload: list[Buffer] = []
        parts: list[queue_calls.PolledPart] = []
        packed = [part.packed() for part in polled.parts]
        # From here on nothing awaits or fails: what is named now goes out now.
        for part, own in zip(polled.parts, packed, strict=True):
            numbers, fresh = ([], []) if kept is None else kept.send(part.kept)
            frames = [*fresh, *own]
            payload += frames
            parts.append(_polled_part(part, size=sum(map(len, frames)), kept=numbers))
        if any(part.kept for part in polled.parts):
            # A frame the client had when it was read may have had to make room since.
            beside.room.keep(sum(map(len, payload)))
        header = queue_calls.Polled(polled.generation, polled.lease_ms, parts)
        return Reply(header, payload, partial(self._broker.consume.give_back, call.group, polled))

    async def _settle(self, call: queue_calls.Settle, _: Beside) -> Reply:
        begun = self.begin_settle(call)
        if begun.ready is not None:
            await begun.ready
        return begun.finish()

    def begin_settle(self, call: queue_calls.Settle) -> Begun:
        """Settle messages; the reply waits for the disk."""
        settlements = [settlement_of(place, part) for place, part in enumerate(call.parts)]
        settling = self._broker.consume.begin_settle(call.group, call.member, settlements)
        return Begun(settling.durable, partial(_settled, settling))

    async def _commit_offsets(self, call: queue_calls.CommitOffsets, _: Beside) -> Reply:
        offsets = {place_of(one.topic, one.partition): Offset(one.offset) for one in call.offsets}
        await self._broker.consume.commit_offsets(call.group, call.member, call.generation, offsets)
        return Reply(calls.Nothing())

    async def _progress(self, call: queue_calls.GroupCall, _: Beside) -> Reply:
        group = self._broker.groups.get(call.group)
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
            for one in await self._broker.consume.progress(call.group)
        ]
        return Reply(queue_calls.GroupProgress(group.generation, parts))

    async def _reset_offsets(self, call: queue_calls.ResetOffsets, _: Beside) -> Reply:
        offsets = self._broker.consume.resolve(
            call.topic,
            to=call.to,
            timestamp_us=call.timestamp_us,
            offset=call.offset,
            partitions=call.partitions,
        )
        await self._broker.consume.reset_offsets(call.group, offsets)
        placed = [
            queue_calls.OffsetOf(name.topic, name.partition, offset)
            for name, offset in offsets.items()
        ]
        return Reply(queue_calls.OffsetsSet(placed))


def place_of(topic: str, partition: int) -> TopicPartition:
    """Return the name of a partition."""
    return TopicPartition(TopicName(topic), PartitionId(partition))


def _settled(settling: Settling) -> Reply:
    settling.tell()
    return Reply(queue_calls.Settled([settled_part(outcome) for outcome in settling.outcomes]))


def _polled_part(part: Leased, *, size: int, kept: list[int]) -> queue_calls.PolledPart:
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
        kept,
    )


def settlement_of(place: int, part: queue_calls.SettlePart) -> Settlement:
    """Return what a part of a request asks for, or raise naming the part."""
    if part.verb not in queue_calls.VERBS:
        raise InvalidRequestError(
            f"parts[{place}].verb: must be one of {', '.join(queue_calls.VERBS)}"
        )
    if not is_written(part.offsets, end_offset=OFFSET_MAX):
        raise InvalidRequestError(f"parts[{place}].offsets: not ascending offsets")
    if count_of(part.offsets) > IN_FLIGHT_MAX:
        raise InvalidRequestError(
            f"parts[{place}].offsets: {count_of(part.offsets)} messages; nobody may hold more than"
            f" {IN_FLIGHT_MAX}"
        )
    if part.verb == queue_calls.EXTEND and part.extension_ms is None:
        raise InvalidRequestError(f"parts[{place}].extension_ms is required")
    return Settlement(
        partition=place_of(part.topic, part.partition),
        nonce=part.nonce,
        verb=part.verb,
        offsets=peek_at(part.offsets),
        written=part.offsets,
        reason=part.reason,
        delay_ms=part.delay_ms,
        extension_ms=part.extension_ms,
    )


def settled_part(outcome: Settled) -> queue_calls.SettledPart:
    """Return what became of a part, as it travels."""
    refused: Sequence[queue_calls.RefusedOffset] = [
        queue_calls.RefusedOffset(one.offset, failure_of(one.error)) for one in outcome.refused
    ]
    return queue_calls.SettledPart(list(refused), list(outcome.retried), list(outcome.doomed))
