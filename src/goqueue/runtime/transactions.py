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
    ProducerFencedError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, Offset, ProducerId, TopicName, TopicPartition
from goqueue.base.limits import (
    TX_IDLE_MS_MAX,
    TX_SESSION_MS,
    TX_TIMEOUT_MS,
    TX_TIMEOUT_MS_MAX,
)
from goqueue.base.names import check_name
from goqueue.base.units import MINUTE_MS, SECOND_MS
from goqueue.core.decision import Decision
from goqueue.core.delivery import settle
from goqueue.core.delivery.settle import Claim, Settled
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.events import Event, Place
from goqueue.core.tx.numbers import number_after
from goqueue.core.tx.producer import ABORT, COMMIT, Identity, TxProducer
from goqueue.core.tx.states import PREPARED, State
from goqueue.observability.logging import get_logger
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.consume import Consumption, Settlement
from goqueue.runtime.partition import Published
from goqueue.runtime.state_log import StateLog
from goqueue.runtime.topic import Ticket, Topic
from goqueue.runtime.tx_endings import Endings, look_at
from goqueue.runtime.tx_producer import KEY_PREFIX, HostedTxProducer
from goqueue.runtime.tx_roster import Producers, Roster

SWEEP_INTERVAL_MS: Final = SECOND_MS
REVIEW_INTERVAL_MS: Final = MINUTE_MS
"""How often those who have nothing open are looked at, to forget who is gone."""
UNFINISHED_MAX: Final = 64
"""So many commits of a producer wait for the disks before its next transaction does."""
EPOCH_MAX: Final = 2**16 - 1
STILL_PUBLISHING: Final = (
    "messages of the transaction are still being published; wait for their acks"
)

log = get_logger("goqueue.transactions")


class Last(NamedTuple):
    """How many messages a transaction has with its last ones, and what its commit leaves."""

    messages: int
    token: str = ""


