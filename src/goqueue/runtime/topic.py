"""One topic at work: its partitions, its dedup window, and the road of a message into the log."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from goqueue.base.errors import (
    DelayedFullError,
    DiskFullError,
    GoQueueError,
    InvalidNameError,
    InvalidRequestError,
    PartitionNotFoundError,
    SchemaViolationError,
)
from goqueue.base.ids import Offset, PartitionId, TopicPartition
from goqueue.base.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX, DELAYED_MAX
from goqueue.base.names import is_internal
from goqueue.core.log.scan import Walk
from goqueue.core.producers.dedup import DedupWindow, Remembered
from goqueue.core.producers.identities import Identities
from goqueue.core.producers.ledger import Original
from goqueue.core.producers.partitioner import RoundRobin, choose_partitions, partition_of_key
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import drafts_of, frame_drafts, without_repeats
from goqueue.core.record.stamp import REFUSED_OFFSET, Repeat
from goqueue.core.topics.catalog import Topic as TopicRecord
from goqueue.core.topics.settings import TopicSettings
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import Metrics
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock
from goqueue.runtime.commit import Committer
from goqueue.runtime.gate import Gate
from goqueue.runtime.partition import Partition, Published
from goqueue.runtime.queue_index import STILL, QueueIndex, Timer
from goqueue.storage.disk import Disk
from goqueue.storage.segment import SCAN_CHUNK_BYTES

DRAFT_OVERHEAD_BYTES: Final = 64
"""What a message costs in a batch beside its own bytes, generously."""

REFUSED_BEFORE: Final = "the message was refused when it was first sent: it did not fit its schema"

log = get_logger("goqueue.topic")


def _nothing() -> None:
    """Check nothing: the messages belong to no transaction."""


class Ticket(NamedTuple):
    """The transaction messages belong to, and what raises when it is no longer open."""

    number: int
    check: Callable[[], None]


NO_TICKET: Final = Ticket(0, _nothing)


class Topic:
    """Publishes into partitions."""

    def __init__(  # noqa: PLR0913 - all that a topic works with is handed to it
        self,
        record: TopicRecord,
        *,
        disk: Disk,
        clock: Clock,
        committer: Committer,
        identities: Identities,
        metrics: Metrics,
        timer: Timer = STILL,
        ballast: Ballast | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.record = record
        self._clock = clock
        self._identities = identities
        self._metrics = metrics
        self._ballast = ballast
        self._gate = gate
        self.meter = metrics.meter(record.name)
        self.partitions = [
            Partition(
                disk,
                TopicPartition(record.name, PartitionId(number)),
                record.settings,
                committer=committer,
                meter=self.meter,
                queue=QueueIndex(clock, life=record.created_ms, timer=timer),
            )
            for number in range(record.partitions)
        ]
        self.delayed_max = DELAYED_MAX
        self._is_disk_full = False
        # Guards the order of requests: whoever came first appends first.
        self._turn = asyncio.Lock()
        self._round_robin = RoundRobin(record.partitions)
        self._dedup = DedupWindow(record.settings.dedup_window_ms)
        self._recall_dedup_ids()

    def __repr__(self) -> str:
        return f"<Topic {self.record.name} of {len(self.partitions)} partitions>"

    @property
    def settings(self) -> TopicSettings:
        """How the topic is kept."""
        return self.record.settings

    def partition(self, number: int) -> Partition:
        """Return a partition or raise."""
        if not 0 <= number < len(self.partitions):
            raise PartitionNotFoundError(
                f"invalid partition {number} (topic has {len(self.partitions)} partitions)"
            )
        return self.partitions[number]

    def configure(self, record: TopicRecord) -> None:
        """Take new settings."""
        self.record = record
        self._dedup.resize(record.settings.dedup_window_ms)
        for partition in self.partitions:
            partition.configure(record.settings)

    def forget_dedup_ids(self) -> None:
        """Drop ids that are past their window."""
        self._dedup.forget(self._clock.now_ms())

    # Publishing.

    async def publish(self, partition: int, frames: memoryview, *, wait: bool = True) -> Published:
        """Check and append a producer's frames; return when the ack may go out."""
        (outcome,) = await self.publish_all([(partition, frames)], wait=wait)
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome

    async def publish_all(
        self,
        parts: Sequence[tuple[int, memoryview]],
        *,
        wait: bool = True,
        ticket: Ticket = NO_TICKET,
    ) -> list[Published | GoQueueError]:
        """Append the frames of one request; return what became of each part when acks may go out.

        Requests take turns: one that waits for a new segment is not overtaken by the next.
        """
        if is_internal(self.record.name):
            raise InvalidNameError("topics whose names begin with '__' are written by the broker")
        started = time.perf_counter()
        try:
            async with self._turn:
                outcomes = [await self._accept(*part, ticket=ticket) for part in parts]
        except BaseException:
            # Cancelled in the middle: what is appended already is synced all the same.
            for partition, _ in parts:
                if 0 <= partition < len(self.partitions):
                    self.partitions[partition].sync_soon()
            raise
        if self.settings.is_fsync:
            outcomes = await self._sync(outcomes, wait=wait)
        for outcome in outcomes:
            if isinstance(outcome, GoQueueError):
                self._metrics.messages_failed.labels(self.record.name, outcome.code).inc()
        self.meter.publish_seconds.observe(time.perf_counter() - started)
        return outcomes

    async def check_fit(self, frames: Sequence[CheckedFrame]) -> None:
        """Refuse frames of the broker's own if one message does not fit the schema."""
        if self._gate is None or not self.settings.is_validated:
            return
        for reason in (await self._gate.misfits(self.record.name, self.settings, frames)).values():
            raise SchemaViolationError(reason)

    async def _accept(
        self, partition: int, frames: memoryview, *, ticket: Ticket
    ) -> Published | GoQueueError:
        try:
            target = self.partition(partition)
            self.check_room()
            checked = check_frames(frames, now_ms=self._clock.now_ms(), transaction=ticket.number)
            misfits: Mapping[int, str] = {}
            if self._gate is not None and self.settings.is_validated:
                misfits = await self._gate.refuse(target.name, self.settings, checked)
            published = await self._append(target, checked, misfits, ticket)
        except GoQueueError as error:
            self._note_room(is_full=isinstance(error, DiskFullError))
            return error
        self._note_room(is_full=False)
        return published

    def check_room(self) -> None:
        """Refuse what would take the room kept for consumers."""
        if self._ballast is not None:
            self._ballast.check()

    def _note_room(self, *, is_full: bool) -> None:
        """Log that the disk is full, or has room again, once each."""
        if is_full and not self._is_disk_full:
            log.error("nothing can be published: the disk is full", topic=self.record.name)
        elif self._is_disk_full and not is_full:
            log.info("the disk has room again", topic=self.record.name)
        self._is_disk_full = is_full

    async def _sync(
        self, outcomes: list[Published | GoQueueError], *, wait: bool
    ) -> list[Published | GoQueueError]:
        """Have what was appended synced: now if acks wait for it, soon if they do not."""
        accepted = [one for one in outcomes if isinstance(one, Published)]
        if not wait:
            for published in accepted:
                self.partition(published.partition).sync_soon()
            return outcomes
        # Asked for all together, so that one round of syncs covers them.
        waits = [self._durable(one) if isinstance(one, Published) else None for one in outcomes]
        synced: list[Published | GoQueueError] = []
        for outcome, waiting in zip(outcomes, waits, strict=True):
            try:
                if waiting is not None:
                    await waiting
                synced.append(outcome)
            except GoQueueError as error:
                synced.append(error)
        return synced

    def _durable(self, published: Published) -> Awaitable[object]:
        """Return what is done when the messages are; a repeat is as durable as its original."""
        try:
            if not published.repeats:
                return self.partition(published.partition).durable()
            numbers = {published.partition, *(repeat.partition for repeat in published.repeats)}
            return asyncio.gather(*[self.partition(number).durable() for number in numbers])
        except GoQueueError as error:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _append(
        self,
        target: Partition,
        frames: list[CheckedFrame],
        misfits: Mapping[int, str],
        ticket: Ticket = NO_TICKET,
    ) -> Published:
        stamp = frames[0].stamp
        if stamp.is_idempotent:
            self._identities.check(producer_id=stamp.producer_id, epoch=stamp.epoch)
            if not ticket.number:
                self._identities.check_free(stamp.producer_id)
        target.check_writable()
        await target.make_room(sum(len(frame.frame) for frame in frames))
        # From here to the append nothing awaits: what is judged is what is written.
        target.check_writable()
        ticket.check()
        number = target.name.partition
        originals = target.judge(frames)
        known = _known_rows(originals, frames, number) if originals else ()
        if len(originals) == len(frames):
            only = originals[0] if len(originals) == 1 else None
            return Published(
                partition=number,
                base_offset=originals[0].base_offset,
                is_duplicate=True,
                repeats=only.repeats if only else known,
            )
        return self._append_rest(target, frames[len(originals) :], known, misfits)

    def _append_rest(
        self,
        target: Partition,
        frames: list[CheckedFrame],
        known: tuple[Repeat, ...],
        misfits: Mapping[int, str],
    ) -> Published:
        fresh: tuple[Remembered, ...] = ()
        is_deduplicated = self.settings.dedup_window_ms and any(f.dedup_ids for f in frames)
        if is_deduplicated and frames[0].transaction:
            # What is aborted was never there: a repeat of it must not be left out.
            raise InvalidRequestError("dedup_id: not in a transaction, which may be undone")
        if is_deduplicated or misfits:
            unfit = {row - len(known) for row in misfits if row >= len(known)}
            frames, fresh = self._leave_out(target, frames, unfit)
        self._check_delayed(frames)
        rows = sum(frame.rows for frame in frames)
        # Repeats alone are written only to remember the sequence of their producer.
        is_written = rows > 0 or frames[0].stamp.is_idempotent
        base = target.append(frames) if is_written else target.log.end_offset
        for event in fresh:
            self._dedup.apply(event)
        self.meter.published.inc(rows)
        self.meter.count_lanes(frame.lanes or (0, 0, frame.rows, 0, 0) for frame in frames)
        self.meter.published_bytes.inc(sum(len(frame.frame) for frame in frames))
        left_out = (
            Repeat(repeat.row + len(known), repeat.partition, repeat.offset)
            for repeat in frames[0].repeats
        )
        return Published(
            partition=target.name.partition,
            base_offset=base,
            repeats=(*known, *left_out),
            misfits=misfits,
        )

    def _check_delayed(self, frames: Sequence[CheckedFrame]) -> None:
        """Refuse more delayed messages than the topic may hold."""
        special = (frame.queue for frame in frames if frame.queue is not None)
        count = sum(len(rows.delays.rows) for rows in special if rows.delays is not None)
        if count and self.delayed + count > self.delayed_max:
            raise DelayedFullError(
                f"{self.delayed} messages of {self.record.name} wait for their time;"
                f" the limit is {self.delayed_max}"
            )

    @property
    def delayed(self) -> int:
        """Return how many messages wait for their time."""
        return sum(partition.queue.schedule.pending for partition in self.partitions)

    def _leave_out(
        self, target: Partition, frames: list[CheckedFrame], misfits: set[int]
    ) -> tuple[list[CheckedFrame], tuple[Remembered, ...]]:
        """Leave out what does not fit the schema, and what was published before."""
        dedup_ids = [
            dedup_id for frame in frames for dedup_id in (frame.dedup_ids or (None,) * frame.rows)
        ]
        number = target.name.partition
        refused = [Repeat(row, number, REFUSED_OFFSET) for row in sorted(misfits)]
        if not self.settings.dedup_window_ms:
            return ([without_repeats(frames, refused)] if refused else frames), ()
        places = [row for row in range(len(dedup_ids)) if row not in misfits]
        repeats, fresh = self._dedup.find(
            [dedup_ids[row] for row in places],
            partition=target.name.partition,
            next_offset=target.log.end_offset,
            now_ms=self._clock.now_ms(),
        )
        seen = [Repeat(places[one.row], one.partition, one.offset) for one in repeats]
        left_out = sorted([*seen, *refused], key=lambda repeat: repeat.row)
        return ([without_repeats(frames, left_out)] if left_out else frames), fresh

    async def publish_drafts(
        self, drafts: Sequence[tuple[Draft, int | None]]
    ) -> list[tuple[PartitionId, Offset] | GoQueueError]:
        """Publish messages that came one by one; return where each went or why it did not.

        Messages for one partition are appended together; a fault in one partition fails its own.
        """
        results: list[tuple[PartitionId, Offset] | GoQueueError | None] = [None] * len(drafts)
        rows_of: dict[PartitionId, list[int]] = {}
        for row, (draft, partition) in enumerate(drafts):
            try:
                rows_of.setdefault(self.choose(draft, partition), []).append(row)
            except GoQueueError as error:
                results[row] = error
        shares = [
            (partition, share)
            for partition, rows in rows_of.items()
            for share in _shares(rows, drafts)
        ]
        outcomes = await asyncio.gather(
            *(self._publish_share(p, [drafts[row][0] for row in rows]) for p, rows in shares)
        )
        for (_, rows), outcome in zip(shares, outcomes, strict=True):
            for row, result in zip(rows, outcome, strict=True):
                results[row] = result
        return [result for result in results if result is not None]

    def choose(self, draft: Draft, partition: int | None = None) -> PartitionId:
        """Return the partition of a message: the one that was asked for, its key's, or in turn."""
        if partition is not None:
            return self.partition(partition).name.partition
        if draft.key is not None:
            return partition_of_key(draft.key, len(self.partitions))
        return self._round_robin.take()

    def choose_all(self, keys: Sequence[bytes | None]) -> list[PartitionId]:
        """Return the partition of each message by its key, or in turn where it has none."""
        return choose_partitions(keys, len(self.partitions), self._round_robin)

    async def _publish_share(
        self, partition: PartitionId, drafts: list[Draft]
    ) -> Sequence[tuple[PartitionId, Offset] | GoQueueError]:
        try:
            published = await self.publish(partition, memoryview(frame_drafts(drafts)))
        except GoQueueError as error:
            return [error] * len(drafts)
        return outcomes_of(published, len(drafts))

    # Starting.

    def _recall_dedup_ids(self) -> None:
        """Rebuild the dedup window from what the log holds of it."""
        window_ms = self.settings.dedup_window_ms
        if not window_ms:
            return
        since_us = (self._clock.now_ms() - window_ms) * 1_000
        found: list[Remembered] = []
        for partition in self.partitions:
            offset = partition.reader.find_recent(since_us)
            while offset is not None and offset < partition.log.end_offset:
                piece = partition.reader.read(
                    offset, end_offset=partition.log.end_offset, bytes_max=SCAN_CHUNK_BYTES
                )
                found += _dedup_ids_in(partition, piece.frames, now_ms=self._clock.now_ms())
                offset = piece.next_offset if piece.next_offset > offset else None
        for event in sorted(found, key=lambda event: event.at_ms):
            self._dedup.apply(event)


