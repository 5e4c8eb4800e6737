"""The work of a redrive or purge at the leader of one partition of dead letters, step by step.

A step takes the next letters that are meant, within what the pace of the job allows. It begins by
finding out what became of an earlier step that was cut short, so it may be repeated at any time,
also by the next leader.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import LeaderNotAvailableError, StorageFailedError
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import MOVE_BYTES_MAX, MOVE_MESSAGES_MAX
from goqueue.core.delivery.events import DEAD, GONE, SKIPPED
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.names import DLQ_GROUP, origin_of, source_of
from goqueue.core.dlq.record import read_story, revive
from goqueue.core.dlq.redrive import Kind, Order
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.runtime.clock import Clock
from goqueue.runtime.dlq.dead_letter_index import DeadLetterIndex, DeadLetterIndexes
from goqueue.runtime.dlq.dead_letters import Topics
from goqueue.runtime.dlq.letters import DeadLetterRow, Search, first_of
from goqueue.runtime.dlq.moves import MovedMessage, Mover
from goqueue.runtime.dlq.reports import Trial
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.read_offsets import read_offsets
from goqueue.runtime.tracing.moves import trace_on
from goqueue.runtime.tracing.reader import find_callers
from goqueue.wire.shelf_calls import SAMPLE_LETTERS

OUTCOMES: Final = {Kind.REDRIVE: DEAD, Kind.PURGE: SKIPPED}


Left = Mapping[Kind, int]
"""How many dead letters ever left a partition in the way of each kind of job."""


class ShelfCount(NamedTuple):
    """How the dead letters of a partition stand."""

    end_offset: int
    depth: int
    left: Left


class StepAsk(NamedTuple):
    """What a job wants of one step: its order, and which offsets are still to be looked at."""

    job: tuple[int, int]
    """The epoch of the node that has the job, and its id."""
    order: Order
    start: int
    end: int
    allowed: int


class StepDone(NamedTuple):
    """What became of a step."""

    next_offset: int
    left: Left
    taken: int = 0
    unmatched: int = 0
    skipped: int = 0
    is_paced: bool = False
    is_over: bool = False


class _Looked(NamedTuple):
    """For which job the moves of a shelf were looked after, and which are still not known."""

    shelf: DeadLetterIndex
    job: tuple[int, int]
    unknown: BitMap64


class _Batch:
    """What a job does with a few letters of one shelf."""

    def __init__(self) -> None:
        self.letters: list[DeadLetterRow] = []
        self.unmatched = 0
        self.skipped = 0
        self.next_offset = Offset(0)
        self.is_paced = False


class ShelfSteps:
    """Works on the shelves that are led here, one step at a time on each."""

    def __init__(
        self,
        shelves: DeadLetterIndexes,
        names: Mapping[TopicName, Topic],
        *,
        topics: Topics,
        mover: Mover,
        clock: Clock,
        meter: DlqMeter,
    ) -> None:
        self._shelves = shelves
        self._names = names
        self._topics = topics
        self._mover = mover
        self._clock = clock
        self._meter = meter
        # Each guards one shelf: a step that was given up goes on beside the one that follows it.
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._looked: dict[TopicPartition, _Looked] = {}

    def __repr__(self) -> str:
        return f"<ShelfSteps on {len(self._looked)} partitions>"

    def forget(self, topic: Topic) -> None:
        """Take notice that a topic is gone."""
        for partition in topic.partitions:
            self._turns.pop(partition.name, None)
            self._looked.pop(partition.name, None)

    def left(self, topic: Topic, number: int) -> Left:
        """Return how many dead letters ever left a partition."""
        return _left(self._shelves.at(topic, topic.partition(number)))

    async def count(self, topic: Topic, number: int) -> ShelfCount:
        """Return how the dead letters of a partition stand, behind the step under way.

        What was cut short by then is counted as what it turns out to be.
        """
        async with self._turn(topic, number):
            shelf = self._shelves.at(topic, topic.partition(number))
            await self._mover.look(shelf)
            shelf.trim()
            return ShelfCount(shelf.partition.visible_offset, shelf.depth, _left(shelf))

    async def trial(self, topic: Topic, numbers: Sequence[int], order: Order) -> Trial:
        """Return what a job would do to the letters of partitions, and do nothing."""
        shelves = [self._shelves.at(topic, topic.partition(one)) for one in numbers]
        search = Search(shelves, Filter())
        matched = unmatched = skipped = 0
        sample: list[DeadLetterRow] = []
        async for letter in search.letters():
            if not order.filter.matches(letter.message, letter.story):
                unmatched += 1
            elif order.kind is Kind.REDRIVE and letter.redrives >= order.max_redrives:
                skipped += 1
            else:
                matched += 1
                if len(sample) < SAMPLE_LETTERS:
                    sample.append(letter)
        return Trial(matched, unmatched, skipped, sample, search.is_cut)

    async def step(self, topic: Topic, number: int, ask: StepAsk) -> StepDone:
        """Work on one batch of a shelf."""
        async with self._turn(topic, number):
            shelf = self._shelves.at(topic, topic.partition(number))
            try:
                unknown = await self._look(shelf, ask)
                return await self._step(shelf, ask, unknown)
            except BaseException:
                self._looked.pop(shelf.name, None)
                raise

    def _turn(self, topic: Topic, number: int) -> asyncio.Lock:
        place = topic.partition(number).name
        turn = self._turns.get(place)
        if turn is None:
            turn = self._turns[place] = asyncio.Lock()
        return turn

    async def _look(self, shelf: DeadLetterIndex, ask: StepAsk) -> BitMap64:
        """Find out what became of what was begun before; return what is still not known."""
        known = self._looked.get(shelf.name)
        if known is None or known.shelf is not shelf or known.job != ask.job:
            known = _Looked(shelf, ask.job, await self._mover.look(shelf))
            self._looked[shelf.name] = known
        return known.unknown

    async def _step(self, shelf: DeadLetterIndex, ask: StepAsk, unknown: BitMap64) -> StepDone:
        start, end = ask.start, ask.end
        partition = shelf.partition
        if partition.visible_offset < min(end, partition.log.end_offset):
            # A new leader shows messages when it knows that they are committed.
            raise LeaderNotAvailableError(f"{shelf.name} is not committed up to {end} yet")
        left = shelf.left(from_offset=start, end_offset=end) - unknown
        if not left:
            if shelf.left(from_offset=start, end_offset=end):
                raise StorageFailedError("it is not known whether the last ones were written")
            self._looked.pop(shelf.name, None)
            return StepDone(end, _left(shelf), is_over=True)
        wanted = first_of(left, MOVE_MESSAGES_MAX)
        plucked = await read_offsets(shelf.partition, wanted, end_offset=Offset(end))
        if plucked.gone:
            await shelf.drop(plucked.gone, GONE)
        read = [
            DeadLetterRow(message, read_story(message.headers))
            for message in plucked.messages
            if not shelf.ledger.is_settled(message.offset)
        ]
        batch = _choose(ask, read, Offset(min(plucked.next_offset, wanted.max() + 1)))
        if batch.letters:
            await self._take(shelf, ask.order, batch.letters)
        if shelf.host.closed is not None:
            # What went is in the state of the next leader; what did not is still to go.
            raise type(shelf.host.closed)(*shelf.host.closed.args)
        return StepDone(
            batch.next_offset,
            _left(shelf),
            len(batch.letters),
            batch.unmatched,
            batch.skipped,
            batch.is_paced,
        )

    async def _take(
        self, shelf: DeadLetterIndex, order: Order, letters: Sequence[DeadLetterRow]
    ) -> None:
        match order.kind:
            case Kind.PURGE:
                offsets = BitMap64([letter.message.offset for letter in letters])
                await shelf.drop(offsets, SKIPPED)
            case Kind.REDRIVE:
                await self._send_back(shelf, order, letters)

    async def _send_back(
        self, shelf: DeadLetterIndex, order: Order, letters: Sequence[DeadLetterRow]
    ) -> None:
        offsets = BitMap64([letter.message.offset for letter in letters])
        callers = await find_callers(shelf.partition, offsets)
        target = self._topics.topic(order.target)
        source = source_of(shelf.name.topic, self._names)
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
                TopicPartition(
                    target.record.name, _place(letter, order.target, source=source, count=count)
                ),
            )
            for letter in letters
        ]
        delivered = await self._mover.move(shelf, parcels, reason=Kind.REDRIVE)
        self._meter.redriven(target.record.name, len(delivered.offsets))
        for error in delivered.errors:
            raise error


def _left(shelf: DeadLetterIndex) -> Left:
    return {kind: shelf.settled(outcome) for kind, outcome in OUTCOMES.items()}


def _choose(ask: StepAsk, letters: Sequence[DeadLetterRow], next_offset: Offset) -> _Batch:
    """Return what goes now: what is meant, as far as the pace and the size of a batch allow."""
    batch, order = _Batch(), ask.order
    batch.next_offset = next_offset
    size = 0
    for letter in letters:
        if not order.filter.matches(letter.message, letter.story):
            batch.unmatched += 1
            continue
        if order.kind is Kind.REDRIVE and letter.redrives >= order.max_redrives:
            batch.skipped += 1
            continue
        size += len(letter.message.value or b"")
        batch.is_paced = len(batch.letters) >= ask.allowed
        if batch.is_paced or (batch.letters and size > MOVE_BYTES_MAX):
            batch.next_offset = letter.message.offset
            break
        batch.letters.append(letter)
    return batch


def _place(letter: DeadLetterRow, target: str, *, source: str, count: int) -> PartitionId:
    """Return the partition of a letter: the one it came from, that of its key, or in turn."""
    message, story = letter
    # A story without a reason is none of ours; one without a topic had no room for it.
    origin = story.original_topic or (source if story.reason else "")
    if origin == target and story.original_partition < count:
        return PartitionId(story.original_partition)
    if message.key is not None:
        return partition_of_key(message.key, count)
    return PartitionId(message.offset % count)
