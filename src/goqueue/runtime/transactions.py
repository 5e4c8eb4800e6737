"""Transactions: their coordinator, from the first message to the last mark.

A transaction is decided in ``__transactions`` and then carried out: a control frame in every
partition it wrote to, the offsets and acks of its groups, and the note that all is done. Whatever
a crash leaves of this is finished at the next start; what was never decided is aborted.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    InvalidTransactionStateError,
    OverloadedError,
    ProducerFencedError,
    ShuttingDownError,
    TopicNotFoundError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, Offset, ProducerId, TopicName, TopicPartition
from goqueue.base.limits import (
    TX_IDLE_MS_MAX,
    TX_PRODUCERS_MAX,
    TX_SESSION_MS,
    TX_TIMEOUT_MS,
    TX_TIMEOUT_MS_MAX,
)
from goqueue.base.names import check_name
from goqueue.base.units import SECOND_MS
from goqueue.core.delivery import settle
from goqueue.core.delivery.settle import Claim, Settled
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.events import Event, Place
from goqueue.core.tx.producer import ABORT, COMMIT, Identity, TxProducer
from goqueue.core.tx.states import PREPARED
from goqueue.observability.logging import get_logger
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.consume import Consumption, Settlement
from goqueue.runtime.partition import Published
from goqueue.runtime.state_log import StateLog
from goqueue.runtime.topic import Ticket, Topic
from goqueue.runtime.tx_endings import Endings, look_at
from goqueue.runtime.tx_producer import KEY_PREFIX, HostedTxProducer

SWEEP_INTERVAL_MS: Final = SECOND_MS
EPOCH_MAX: Final = 2**16 - 1

log = get_logger("goqueue.transactions")


class Life(NamedTuple):
    """What a producer is told when it begins a life."""

    stamp: ProducerStamp
    token: str
    """What the last commit under this id left."""


class Producers(NamedTuple):
    """How producers get their identities."""

    init: Callable[[], ProducerStamp]
    renew: Callable[..., ProducerStamp]
    bind: Callable[[int], None]
    """Says who publishes in transactions only."""


class Transactions:
    """Coordinates every transaction of a broker. Lives in its event loop."""

    def __init__(
        self,
        state: StateLog,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        producers: Producers,
        *,
        clock: Clock,
        metrics: TxMetrics,
        number: Callable[[], int] = lambda: secrets.randbits(63) | 1,
    ) -> None:
        self._state = state
        self._topics = topics
        self._consume = consume
        self._identities = producers
        self._clock = clock
        self.metrics = metrics
        self._number = number
        self._producers: dict[str, HostedTxProducer] = {}
        self._names: dict[int, str] = {}
        self._endings = Endings(topics, consume, clock)
        self._sweeping: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Transactions of {len(self._producers)} producers>"

    def __iter__(self) -> Iterator[TxProducer]:
        return iter([self._producers[name].producer for name in sorted(self._producers)])

    # Life.

    def recover(self) -> None:
        """Bring back the producers of an earlier life and end what nobody decided."""
        now_ms = self._clock.monotonic_ms()
        for key in self._state.recovered(KEY_PREFIX):
            found: list[Any] = self._state.replay(key, Event)
            producer = TxProducer(key.removeprefix(KEY_PREFIX))
            for event in found:
                producer.apply(event)
            producer.start_clock(now_ms)
            hosted = HostedTxProducer(producer, self._state)
            self._producers[producer.name] = hosted
            self._names[producer.producer_id] = producer.name
            self._identities.bind(producer.producer_id)
        self._endings.abort_strays(self._producers.values())

    def start(self) -> None:
        """Finish what was decided before, and watch the time."""
        loop = asyncio.get_running_loop()
        for hosted in self._producers.values():
            if hosted.producer.state in PREPARED:
                self._endings.carry_out_later(hosted, pause_seconds=0)
        self._sweeping = loop.create_task(self._sweep_on())

    async def stop(self) -> None:
        """End."""
        self._is_stopped = self._endings.is_stopped = True
        tasks = [hosted.ending for hosted in self._producers.values() if hosted.ending is not None]
        if self._sweeping is not None:
            self._sweeping.cancel()
            tasks.append(self._sweeping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What producers ask for.

    async def init(
        self, name: object, *, timeout_ms: int = TX_TIMEOUT_MS, who: Identity | None = None
    ) -> Life:
        """Begin a life of an id: earlier ones are fenced, and what they left open is aborted.

        Who asks as the latest life gets the next one, and the same again if the answer got lost.
        """
        checked = check_name(name, field="transactional_id")
        if not 1 <= timeout_ms <= TX_TIMEOUT_MS_MAX:
            raise InvalidRequestError(
                f"transaction_timeout_ms: {timeout_ms} is not between 1 and {TX_TIMEOUT_MS_MAX}"
            )
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        hosted = self._producers.get(checked)
        if hosted is None:
            if len(self._producers) >= TX_PRODUCERS_MAX:
                raise OverloadedError(f"there are {TX_PRODUCERS_MAX} transactional ids")
            hosted = self._producers[checked] = HostedTxProducer(TxProducer(checked), self._state)
        async with hosted.turn:
            producer = hosted.producer
            if who is not None:
                if who == hosted.renewed_from and producer.number == 0:
                    return Life(producer.stamp, producer.token)
                producer.check_life(who)
            stamp = self._next_life(producer)
            hosted.commit(producer.give_up("a newer instance").events)
            if producer.state in PREPARED:
                await self._endings.carry_out(hosted)
            decision = producer.init(
                producer_id=stamp.producer_id,
                epoch=stamp.epoch,
                timeout_ms=timeout_ms,
                at_ms=self._clock.now_ms(),
            )
            hosted.commit(decision.events)
            producer.touch(self._clock.monotonic_ms())
            self._names[stamp.producer_id] = checked
            self._identities.bind(stamp.producer_id)
            hosted.renewed_from = who
            await hosted.durable()
        return Life(stamp, producer.token)

    def _next_life(self, producer: TxProducer) -> ProducerStamp:
        # From here on nobody adds to what is about to be aborted, whatever becomes of this life.
        producer.is_closing = True
        if producer.producer_id and producer.epoch < EPOCH_MAX:
            # A life that was begun and never told of leaves the id behind; another one will do.
            with contextlib.suppress(ProducerFencedError, UnknownProducerError):
                return self._identities.renew(
                    producer_id=ProducerId(producer.producer_id), epoch=Epoch(producer.epoch)
                )
        return self._identities.init()

    async def begin(self, who: Identity, name: str | None = None) -> int:
        """Begin a transaction; return its number."""
        hosted = self._find(who, name)
        number = self._number()
        hosted.commit(hosted.producer.begin(who, number=number, at_ms=self._clock.now_ms()).events)
        hosted.producer.start_clock(self._clock.monotonic_ms())
        self.metrics.started.inc()
        return number

    async def publish(
        self, who: Identity, topic: str, parts: Sequence[tuple[int, memoryview]]
    ) -> list[Published | GoQueueError]:
        """Publish frames of the open transaction; answer when they and their place are durable."""
        hosted = self._find(who)
        known = self._topic(topic)
        hosted.producer.check_open(who)
        places = [(topic, known.partition(number).name.partition) for number, _ in parts]
        hosted.commit(hosted.producer.add_partitions(who, places).events)
        hosted.producer.touch(self._clock.monotonic_ms())
        noted = hosted.durable()
        noted.add_done_callback(look_at)
        producer = hosted.producer
        ticket = Ticket(producer.number, partial(producer.check_open, who))
        hosted.publishing += 1
        try:
            outcomes = await known.publish_all(parts, ticket=ticket)
            await noted
        finally:
            hosted.publishing -= 1
        return outcomes

    async def add_partitions(
        self, who: Identity, places: Sequence[Place], name: str | None = None
    ) -> None:
        """Let the open transaction write to partitions."""
        hosted = self._find(who, name)
        for topic, partition in places:
            self._topic(topic).partition(partition)
        hosted.commit(hosted.producer.add_partitions(who, places).events)
        hosted.producer.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def add_offsets(
        self, who: Identity, group: str, offsets: Mapping[TopicPartition, Offset]
    ) -> None:
        """Let the open transaction commit offsets of a group."""
        hosted = self._find(who)
        self._consume.check_offsets(group, offsets)
        listed = [(name.topic, int(name.partition), int(at)) for name, at in offsets.items()]
        hosted.commit(hosted.producer.add_offsets(who, group, listed).events)
        hosted.producer.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def hold(self, who: Identity, group: str, parts: Sequence[Settlement]) -> list[Settled]:
        """Let the open transaction ack what a group has leased; what is not leased is refused."""
        hosted = self._find(who)
        hosted.producer.check_open(who)
        number = hosted.producer.number
        outcomes: list[Settled] = []
        places = [(part.partition.topic, int(part.partition.partition)) for part in parts]
        # The coordinator knows first: a hold it does not know would be ended at the next start.
        hosted.commit(hosted.producer.add_holds(who, group, places).events)
        for part in parts:
            ledger = self._consume.ledgers.of(group).get(part.partition)
            if ledger is None:
                outcomes.append(Settled(self._consume.refuse(part)))
                continue
            claim = Claim(part.nonce, part.offsets)
            now_ms = self._clock.monotonic_ms()
            decision = settle.hold(ledger.ledger, claim, number, now_ms=now_ms)
            ledger.commit(decision.events)
            outcomes.append(decision.reply)
        hosted.producer.touch(self._clock.monotonic_ms())
        await asyncio.gather(hosted.durable(), self._consume.durable(group))
        return outcomes

    async def end(
        self, who: Identity, outcome: str, *, token: str = "", name: str | None = None
    ) -> None:
        """Commit or abort; answer when it is decided and carried out. May be asked again."""
        hosted = self._find(who, name)
        if outcome == COMMIT and hosted.publishing:
            raise InvalidTransactionStateError(
                "messages of the transaction are still being published; wait for their acks"
            )
        decision = hosted.producer.prepare(who, outcome, token=token)
        started_ms = self._clock.monotonic_ms()
        hosted.commit(decision.events)
        hosted.producer.touch(started_ms)
        if hosted.producer.state in PREPARED:
            await self._endings.carry_out(hosted)
        if not decision.reply:
            self.metrics.ended(outcome, seconds=(self._clock.monotonic_ms() - started_ms) / 1_000)

    def heartbeat(self, who: Identity, name: str | None = None) -> None:
        """Note that a producer is there."""
        hosted = self._find(who, name)
        hosted.producer.check_life(who)
        hosted.producer.touch(self._clock.monotonic_ms())

    async def abort_named(self, name: str) -> None:
        """Abort the open transaction of an id, on an operator's word."""
        hosted = self._producers.get(name)
        if hosted is None:
            raise UnknownProducerError(f"no producer has the transactional id {name[:249]!a}")
        hosted.commit(hosted.producer.give_up("an operator").events)
        if hosted.producer.state in PREPARED:
            await self._endings.carry_out(hosted)

    def get(self, name: str) -> TxProducer:
        """Return what is known of an id."""
        hosted = self._producers.get(name)
        if hosted is None:
            raise UnknownProducerError(f"no producer has the transactional id {name[:249]!a}")
        return hosted.producer

    def find(self, who: Identity, name: str | None = None) -> TxProducer:
        """Return what is known of who speaks, or raise if that is nothing."""
        return self._find(who, name).producer

    def _find(self, who: Identity, name: str | None = None) -> HostedTxProducer:
        known = self._names.get(who.producer_id)
        hosted = None if known is None else self._producers.get(known)
        if hosted is None or (name is not None and name != known):
            raise UnknownProducerError(f"producer {who.producer_id} is not transactional here")
        return hosted

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(TopicName(name))
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        return topic

    # What time brings.

    def sweep(self) -> None:
        """Abort what was open for too long or whose producer fell silent; forget who is gone."""
        now_ms = self._clock.monotonic_ms()
        if self._endings.has_strays:
            self._endings.abort_strays(self._producers.values())
        for hosted in list(self._producers.values()):
            producer = hosted.producer
            deadline_ms = producer.deadline_ms()
            silent_ms = producer.silent_ms(now_ms)
            try:
                if deadline_ms is not None and now_ms >= deadline_ms:
                    self._give_up(hosted, "its time was over")
                elif deadline_ms is not None and silent_ms >= TX_SESSION_MS:
                    self._give_up(hosted, "its producer fell silent")
                elif producer.state in PREPARED:
                    self._endings.carry_out_later(hosted, pause_seconds=0)
                elif silent_ms >= TX_IDLE_MS_MAX and deadline_ms is None:
                    self._forget(hosted)
            except GoQueueError as error:
                log.warning("a transaction is left open", id=producer.name, error=error.message)

    def _give_up(self, hosted: HostedTxProducer, reason: str) -> None:
        hosted.commit(hosted.producer.give_up(reason).events)
        log.info("transaction aborted", id=hosted.producer.name, reason=reason)
        self.metrics.ended(ABORT, seconds=0)
        self._endings.carry_out_later(hosted, pause_seconds=0)

    def _forget(self, hosted: HostedTxProducer) -> None:
        del self._producers[hosted.producer.name]
        self._names.pop(hosted.producer.producer_id, None)
        hosted.forget().add_done_callback(look_at)

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_MS / 1_000)
            try:
                self.sweep()
            except Exception:
                log.exception("a sweep of the transactions failed")
