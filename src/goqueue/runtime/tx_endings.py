"""The end of transactions: everybody who has something of one is told how it ended.

What was decided is carried out whoever asked for it; where that fails it is tried again until it
succeeds, because the outcome stands.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.units import US_PER_MS
from goqueue.core.delivery import events as delivery
from goqueue.core.record.control import Control, control_frame
from goqueue.core.tx.producer import COMMIT, TxProducer
from goqueue.core.tx.states import PREPARED, State
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.consume import Consumption
from goqueue.runtime.partition import Partition
from goqueue.runtime.topic import Topic
from goqueue.runtime.tx_producer import HostedTxProducer

RETRY_SECONDS: Final = 1.0

log = get_logger("goqueue.transactions")


class Endings:
    """Carries out what was decided."""

    def __init__(
        self, topics: Mapping[TopicName, Topic], consume: Consumption, clock: Clock
    ) -> None:
        self._topics = topics
        self._consume = consume
        self._clock = clock
        self.is_stopped = False
        self.has_strays = False
        """Something of nobody could not be aborted and is to be looked at again."""

    def __repr__(self) -> str:
        return f"<Endings{' with strays' if self.has_strays else ''}>"

    # Strays.

    def abort_strays(self, producers: Iterable[HostedTxProducer]) -> None:
        """Abort transactions the coordinator does not know: nobody was told of their messages.

        Of those it knows, it learns where a crash kept it from hearing that they had been there.
        """
        self.has_strays = False
        known = {
            hosted.producer.number: hosted
            for hosted in producers
            if hosted.producer.state is State.ONGOING or hosted.producer.state in PREPARED
        }
        try:
            self._abort_stray_messages(known)
            self._abort_stray_holds(known)
        except GoQueueError as error:
            self.has_strays = True
            log.warning("transactions of nobody are aborted later", error=error.message)

    def _abort_stray_messages(self, known: Mapping[int, HostedTxProducer]) -> None:
        for topic in self._topics.values():
            for partition in topic.partitions:
                place = (str(topic.record.name), int(partition.name.partition))
                for number in partition.queue.tx:
                    hosted = known.get(number)
                    if hosted is None:
                        self._mark(partition, Control(number, is_commit=False), TxProducer("lost"))
                    elif hosted.producer.state is State.ONGOING:
                        hosted.commit(hosted.producer.learn_partition(place).events)

    def _abort_stray_holds(self, known: Mapping[int, HostedTxProducer]) -> None:
        for ledger in self._consume.ledgers:
            name = ledger.partition.name
            for number in list(ledger.ledger.holds):
                hosted = known.get(number)
                if hosted is None:
                    ledger.commit([delivery.HoldEnded(transaction=number, is_commit=False)])
                elif hosted.producer.state is State.ONGOING:
                    place = (str(name.topic), int(name.partition))
                    hosted.commit(hosted.producer.learn_hold(ledger.group, place).events)

    # Carrying out.

    async def carry_out(self, hosted: HostedTxProducer) -> None:
        """Tell everybody of the end, also when whoever asked for it is gone meanwhile."""
        task = asyncio.get_running_loop().create_task(self._tell_once(hosted))
        task.add_done_callback(look_at)
        await asyncio.shield(task)

    async def _tell_once(self, hosted: HostedTxProducer) -> None:
        async with hosted.end_turn:
            if hosted.producer.state not in PREPARED:
                return
            try:
                await hosted.durable()
                await self._tell_all(hosted.producer)
                hosted.commit(hosted.producer.complete().events)
            except GoQueueError:
                self.carry_out_later(hosted)
                raise

    def carry_out_later(
        self, hosted: HostedTxProducer, *, pause_seconds: float = RETRY_SECONDS
    ) -> None:
        """Carry out what was decided in a while, unless that is on its way already."""
        if hosted.ending is not None or self.is_stopped:
            return

        async def later() -> None:
            await asyncio.sleep(pause_seconds)
            hosted.ending = None
            await self.carry_out(hosted)

        hosted.ending = asyncio.get_running_loop().create_task(later())
        hosted.ending.add_done_callback(partial(self._look_at_end, hosted))

    def _look_at_end(self, hosted: HostedTxProducer, done: asyncio.Task[None]) -> None:
        if done.cancelled() or done.exception() is None:
            return
        name, error = hosted.producer.name, done.exception()
        log.warning("a transaction is not ended yet", id=name, error=str(error))
        self.carry_out_later(hosted)

    async def _tell_all(self, producer: TxProducer) -> None:
        control = Control(producer.number, is_commit=producer.outcome() == COMMIT)
        waits: list[asyncio.Future[None]] = []
        failure: GoQueueError | None = None
        for topic, number in producer.partitions:
            known = self._topics.get(TopicName(topic))
            if known is None or number >= len(known.partitions):
                continue
            partition = known.partitions[number]
            try:
                if control.number in partition.queue.tx:
                    self._mark(partition, control, producer)
                waits.append(partition.durable())
            except GoQueueError as error:
                # One that cannot hear of it does not keep the others from hearing.
                failure = error
        groups = self._tell_groups(producer, control)
        waits += [self._consume.durable(group) for group in groups]
        for result in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if failure is not None:
            raise failure

    def _tell_groups(self, producer: TxProducer, control: Control) -> set[str]:
        groups: set[str] = set()
        for added in producer.holds:
            for topic, number in added.partitions:
                name = TopicPartition(TopicName(topic), PartitionId(number))
                hosted = self._consume.ledgers.of(added.group).get(name)
                if hosted is not None and control.number in hosted.ledger.holds:
                    hosted.commit(
                        [
                            delivery.HoldEnded(
                                transaction=control.number, is_commit=control.is_commit
                            )
                        ]
                    )
                    groups.add(added.group)
        if control.is_commit:
            for offsets in producer.offsets:
                groups |= self._consume.settle_offsets(offsets.group, offsets.offsets)
        return groups

    def _mark(self, partition: Partition, control: Control, producer: TxProducer) -> None:
        frame = control_frame(
            control,
            name=producer.name,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            timestamp_us=self._clock.now_ms() * US_PER_MS,
        )
        partition.end_transaction(frame, control)


def look_at(done: asyncio.Future[None]) -> None:
    """Look at how something ended that nobody may have waited for."""
    if not done.cancelled():
        done.exception()
