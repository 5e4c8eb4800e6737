"""One redrive or purge at work: batch by batch, at its pace, until it has seen everything."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from pyroaring import BitMap64

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    NotLeaderError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import (
    MOVE_BACKOFF_MS_MAX,
    MOVE_BACKOFF_MS_MIN,
    MOVE_BYTES_MAX,
    MOVE_MESSAGES_MAX,
)
from goqueue.base.units import SECOND_MS
from goqueue.core.delivery.events import DEAD, GONE, SKIPPED
from goqueue.core.dlq.names import DLQ_GROUP, origin_of
from goqueue.core.dlq.pace import Pace
from goqueue.core.dlq.record import read_story, revive
from goqueue.core.dlq.redrive import Event, Job, Kind, RedriveBook, RedriveState
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.dlq.dead_letter_index import DeadLetterIndex, DeadLetterIndexes
from goqueue.runtime.dlq.dead_letters import Sleep, Topics
from goqueue.runtime.dlq.letters import DeadLetterRow, first_of
from goqueue.runtime.dlq.moves import MovedMessage, Mover
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost
from goqueue.runtime.queue.read_offsets import read_offsets
from goqueue.runtime.tracing.moves import trace_on
from goqueue.runtime.tracing.reader import find_callers

SLEEP_MS_MAX: Final = SECOND_MS
"""Longest sleep in one piece: whoever cancels a job does not wait longer."""
OUTCOMES: Final = {Kind.REDRIVE: DEAD, Kind.PURGE: SKIPPED}

log = get_logger("goqueue.dlq")


class Shelves:
    """The shelves of one topic, looked up each time: they come and go with their partitions."""

    def __init__(self, indexes: DeadLetterIndexes, topic: Topic) -> None:
        self._indexes = indexes
        self._topic = topic

    def __len__(self) -> int:
        return len(self._topic.partitions)

    def __getitem__(self, number: int) -> DeadLetterIndex:
        return self._indexes.at(self._topic, self._topic.partition(number))

    def __iter__(self) -> Iterator[DeadLetterIndex]:
        return iter(self._indexes.of(self._topic))


class HostedBook:
    """The jobs of one topic of dead letters, and its shelves."""

    def __init__(
        self, source: TopicName, host: MachineHost[Event], book: RedriveBook, shelves: Shelves
    ) -> None:
        self.source = source
        self.host = host
        self.book = book
        self.shelves = shelves

    def left(self, kind: Kind) -> list[int]:
        """Return how many ever left each shelf in the way of a job."""
        return [shelf.settled(OUTCOMES[kind]) for shelf in self.shelves]

    def moved(self, job: Job) -> int:
        """Return how many a job has moved; the shelves know, whatever was cut short."""
        if not job.is_running:
            return job.moved
        return sum(self.left(job.order.kind)) - sum(job.left_before)


class _Batch:
    """What a job does with a few letters of one shelf."""

    def __init__(self) -> None:
        self.letters: list[DeadLetterRow] = []
        self.unmatched = 0
        self.skipped = 0
        self.next_offset = Offset(0)
        self.is_paced = False


class Run:
    """A job under way."""

    def __init__(
        self,
        hosted: HostedBook,
        job: Job,
        *,
        topics: Topics,
        mover: Mover,
        clock: Clock,
        meter: DlqMeter,
        sleep: Sleep,
    ) -> None:
        self._hosted = hosted
        self._id = job.id
        self._order = job.order
        self._topics = topics
        self._mover = mover
        self._clock = clock
        self._meter = meter
        self._sleep = sleep
        self._pace = Pace(job.order.rate, now_ms=clock.monotonic_ms())
        self._is_cancelled = False
        self.error = ""
        """Why it does not get on, if it does not."""

    def cancel(self) -> None:
        """End the job after the batch under way."""
        self._is_cancelled = True

    async def fail(self, error: str) -> None:
        """End the job for a reason that will not go away."""
        await self._end(RedriveState.FAILED, error)

    async def run(self) -> None:
        """Work until everything was seen; what fails is tried again after a pause."""
        pause_ms = MOVE_BACKOFF_MS_MIN
        number, must_look = 0, True
        unknown = BitMap64()
        while number < len(self._hosted.shelves) and not self._is_cancelled:
            try:
                shelf = self._hosted.shelves[number]
                if must_look:
                    unknown, must_look = await self._mover.look(shelf), False
                is_over = await self._step(number, shelf, unknown)
            except ShuttingDownError:
                return
            except TopicNotFoundError as error:
                await self.fail(error.message)
                return
            except GoQueueError as error:
                self._note(error)
                must_look = True
                await self._rest(pause_ms)
                pause_ms = min(2 * pause_ms, MOVE_BACKOFF_MS_MAX)
                continue
            pause_ms, self.error = MOVE_BACKOFF_MS_MIN, ""
            if is_over:
                number, must_look = number + 1, True
        await self._end(RedriveState.CANCELLED if self._is_cancelled else RedriveState.DONE)

    def _note(self, error: GoQueueError) -> None:
        if not self.error:
            log.warning(LogEvent.REDRIVE_STALLED, redrive=self._id, error=error.message)
        self.error = error.message

    async def _rest(self, duration_ms: int) -> None:
        while duration_ms > 0 and not self._is_cancelled:
            await self._sleep(min(duration_ms, SLEEP_MS_MAX))
            duration_ms -= SLEEP_MS_MAX

    async def _step(self, number: int, shelf: DeadLetterIndex, unknown: BitMap64) -> bool:
        """Work on one batch of a shelf; tell whether the shelf is done."""
        job = self._hosted.book.get(self._id)
        start, end = job.positions[number], job.ends[number]
        left = shelf.left(from_offset=start, end_offset=end) - unknown
        if not left:
            if shelf.left(from_offset=start, end_offset=end):
                raise StorageFailedError("nobody can tell whether the last ones were written")
            self._advance(number, end, unmatched=0, skipped=0)
            return True
        wanted = first_of(left, MOVE_MESSAGES_MAX)
        plucked = await read_offsets(shelf.partition, wanted, end_offset=Offset(end))
        if plucked.gone:
            await shelf.drop(plucked.gone, GONE)
        read = [
            DeadLetterRow(message, read_story(message.headers))
            for message in plucked.messages
            if not shelf.ledger.is_settled(message.offset)
        ]
        batch = self._choose(read, Offset(min(plucked.next_offset, wanted.max() + 1)))
        if batch.letters:
            self._pace.spend(len(batch.letters))
            await self._take(shelf, batch.letters)
        self._advance(number, batch.next_offset, unmatched=batch.unmatched, skipped=batch.skipped)
        if batch.is_paced:
            await self._rest(self._pace.wait_ms())
        # Others get their turn, however much of it is in memory.
        await asyncio.sleep(0)
        return False

    def _choose(self, letters: Sequence[DeadLetterRow], next_offset: Offset) -> _Batch:
        """Return what goes now: what is meant, as far as the pace and the size of a batch allow."""
        batch = _Batch()
        batch.next_offset = next_offset
        allowed = self._pace.allowed(len(letters), now_ms=self._clock.monotonic_ms())
        size = 0
        for letter in letters:
            if not self._order.filter.matches(letter.message, letter.story):
                batch.unmatched += 1
                continue
            if self._order.kind is Kind.REDRIVE and letter.redrives >= self._order.max_redrives:
                batch.skipped += 1
                continue
            size += len(letter.message.value or b"")
            batch.is_paced = len(batch.letters) >= allowed
            if batch.is_paced or (batch.letters and size > MOVE_BYTES_MAX):
                batch.next_offset = letter.message.offset
                break
            batch.letters.append(letter)
        return batch

    async def _take(self, shelf: DeadLetterIndex, letters: Sequence[DeadLetterRow]) -> None:
        offsets = BitMap64([letter.message.offset for letter in letters])
        match self._order.kind:
            case Kind.PURGE:
                await shelf.drop(offsets, SKIPPED)
            case Kind.REDRIVE:
                await self._send_back(shelf, letters)

    async def _send_back(self, shelf: DeadLetterIndex, letters: Sequence[DeadLetterRow]) -> None:
        offsets = BitMap64([letter.message.offset for letter in letters])
        callers = await find_callers(shelf.partition, offsets)
        target = self._topics.topic(self._order.target)
        count = len(target.partitions)
        now_us = self._clock.now_us()
        parcels = [
            MovedMessage(
                letter.message.offset,
                revive(
                    letter.message,
                    origin=origin_of(DLQ_GROUP, shelf.partition.name, letter.message.offset),
                    now_us=now_us,
                    trace=trace_on(shelf.partition.trace, letter.message, callers),
                ),
                TopicPartition(target.record.name, self._place(letter, count)),
            )
            for letter in letters
        ]
        delivered = await self._mover.move(shelf, parcels, reason=Kind.REDRIVE)
        self._meter.redriven(target.record.name, len(delivered.offsets))
        for error in delivered.errors:
            raise error

    def _place(self, letter: DeadLetterRow, count: int) -> PartitionId:
        """Return the partition of a letter: the one it came from, that of its key, or in turn."""
        message, story = letter
        # A story without a reason is none of ours; one without a topic had no room for it.
        origin = story.original_topic or (self._hosted.source if story.reason else "")
        if origin == self._order.target and story.original_partition < count:
            return PartitionId(story.original_partition)
        if message.key is not None:
            return partition_of_key(message.key, count)
        return PartitionId(message.offset % count)

    def _advance(self, number: int, next_offset: int, *, unmatched: int, skipped: int) -> None:
        """Note how far it is. Should that be lost, the next start looks at the same again."""
        decision = self._hosted.book.advance(
            self._id, number, next_offset, unmatched=unmatched, skipped=skipped
        )
        self._hosted.host.commit(decision.events)

    async def _end(self, state: RedriveState, error: str = "") -> None:
        """Note how it ended; a disk that is full is waited for."""
        hosted = self._hosted
        while True:
            job = hosted.book.get(self._id)
            try:
                decision = hosted.book.end(
                    self._id,
                    state,
                    moved=hosted.moved(job),
                    now_ms=self._clock.now_ms(),
                    error=error,
                )
                hosted.host.commit(decision.events)
                await hosted.host.durable()
            except (DiskFullError, NotLeaderError) as failure:
                self._note(failure)
                await self._sleep(SLEEP_MS_MAX)
            except GoQueueError as failure:
                # The next start finds it running, with nothing left to do.
                self._note(failure)
                return
            else:
                return
