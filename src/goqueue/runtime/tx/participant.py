"""A leader's part in transactions of a cluster: it takes their messages and acks, and their ends.

Each transaction is admitted by its coordinator before it leaves anything here. A mark ends it: a
control frame in the partition, what ledgers hold is settled or given back, offsets are committed.
Marks may come twice; those that have it already change nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from goqueue.base.errors import (
    GoQueueError,
    NotLeaderError,
    PartitionNotFoundError,
    StaleEpochError,
    TopicNotFoundError,
)
from goqueue.base.grant import Grant
from goqueue.base.ids import Epoch, PartitionId, ProducerId, TopicName, TopicPartition
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.core.delivery import events as delivery
from goqueue.core.delivery.settle import Settled
from goqueue.core.record.control import Control
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.producer import Identity
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.ticket import Ticket
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.tx.admissions import Admissions
from goqueue.runtime.tx.holds import hold_all, ledger_of
from goqueue.runtime.tx.markers import Author, MarkerWriter, all_synced
from goqueue.runtime.tx.tx_link import TxLink
from goqueue.wire.calls import Failure
from goqueue.wire.tx_peer_calls import (
    NO_OFFSET,
    MarkKind,
    NotMarked,
    TxMark,
    TxMarked,
    TxMarks,
)

Waits = list[asyncio.Future[None]]


class Participant:
    """The partitions led by this node, as transactions see them."""

    def __init__(
        self,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        clock: Clock,
        *,
        link: TxLink,
        writer: MarkerWriter,
    ) -> None:
        self._topics = topics
        self._consume = consume
        self._clock = clock
        self._link = link
        self._writer = writer
        self.admissions = Admissions(link, topics)
        self._epochs: dict[int, int] = {}
        """The newest epoch of each coordinator that was heard of."""

    def __repr__(self) -> str:
        return f"<Participant with {self.admissions!r}>"

    # What clients ask for.

    async def publish(
        self, grant: Grant, who: Identity, topic: str, parts: Sequence[tuple[int, memoryview]]
    ) -> list[Published | GoQueueError]:
        """Append messages of a transaction, which its coordinator knows of first."""
        known = self._topics.get(TopicName(topic))
        if known is None:
            raise TopicNotFoundError(f"topic not found: {ascii(topic)[1:-1][:249]}")
        targets = dict.fromkeys(known.partition(number) for number, _ in parts)
        refusal: GoQueueError | None = None
        try:
            await self.admissions.enter(who, [one for one in targets if _is_led(one)])
        except GoQueueError as error:
            if error.retryable:
                raise
            # A repeat of what is there already is answered all the same.
            refusal = error
        check = partial(self._check, who, refusal)
        ticket = Ticket(who.number or 0, check, _stamp_of(who))
        return await known.acknowledge(await known.append_all(grant, parts, ticket=ticket))

    def _check(self, who: Identity, refusal: GoQueueError | None, partition: Partition) -> None:
        if refusal is not None:
            raise type(refusal)(*refusal.args)
        self.admissions.check(who, partition)

    async def hold(self, who: Identity, group: str, parts: Sequence[Settlement]) -> list[Settled]:
        """Keep messages that a group has leased for a transaction; refuse what is not leased."""
        partitions = list(dict.fromkeys(self._partition(part.partition) for part in parts))
        if not all(map(_is_led, partitions)):
            raise NotLeaderError("this node does not lead all of the partitions")
        await self.admissions.enter(who, partitions, group)
        for partition in partitions:
            self.admissions.check(who, partition, group)
            # All of them are known here, before anything is held in one.
            ledger_of(self._consume, group, partition.name)
        assert who.number, "admitted"
        outcomes, ledgers = hold_all(self._consume, self._clock, who.number, group, parts)
        await all_synced([ledger.durable() for ledger in ledgers])
        return outcomes

    def _partition(self, name: TopicPartition) -> Partition:
        topic = self._topics.get(name.topic)
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {name.topic}")
        return topic.partition(name.partition)

    # What coordinators ask for.

    async def mark(self, call: TxMarks) -> TxMarked:
        """Take what became of a transaction; answer when all of it is committed here."""
        self._check_epoch(call)
        if call.kind is not MarkKind.STORE:
            # First: nothing is appended behind its end, whatever was admitted before.
            self.admissions.end(call.number)
        failures: list[NotMarked] = []
        waits: list[tuple[int, Waits]] = []
        for row, mark in enumerate(call.marks):
            try:
                waits.append((row, self._take(call, mark)))
            except GoQueueError as error:
                failures.append(_failed(row, error))
        for row, some in waits:
            try:
                await all_synced(some)
            except GoQueueError as error:
                failures.append(_failed(row, error))
        return TxMarked(failures)

    def _check_epoch(self, call: TxMarks) -> None:
        """Refuse a coordinator that is none any more: another node decides by now."""
        known = max(
            self._epochs.get(call.coordinator, 0), self._link.coordinator(call.coordinator).epoch
        )
        if call.epoch < known:
            raise StaleEpochError(
                f"coordinator {call.coordinator} of epoch {call.epoch} was replaced in {known}"
            )
        self._epochs[call.coordinator] = call.epoch

    def _take(self, call: TxMarks, mark: TxMark) -> Waits:
        """Write what follows from a mark; return what is done when it is committed."""
        name = TopicPartition(TopicName(mark.topic), PartitionId(mark.partition))
        try:
            partition = self._partition(name)
        except (TopicNotFoundError, PartitionNotFoundError):
            # Gone since, and everything in it.
            return []
        if not _is_led(partition):
            raise NotLeaderError(f"this node does not lead {name}")
        if mark.group:
            return self._settle(call, mark, partition)
        if call.kind is not MarkKind.STORE and call.number in partition.queue.tx:
            control = Control(call.number, is_commit=call.kind is MarkKind.COMMIT)
            self._writer.write(partition, control, _author_of(call))
        if partition.committed_offset >= partition.log.end_offset:
            return []
        # Also what an earlier leader wrote: it counts when it is committed.
        return [partition.committed()]

    def _settle(self, call: TxMarks, mark: TxMark, partition: Partition) -> Waits:
        group, name = mark.group, partition.name
        if mark.offset != NO_OFFSET and call.kind is MarkKind.COMMIT:
            # A log that lost its end has fewer messages than the transaction has seen.
            offset = min(mark.offset, partition.log.end_offset)
            self._consume.settle_offsets(group, [(name.topic, name.partition, offset)])
        ledger = ledger_of(self._consume, group, name)
        if ledger is None:
            return []
        if mark.offset == NO_OFFSET and call.number in ledger.ledger.holds:
            is_commit = call.kind is MarkKind.COMMIT
            ended = delivery.HoldEnded(transaction=call.number, is_commit=is_commit)
            ledger.commit([ended])
        return [ledger.durable()]


def _is_led(partition: Partition) -> bool:
    return partition.leadership.role is Role.LEADER


def _failed(row: int, error: GoQueueError) -> NotMarked:
    return NotMarked(row, Failure(error.code, error.message, error.retryable))


def _stamp_of(who: Identity) -> ProducerStamp:
    return ProducerStamp(ProducerId(who.producer_id), Epoch(who.epoch), SequenceNumber(0))


def _author_of(call: TxMarks) -> Author:
    return Author(call.transactional_id, call.producer_id, call.producer_epoch)
