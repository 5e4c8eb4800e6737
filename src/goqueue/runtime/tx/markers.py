"""The participants of transactions that are in this process: partitions, and ledgers of groups.

The end of a transaction is a control frame in every partition and a change in every ledger that
holds something for it. Those that have it already get nothing, so everything may be told twice.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from goqueue.base.errors import DiskFullError, GoQueueError, StorageFailedError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.units import US_PER_MS
from goqueue.core.delivery import events as delivery
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.control import Control, control_frame
from goqueue.core.tx.events import Ending, HoldsAdded, OffsetsAdded, Place
from goqueue.core.tx.producer import COMMIT, TxProducer
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import AtPlace
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.tx.hosted_producer import HostedTxProducer

Sync = Callable[[], asyncio.Future[None]]


def begin_all(syncs: Iterable[Sync]) -> list[asyncio.Future[None]]:
    """Ask for syncs, all of them; one that cannot begin is a future that has failed."""
    begun: list[asyncio.Future[None]] = []
    for sync in syncs:
        try:
            begun.append(sync())
        except GoQueueError as error:
            begun.append(asyncio.get_running_loop().create_future())
            begun[-1].set_exception(error)
    return begun


async def all_synced(syncs: Sequence[asyncio.Future[None]]) -> None:
    """Wait for every sync, then raise the first failure."""
    failure: GoQueueError | None = None
    for sync in syncs:
        try:
            await sync
        except GoQueueError as error:
            failure = failure or error
    if failure is not None:
        raise failure


class Author(NamedTuple):
    """Whose transaction ended: what its control frames say."""

    name: str
    producer_id: int = 0
    epoch: int = 0

    @classmethod
    def of(cls, producer: TxProducer) -> "Author":
        """Return the latest life of a producer."""
        return cls(producer.name, producer.producer_id, producer.epoch)


LOST: Final = Author("lost")
"""Of transactions that no producer has open."""


class End(NamedTuple):
    """One transaction that ended, and all who must hear of it."""

    author: Author
    control: Control
    partitions: Iterable[Place]
    offsets: Sequence[OffsetsAdded]
    holds: Sequence[HoldsAdded]

    @classmethod
    def latest(cls, producer: TxProducer) -> "End":
        """Return the end of the latest transaction."""
        control = Control(producer.number, is_commit=producer.outcome() == COMMIT)
        places = list(producer.partitions)
        return cls(Author.of(producer), control, places, producer.offsets, producer.holds)

    @classmethod
    def before(cls, producer: TxProducer, ending: Ending) -> "End":
        """Return the end of an earlier one, which was committed."""
        control = Control(ending.number, is_commit=True)
        author = Author.of(producer)
        return cls(author, control, ending.partitions, ending.offsets, ending.holds)


class MarkerWriter:
    """Tells partitions and groups, at once or together with others."""

    are_here = True

    def __init__(
        self,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        clock: Clock,
        *,
        make_room: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._consume = consume
        self._clock = clock
        self._make_room = make_room
        self._waiting: list[tuple[End, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<MarkerWriter with {len(self._waiting)} to tell of>"

    # What they have of a transaction.

    def count(self, producer: TxProducer) -> int | None:
        """Return how many messages of the open transaction are in the log."""
        partitions = self.partitions(producer.partitions)
        return sum(partition.queue.tx.count(producer.number) for partition in partitions)

    def unproven(self, producer: TxProducer) -> list[tuple[str, int, int]]:
        """Return the last message in each partition where it is not committed yet."""
        found: list[tuple[str, int, int]] = []
        for partition in self.partitions(producer.partitions):
            last = partition.queue.tx.last_offset_of(producer.number)
            if last is not None and last >= partition.committed_offset:
                found.append((*partition.name, last))
        return found

    async def stored(self, hosted: HostedTxProducer) -> None:
        """Return when all messages of the open transaction that are in the log are on the disk."""
        await all_synced(begin_all(self.syncs(self.unproven(hosted.producer))))

    def syncs(self, ends: Iterable[tuple[str, int, int]]) -> list[Sync]:
        """Return what syncs the partitions of messages."""
        places = [(topic, number) for topic, number, _ in ends]
        return [partition.committed for partition in self.partitions(places)]

    # How it ended.

    async def deliver(
        self, hosted: HostedTxProducer, ends: Sequence[End], told: Callable[[], None]
    ) -> None:
        """Write all markers, call back, and return when they are durable."""
        del hosted
        self.tell(*ends)
        told()
        await all_synced(self.waits(*ends))

    def tell(self, *ends: End) -> None:
        """Write all markers now; raise the first failure once the others are written."""
        for failure in self._tell_all(ends).values():
            raise failure

    def enqueue(self, end: End) -> asyncio.Future[None]:
        """Write all markers soon, with one write to a partition for all that end in it."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._tell_waiting)
        told = loop.create_future()
        self._waiting.append((end, told))
        return told

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            failures = self._tell_all([end for end, _ in waiting])
        except BaseException as error:
            # Whatever this is, every waiter gets an outcome.
            for _, told in waiting:
                if not told.done():
                    told.set_exception(StorageFailedError(f"not everybody was told: {error!r}"))
            raise
        for row, (_, told) in enumerate(waiting):
            if told.done():
                continue
            if row in failures:
                told.set_exception(failures[row])
            else:
                told.set_result(None)

    def _tell_all(self, ends: Sequence[End]) -> dict[int, GoQueueError]:
        """Tell of ends; return why some partition could not hear, by the place of the end."""
        rows_of: dict[Partition, list[int]] = {}
        for row, end in enumerate(ends):
            for partition in self.partitions(end.partitions):
                if end.control.number in partition.queue.tx:
                    rows_of.setdefault(partition, []).append(row)
        failures: dict[int, GoQueueError] = {}
        # One for all partitions: where it lies is said when it is appended.
        told = dict.fromkeys(row for rows in rows_of.values() for row in rows)
        frames = {row: (self._frame(*ends[row][:2]), ends[row].control) for row in told}
        for partition, rows in rows_of.items():
            try:
                self._end(partition, [frames[row] for row in rows])
            except GoQueueError as error:
                # One that cannot hear of it does not keep the others from hearing.
                failures.update(dict.fromkeys(rows, error))
        for row, end in enumerate(ends):
            try:
                self._tell_groups(end)
            except GoQueueError as error:
                failures[row] = error
        return failures

    def _tell_groups(self, end: End) -> None:
        number, is_commit = end.control
        for added in end.holds:
            for topic, partition in added.partitions:
                name = TopicPartition(TopicName(topic), PartitionId(partition))
                hosted = self._consume.ledgers.find(added.group, name)
                if hosted is not None and number in hosted.ledger.holds:
                    hosted.commit([delivery.HoldEnded(transaction=number, is_commit=is_commit)])
        if is_commit:
            for offsets in end.offsets:
                self._consume.settle_offsets(offsets.group, offsets.offsets)

    def write(self, partition: Partition, control: Control, author: Author = LOST) -> None:
        """Write the marker of one transaction in one partition."""
        self._end(partition, [(self._frame(author, control), control)])

    def _end(self, partition: Partition, ends: Sequence[tuple[CheckedFrame, Control]]) -> None:
        """Write ends of transactions, on a full disk with the room that is kept for state."""
        try:
            partition.end_transactions(ends)
        except DiskFullError:
            if not self._make_room():
                raise
            partition.end_transactions(ends)

    def waits(self, *ends: End) -> list[asyncio.Future[None]]:
        """Return what is done when all that was told is durable.

        What a partition lost by a failed sync is never durable: its future has failed.
        """
        touched: dict[str, list[AtPlace]] = {}
        for end in ends:
            for one in end.holds:
                touched.setdefault(one.group, []).extend(_places(one.partitions))
            for some in end.offsets:
                named = [(topic, number) for topic, number, _ in some.offsets]
                touched.setdefault(some.group, []).extend(_places(named))
        unsynced = dict.fromkeys(
            partition
            for end in ends
            for partition in self.partitions(end.partitions)
            if not partition.leadership.is_end_committed(end.control.number)
        )
        syncs: list[Sync] = [partition.committed for partition in unsynced]
        groups = sorted(touched.items())
        return begin_all(syncs + [partial(self._consume.durable, *one) for one in groups])

    def partitions(self, places: Iterable[Place]) -> Iterator[Partition]:
        """Yield the partitions that are there still."""
        for topic, number in places:
            known = self._topics.get(TopicName(topic))
            if known is not None and number < len(known.partitions):
                yield known.partitions[number]

    def _frame(self, author: Author, control: Control) -> CheckedFrame:
        return control_frame(
            control,
            name=author.name,
            producer_id=author.producer_id,
            epoch=author.epoch,
            timestamp_us=self._clock.now_ms() * US_PER_MS,
        )


def _places(named: Iterable[Place]) -> list[AtPlace]:
    return [
        AtPlace(TopicPartition(TopicName(topic), PartitionId(number))) for topic, number in named
    ]