def _known_rows(
    originals: Sequence[Original], frames: Sequence[CheckedFrame], number: PartitionId
) -> tuple[Repeat, ...]:
    """Return where each message is of those frames that were published before."""
    places = (
        place
        for original, frame in zip(originals, frames, strict=False)
        for place in place_rows(
            Published(partition=number, base_offset=original.base_offset, repeats=original.repeats),
            frame.sequence_count,
        )
    )
    return tuple(Repeat(row, *place) for row, place in enumerate(places))


def _dedup_ids_in(partition: Partition, frames: memoryview, *, now_ms: int) -> list[Remembered]:
    """Return the dedup ids of frames; a time that lies ahead counts as now, not as longer."""
    return [
        Remembered(
            dedup_id=draft.dedup_id,
            partition=partition.name.partition,
            offset=Offset(span.header.offset + row),
            at_ms=min(draft.timestamp_us // 1_000, now_ms),
        )
        for span in Walk(frames)
        if not span.header.flags & CONTROL
        for row, draft in enumerate(drafts_of(span.header, frames[span.start : span.end]))
        if draft.dedup_id is not None
    ]


def _shares(rows: Sequence[int], drafts: Sequence[tuple[Draft, int | None]]) -> list[list[int]]:
    """Cut the messages of one partition into batches that are not too large."""
    shares: list[list[int]] = []
    size = 0
    for row in rows:
        draft = drafts[row][0]
        cost = len(draft.value or b"") + len(draft.key or b"") + DRAFT_OVERHEAD_BYTES
        cost += sum(len(k) * 4 + len(v) for k, v in (draft.headers or {}).items())
        if not shares or size + cost > BATCH_BYTES_MAX // 2 or len(shares[-1]) == BATCH_ROWS_MAX:
            shares.append([])
            size = 0
        shares[-1].append(row)
        size += cost
    return shares


def outcomes_of(
    published: Published, count: int
) -> Sequence[tuple[PartitionId, Offset] | GoQueueError]:
    """Return where each of ``count`` messages is, or why it was refused."""
    places = place_rows(published, count)
    if not any(repeat.offset == REFUSED_OFFSET for repeat in published.repeats):
        return places
    return [
        SchemaViolationError(published.misfits.get(row, REFUSED_BEFORE))
        if place[1] == REFUSED_OFFSET
        else place
        for row, place in enumerate(places)
    ]


def place_rows(published: Published, count: int) -> list[tuple[PartitionId, Offset]]:
    """Return where each of ``count`` published messages is, repeats at their originals."""
    base, partition = published.base_offset, published.partition
    if not published.repeats:
        return [(partition, Offset(base + row)) for row in range(count)]
    originals = {repeat.row: (repeat.partition, repeat.offset) for repeat in published.repeats}
    places: list[tuple[PartitionId, Offset]] = []
    for row in range(count):
        place = originals.get(row)
        if place is None:
            place, base = (partition, base), Offset(base + 1)
        places.append(place)
    return places