class Life(NamedTuple):
    """What a producer is told when it begins a life."""

    stamp: ProducerStamp
    token: str
    """What the last commit under this id left."""


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
        self._roster = Roster(state, producers)
        self._endings = Endings(topics, consume, self._roster, clock, metrics)
        consume.before_reset = self._endings.finish_group
        self._sweeping: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._next_review_ms = 0

    def __repr__(self) -> str:
        return f"<Transactions of {len(self._roster)} producers>"

    def __iter__(self) -> Iterator[TxProducer]:
        found = (hosted.producer for hosted in self._roster)
        return iter(sorted(found, key=lambda producer: producer.name))

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
            self._roster.add(producer)
        self._roster.recover_families()
        self._endings.recover()

    def start(self) -> None:
        """Finish what was decided before, and watch the time."""
        loop = asyncio.get_running_loop()
        for hosted in list(self._roster.busy.values()):
            if hosted.producer.state in PREPARED or hosted.producer.unfinished:
                self._endings.carry_out_later(hosted, pause_seconds=0)
        self._sweeping = loop.create_task(self._sweep_on())

    async def stop(self) -> None:
        """End."""
        self._is_stopped = True
        await self._endings.stop()
        tasks = [hosted.ending for hosted in self._roster if hosted.ending is not None]
        for hosted in self._roster:
            hosted.set_free()
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
        self._check_serving()
        hosted = self._roster.get_or_make(checked)
        async with hosted.turn:
            producer = hosted.producer
            # What was adopted is not this id's to abort: the new life begins behind it.
            await hosted.free()
            self._check_serving()
            if who is not None:
                if who == hosted.renewed_from and producer.number == 0:
                    return Life(producer.stamp, producer.token)
                producer.check_life(who)
            stamp = self._next_life(producer)
            hosted.commit(producer.give_up("a newer instance").events)
            if producer.state in PREPARED:
                await self._endings.carry_out(hosted)
            await self._endings.finish(hosted)
            decision = producer.init(
                producer_id=stamp.producer_id,
                epoch=stamp.epoch,
                timeout_ms=timeout_ms,
                at_ms=self._clock.now_ms(),
            )
            hosted.commit(decision.events)
            producer.touch(self._clock.monotonic_ms())
            self._roster.identify(producer)
            hosted.renewed_from = who
            await hosted.durable()
        return Life(stamp, producer.token)

    def _check_serving(self) -> None:
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")

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
        hosted = await self._find_rested(who, name)
        number = self._number()
        self._begin(hosted, who, number)
        return number

    def _begin(
        self, hosted: HostedTxProducer, who: Identity, number: int, places: Sequence[Place] = ()
    ) -> None:
        at_ms = self._clock.now_ms()
        decision = hosted.producer.begin(who, number=number, at_ms=at_ms, places=places)
        # With messages it is one record with what follows; a start would begin it again from them.
        (hosted.commit_later if places else hosted.commit)(decision.events)
        hosted.producer.start_clock(self._clock.monotonic_ms())
        self.metrics.started.inc()

    async def _find_rested(self, who: Identity, name: str | None = None) -> HostedTxProducer:
        """Return who speaks, when not too many of their commits are unfinished."""
        hosted = self._roster.find(who, name)
        if len(hosted.producer.unfinished) >= UNFINISHED_MAX:
            await self._endings.finish(hosted)
        return hosted

    async def _enter(
        self, who: Identity, name: str | None = None, *, places: Sequence[Place] = ()
    ) -> HostedTxProducer:
        """Return who speaks, in a transaction: the next one begins with its first request."""
        hosted = await self._find_rested(who, name)
        number = hosted.producer.number
        if number and who.number == number_after(number) and hosted.producer.may_begin:
            self._begin(hosted, who, who.number, places)
        return hosted

    async def publish(
        self, who: Identity, topic: str, parts: Sequence[tuple[int, memoryview]]
    ) -> list[Published | GoQueueError]:
        """Publish frames of the open transaction; answer when they and their place are durable."""
        outcomes, _ = await self.publish_last(who, topic, parts, None)
        return outcomes

    async def publish_last(
        self,
        who: Identity,
        topic: str,
        parts: Sequence[tuple[int, memoryview]],
        last: Last | None,
    ) -> tuple[list[Published | GoQueueError], bool | GoQueueError]:
        """Publish frames, and commit if they are the last; tell of both, the end as ``end`` does.

        What keeps the transaction from being committed takes nothing from the messages.
        """
        self._roster.find(who)
        known = self._topic(topic)
        numbers = dict.fromkeys(known.partition(number).name.partition for number, _ in parts)
        places: list[Place] = [(topic, number) for number in numbers]
        hosted = await self._enter(who, places=places)
        hosted.producer.check_known(who)
        if hosted.producer.state is State.ONGOING:
            hosted.commit(hosted.producer.add_partitions(who, places).events)
        producer = hosted.producer
        producer.touch(self._clock.monotonic_ms())
        ticket = Ticket(producer.number, partial(producer.check_open, who), producer.stamp)
        with hosted.publish():
            with hosted.append():
                appended = await known.append_all(parts, ticket=ticket)
            ended = last is not None and await self._end_behind(who, known, parts, last)
            noted = None if ended is True else hosted.durable()
            if noted is not None:
                # Who is cancelled before it is waited for has heard nothing of it.
                noted.add_done_callback(look_at)
            outcomes = await known.acknowledge(appended)
            if noted is not None:
                await noted
        return outcomes, ended

    async def _end_behind(
        self,
        who: Identity,
        topic: Topic,
        parts: Sequence[tuple[int, memoryview]],
        last: Last,
    ) -> bool | GoQueueError:
        """Commit behind messages that were just appended, in the same step if it can be."""
        try:
            return await self.end(who, COMMIT, token=last.token, messages=last.messages)
        except GoQueueError as error:
            return error
        except BaseException:
            topic.sync_soon(parts)
            raise

    async def add_partitions(
        self, who: Identity, places: Sequence[Place], name: str | None = None
    ) -> None:
        """Let the open transaction write to partitions."""
        hosted = await self._enter(who, name)
        for topic, partition in places:
            self._topic(topic).partition(partition)
        hosted.commit(hosted.producer.add_partitions(who, places).events)
        hosted.producer.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def add_offsets(
        self, who: Identity, group: str, offsets: Mapping[TopicPartition, Offset]
    ) -> None:
        """Let the open transaction commit offsets of a group."""
        hosted = await self._enter(who)
        self._consume.check_offsets(group, offsets)
        listed = [(name.topic, int(name.partition), int(at)) for name, at in offsets.items()]
        hosted.commit(hosted.producer.add_offsets(who, group, listed).events)
        hosted.producer.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def hold(self, who: Identity, group: str, parts: Sequence[Settlement]) -> list[Settled]:
        """Let the open transaction ack what a group has leased; what is not leased is refused."""
        hosted = await self._enter(who)
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

    async def detach(self, who: Identity) -> None:
        """Leave the open transaction to whoever adopts it; it has its whole time again for that."""
        hosted = await self._enter(who)
        decision = hosted.producer.detach(who)
        is_stored = False
        while hosted.publishing or not is_stored:
            # A request of a broken connection is waited for: who sent it has gone on without it.
            await hosted.published()
            # Also where acks do not wait for the disk: its adopter relies on all of it.
            await self._endings.stored(hosted.producer)
            is_stored, decision = True, hosted.producer.detach(who)
        hosted.commit(decision.events)
        if decision.events:
            hosted.producer.start_clock(self._clock.monotonic_ms())
        await hosted.durable()

    async def adopt(self, who: Identity, children: Sequence[Identity]) -> None:
        """Let detached transactions end as this one; if one cannot be had, none is adopted."""
        hosted = await self._enter(who)
        self._roster.adopt(hosted, who, children)
        hosted.producer.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def end(
        self,
        who: Identity,
        outcome: str,
        *,
        token: str = "",
        name: str | None = None,
        messages: int | None = None,
    ) -> bool:
        """Commit or abort; answer when it is decided and everybody was told. May be asked again.

        A commit may follow its messages without waiting for their acks if it says how many they
        are: with fewer in the log nothing happens, and the answer is false.
        """
        hosted = await self._enter(who, name)
        producer, number = hosted.producer, hosted.producer.number
        ends: Sequence[tuple[str, int, int]] = ()
        if outcome == COMMIT:
            if messages is not None:
                await hosted.appended()
            elif hosted.publishing:
                raise InvalidTransactionStateError(STILL_PUBLISHING)
            if hosted.has_open(who.number or number):
                if messages is not None and self._endings.count(producer) != messages:
                    return False
                ends = self._endings.unproven(producer)
        await self._decide(hosted, producer.prepare(who, outcome, token=token, ends=ends))
        if producer.number == number and producer.outcome() != outcome:
            raise StorageFailedError("the transaction was aborted: not all of it could be stored")
        return True

    async def _decide(self, hosted: HostedTxProducer, decision: Decision[Event, bool]) -> None:
        """Write a decision, unless it was written before, and carry it out."""
        producer, started_ms = hosted.producer, self._clock.monotonic_ms()
        hosted.commit(decision.events)
        if decision.events:
            # Before anything else has its turn: one round of syncs covers messages and decision.
            self._endings.ask(hosted)
        producer.touch(started_ms)
        if producer.state in PREPARED and not producer.is_told:
            await self._endings.carry_out(hosted)
        outcome = producer.outcome()
        if not decision.reply and outcome is not None:
            self.metrics.ended(outcome, seconds=(self._clock.monotonic_ms() - started_ms) / 1_000)

    def heartbeat(self, who: Identity, name: str | None = None) -> None:
        """Note that a producer is there."""
        hosted = self._roster.find(who, name)
        hosted.producer.check_life(who)
        hosted.producer.touch(self._clock.monotonic_ms())

    async def abort_named(self, name: str) -> None:
        """Abort the open transaction of an id, on an operator's word."""
        hosted = self._roster.get(name)
        hosted.commit(hosted.producer.give_up("an operator").events)
        if hosted.producer.state in PREPARED:
            await self._endings.carry_out(hosted)

    def get(self, name: str) -> TxProducer:
        """Return what is known of an id."""
        return self._roster.get(name).producer

    def find(self, who: Identity, name: str | None = None) -> TxProducer:
        """Return what is known of who speaks, or raise if that is nothing."""
        return self._roster.find(who, name).producer

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
            self._endings.abort_strays()
        for hosted in self._watched(now_ms):
            try:
                self._look_after(hosted, now_ms)
            except GoQueueError as error:
                name = hosted.producer.name
                log.warning("a transaction is left open", id=name, error=error.message)

    def _look_after(self, hosted: HostedTxProducer, now_ms: int) -> None:
        producer = hosted.producer
        deadline_ms, silent_ms = producer.deadline_ms(), producer.silent_ms(now_ms)
        if deadline_ms is not None:
            if now_ms >= deadline_ms:
                self._give_up(hosted, "its time was over")
            elif silent_ms >= TX_SESSION_MS and not producer.is_detached:
                self._give_up(hosted, "its producer fell silent")
        elif producer.is_busy:
            self._endings.see_to(hosted)
        elif silent_ms >= TX_IDLE_MS_MAX:
            self._roster.forget(hosted).add_done_callback(look_at)

    def _watched(self, now_ms: int) -> list[HostedTxProducer]:
        """Return who is to be looked at: those who have work, and now and then all."""
        if now_ms < self._next_review_ms:
            return list(self._roster.busy.values())
        self._next_review_ms = now_ms + REVIEW_INTERVAL_MS
        return list(self._roster)

    def _give_up(self, hosted: HostedTxProducer, reason: str) -> None:
        hosted.commit(hosted.producer.give_up(reason).events)
        log.info("transaction aborted", id=hosted.producer.name, reason=reason)
        self.metrics.ended(ABORT, seconds=0)
        self._endings.carry_out_later(hosted, pause_seconds=0)

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_MS / 1_000)
            try:
                self.sweep()
            except Exception:
                log.exception("a sweep of the transactions failed")
