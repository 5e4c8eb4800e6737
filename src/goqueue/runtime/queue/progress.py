"""How far a group is in a partition, in messages and in time."""

from typing import NamedTuple

from goqueue.base.ids import Offset, TopicPartition
from goqueue.base.units import NS_PER_MS, US_PER_MS
from goqueue.core.delivery import events
from goqueue.core.delivery.ledger import OUTCOME_INDEX
from goqueue.core.record.batch import batch_fields
from goqueue.core.record.frame import CONTROL, read_header
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.hosted_ledger import HostedLedger


class Progress(NamedTuple):
    """One partition of a group."""

    partition: TopicPartition
    committed_offset: Offset
    end_offset: Offset
    lag: int
    """Messages that are not settled."""
    in_flight: int
    waiting: int
    delayed: int
    dead: int
    lag_ms: int
    """Age of the oldest message that is not settled."""


async def progress_of(hosted: HostedLedger, clock: Clock) -> Progress:
    """Return how far a ledger is."""
    await look_at_oldest(hosted)
    ledger = hosted.ledger
    return Progress(
        partition=hosted.partition.name,
        committed_offset=ledger.committed,
        end_offset=hosted.partition.visible_offset,
        lag=hosted.lag(),
        in_flight=len(ledger.leases.offsets),
        waiting=len(ledger.waiting.offsets),
        delayed=hosted.delayed(),
        dead=ledger.outcomes[OUTCOME_INDEX[events.DEAD]] + len(ledger.dooms),
        lag_ms=hosted.age_ms(clock.now_ms()),
    )


async def look_at_oldest(hosted: HostedLedger) -> None:
    """Find out how old the oldest unsettled message is; each is read once."""
    offset = hosted.first_unsettled()
    if offset is None:
        hosted.oldest = None
        return
    if hosted.oldest is not None and hosted.oldest[0] == offset:
        return
    time_ms = await time_at(hosted.partition, offset)
    hosted.oldest = None if time_ms is None else (offset, time_ms)


async def time_at(partition: Partition, offset: Offset) -> int | None:
    """Return the time of a message in milliseconds, or that of the first in its batch."""
    piece = await partition.read(offset, end_offset=Offset(offset + 1), bytes_max=1)
    if not piece.frames:
        return None
    header = read_header(piece.frames)
    if header.flags & CONTROL:
        return None
    if header.is_batch:
        frame = piece.frames[: header.size]
        return batch_fields(header, frame).first_timestamp_us // US_PER_MS
    return header.timestamp_ns // NS_PER_MS
