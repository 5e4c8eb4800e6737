"""What a crash or a move left of transactions: told of, taken up again or aborted."""

from collections.abc import Mapping

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Offset, TopicName
from goqueue.core.delivery import events as delivery
from goqueue.core.record.batch import batch_fields
from goqueue.core.record.control import Control
from goqueue.core.record.frame import read_header
from goqueue.core.tx.events import Confirmed, Told
from goqueue.core.tx.numbers import number_after
from goqueue.core.tx.producer import ABORT, COMMIT, TxProducer
from goqueue.core.tx.states import PREPARED, TxState
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.tx.finisher import unfinished_ends
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.markers import End, MarkerWriter
from goqueue.runtime.tx.roster import Roster

log = get_logger("goqueue.transactions")


class Strays:
    """Finds what belongs to transactions and what the coordinator did not hear of."""

    def __init__(
        self,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        roster: Roster,
        teller: MarkerWriter,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._consume = consume
        self._roster = roster
        self._teller = teller
        self._clock = clock
        self.are_left = False
        """An orphan may be there, or could not be aborted: it is to be looked for."""

    def __repr__(self) -> str:
        return f"<Strays{', some left' if self.are_left else ''}>"

    def recover(self) -> None:
        """Tell of what was decided, and end what nobody decided, before anybody is served.

        What was decided is on the disk by now, like everything else that was read.
        """
        for hosted in self._roster:
            try:
                self._recover(hosted)
            except GoQueueError as error:
                name = hosted.producer.name
                log.warning(LogEvent.TX_END_NOT_PERSISTED, id=name, error=error.message)
        self.abort()

    def _recover(self, hosted: HostedTxProducer) -> None:
        producer = hosted.producer
        self._teller.tell(*unfinished_ends(producer))
        if producer.ends and not self._look_for(producer):
            hosted.commit(producer.overrule().events)
        elif producer.state is TxState.PREPARE_COMMIT:
            producer.apply(Confirmed())
            if not producer.adopted:
                self._teller.tell(End.latest(producer))
                producer.apply(Told())
                hosted.is_untold = False

    def _look_for(self, producer: TxProducer) -> bool:
        """Return True if everything of a commit in doubt reached the disk, by its last messages."""
        for topic, number, offset in producer.ends:
            known = self._topics.get(TopicName(topic))
            if known is not None and number < len(known.partitions):
                partition = known.partitions[number]
                if not is_there(partition, Offset(offset), producer.number):
                    return False
        return True

    def abort(self) -> None:
        """Abort transactions the coordinator does not know: nobody was told of their messages.

        Of those it knows, it learns where a crash kept it from hearing that they had been there.
        It knows the one that follows a producer's latest, too: only that it began was lost.
        """
        self.are_left = False
        known: dict[int, HostedTxProducer] = {}
        for hosted in self._roster:
            producer = hosted.producer
            if producer.number and producer.state is not TxState.DEAD:
                known[number_after(producer.number)] = hosted
            if producer.state is TxState.ONGOING or producer.state in PREPARED:
                known[producer.number] = hosted
            known.update(dict.fromkeys(producer.unfinished, hosted))
        try:
            self._abort_stray_messages(known)
            self._abort_stray_holds(known)
        except GoQueueError as error:
            self.are_left = True
            log.warning(LogEvent.TX_ORPHANS_NOT_ABORTED, error=error.message)

    def _abort_stray_messages(self, known: Mapping[int, HostedTxProducer]) -> None:
        ended = {
            hosted.producer.number
            for hosted in self._roster
            if hosted.producer.state is TxState.COMPLETE_COMMIT
        }
        for topic in self._topics.values():
            for partition in topic.partitions:
                place = (str(topic.record.name), int(partition.name.partition))
                for number in partition.queue.tx:
                    hosted = known.get(number)
                    if hosted is None:
                        self._end_stray(partition, number, is_commit=number in ended)
                    elif self._takes_up(hosted, number):
                        hosted.commit(hosted.producer.learn_partition(place).events)

    def _end_stray(self, partition: Partition, number: int, *, is_commit: bool) -> None:
        """End an orphan transaction: it was never decided, or its end is damaged."""
        log.warning(
            LogEvent.TX_OUTCOME_UNKNOWN,
            topic=partition.name.topic,
            partition=partition.name.partition,
            outcome=COMMIT if is_commit else ABORT,
            first_offset=partition.queue.tx.first_offset_of(number),
            messages=partition.queue.tx.count(number),
        )
        self._teller.write(partition, Control(number, is_commit=is_commit))

    def _abort_stray_holds(self, known: Mapping[int, HostedTxProducer]) -> None:
        for ledger in self._consume.ledgers:
            name = ledger.partition.name
            for number in list(ledger.ledger.holds):
                hosted = known.get(number)
                if hosted is None:
                    ledger.commit([delivery.HoldEnded(transaction=number, is_commit=False)])
                elif self._takes_up(hosted, number):
                    place = (str(name.topic), int(name.partition))
                    hosted.commit(hosted.producer.learn_hold(ledger.group, place).events)

    def _takes_up(self, hosted: HostedTxProducer, number: int) -> bool:
        """Return True if a transaction is open; the producer's next one begins again for that.

        Its client may come back for it, and what the logs have of it is not sent a second time.
        """
        producer = hosted.producer
        if number == number_after(producer.number):
            if not producer.may_begin or producer.is_closing:
                # The one before has still to be told of: nothing of this one may be aborted.
                self.are_left = True
                return False
            hosted.commit(producer.resume(number, at_ms=self._clock.now_ms()).events)
            hosted.start_clock(self._clock.monotonic_ms())
        return hosted.has_open(number)


def is_there(partition: Partition, offset: Offset, number: int) -> bool:
    """Return True if a message of a transaction is in the log; what is gone since was there."""
    log = partition.log
    if offset < log.start_offset:
        return True
    lost = log.recovery.lost_tail
    if offset >= (log.end_offset if lost is None else lost.start_offset):
        return False
    piece = partition.reader.read(offset, end_offset=log.end_offset, bytes_max=1)
    if not piece.frames:
        # It cannot be read: damage is reported, and undoes nothing.
        return True
    header = read_header(piece.frames)
    if header.is_hole or not header.is_batch:
        return header.is_hole
    return batch_fields(header, piece.frames[: header.size]).transaction == number
