"""Transactions: their coordinator, from the first message to the last mark.

A transaction is decided in ``__transactions`` and then carried out: a control frame in every
partition it wrote to, the offsets and acks of its groups, and the note that all is done. Whatever
a crash leaves of this is finished at the next start; what was never decided is aborted.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    GoQueueError,
    InvalidTransactionStateError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset, TopicName, TopicPartition
from goqueue.base.limits import TX_TIMEOUT_MS
from goqueue.core.decision import Decision
from goqueue.core.delivery.settle import Settled
from goqueue.core.tx.events import Event, Place
from goqueue.core.tx.producer import COMMIT, Identity, TxProducer
from goqueue.core.tx.states import PREPARED, TxState
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.ticket import Ticket
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StateJournal, unawaited
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.topology import Topology
from goqueue.runtime.tx.clustered import TxCluster
from goqueue.runtime.tx.finisher import TxFinisher
from goqueue.runtime.tx.holds import hold_all
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.markers import MarkerWriter
from goqueue.runtime.tx.participants import Participants
from goqueue.runtime.tx.producer_sessions import Life, ProducerSessions
from goqueue.runtime.tx.roster import Roster
from goqueue.runtime.tx.strays import Strays
from goqueue.runtime.tx.sweep import TxSweep
from goqueue.runtime.tx.tx_entry import TxEntry
from goqueue.runtime.tx.tx_link import TxHandler
from goqueue.wire.peer_calls import PeerOperation

STILL_PUBLISHING: Final = (
    "messages of the transaction are still being published; wait for their acks"
)


class Last(NamedTuple):
    """How many messages a transaction has with its last ones, and what its commit leaves."""

    messages: int
    token: str = ""


class Transactions:
    """Coordinates every transaction of a broker. Runs in its event loop."""

    def __init__(
        self,
        state: StateJournal,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        producers: ProducerIds,
        *,
        clock: Clock,
        metrics: TxMetrics,
        number: Callable[[], int] = lambda: secrets.randbits(63) | 1,
        topology: Topology | None = None,
    ) -> None:
        self._topics, self._consume = topics, consume
        self._clock, self.metrics = clock, metrics
        self._roster = Roster(state, producers, is_apart=topology is not None)
        here = MarkerWriter(topics, consume, clock, make_room=state.make_room)
        self.cluster: TxCluster | None = None
        """What others are asked and answered, on a node of a cluster."""
        self._participants: Participants = here
        if topology is not None:
            self.cluster = TxCluster(topology, topics, consume, self._roster, clock, writer=here)
            self._participants = self.cluster.participants
        self._endings = TxFinisher(self._participants, self._roster, metrics)
        self._strays = Strays(topics, consume, self._roster, here, clock)
        self._sweep = TxSweep(self._roster, self._endings, self._strays, clock, metrics)
        self._entry = TxEntry(self._roster, self._endings, clock, metrics, number)
        ids = None if self.cluster is None else self.cluster.ids
        self._lives = ProducerSessions(self._roster, self._endings, producers, clock, ids=ids)
        self.begin, self._enter = self._entry.begin, self._entry.enter
        consume.before_reset = self._endings.finish_group
        if self.cluster is not None:
            self.cluster.serve(self._endings, self._entry)
            consume.before_reset = self.cluster.finish_group

    def __repr__(self) -> str:
        return f"<Transactions of {len(self._roster)} producers>"

    def __iter__(self) -> Iterator[TxProducer]:
        found = (hosted.producer for hosted in self._roster)
        return iter(sorted(found, key=lambda producer: producer.name))

    # Life.

    def load(self, partition: int) -> None:
        """Bring back the producers of a state partition and finish what was decided."""
        now_ms = self._clock.monotonic_ms()
        for hosted in self._roster.load(partition):
            hosted.start_clock(now_ms)
            if hosted.producer.state in PREPARED or hosted.producer.unfinished:
                self._endings.carry_out_later(hosted, pause_seconds=0)
        self.look_for_strays()

    def unload(self, partition: int) -> list[asyncio.Task[None]]:
        """Let go of the producers of a state partition; return what is to be waited for."""
        return self._endings.drop(self._roster.unload(partition))

    def recover(self) -> None:
        """Tell of what was decided and end what nobody decided, before anybody is served.

        In a cluster those who are to be told are not here yet.
        """
        if self.cluster is None:
            self._strays.recover()

    def look_for_strays(self) -> None:
        """Look at the next sweep for what the coordinator did not hear of.

        In a cluster it hears of everything first.
        """
        self._strays.are_left = self.cluster is None

    def start(self) -> None:
        """Watch the time."""
        self._sweep.start()
        if self.cluster is not None:
            self.cluster.start()

    def sweep(self) -> None:
        """Look at the time now."""
        self._sweep.sweep()

    async def stop(self) -> None:
        """End."""
        self._lives.is_stopped = True
        if self.cluster is not None:
            await self.cluster.stop()
        await self._endings.stop()
        tasks = [hosted.ending for hosted in self._roster if hosted.ending is not None]
        for hosted in self._roster:
            hosted.set_free()
        await self._sweep.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What producers ask for.

    async def init(
        self, name: object, *, timeout_ms: int = TX_TIMEOUT_MS, who: Identity | None = None
    ) -> Life:
        """Begin a life of an id: earlier ones are fenced, and what they left open is aborted."""
        return await self._lives.init(name, timeout_ms=timeout_ms, who=who)

    async def publish(
        self, grant: Grant, who: Identity, topic: str, parts: Sequence[tuple[int, memoryview]]
    ) -> list[Published | GoQueueError]:
        """Publish frames of the open transaction; answer when they and their place are durable."""
        outcomes, _ = await self.publish_last(grant, who, topic, parts, None)
        return outcomes

    @fast_path(
        of="Transactions.publish, Transactions.end",
        bench="tx",
        test="tests/runtime/test_transactions_last.py",
    )
    async def publish_last(
        self,
        grant: Grant,
        who: Identity,
        topic: str,
        parts: Sequence[tuple[int, memoryview]],
        last: Last | None,
    ) -> tuple[list[Published | GoQueueError], bool | GoQueueError]:
        """Publish frames, and commit if they are the last; tell of both, the end as ``end`` does.

        What keeps the transaction from being committed takes nothing from the messages.
        """
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        if self.cluster is not None:
            # Who commits is another node: the client asks it when this is acknowledged.
            return await self.cluster.participant.publish(grant, who, topic, parts), False
        self._roster.find(who)
        known = self._topic(topic)
        numbers = dict.fromkeys(known.partition(number).name.partition for number, _ in parts)
        places: list[Place] = [(topic, number) for number in numbers]
        hosted = await self._enter(who, places=places)
        hosted.producer.check_known(who)
        if hosted.producer.state is TxState.ONGOING:
            hosted.commit(hosted.producer.add_partitions(who, places).events)
        producer = hosted.producer
        hosted.touch(self._clock.monotonic_ms())
        ticket = Ticket(producer.number, partial(hosted.check_open, who), producer.stamp)
        with hosted.publish():
            with hosted.append():
                appended = await known.append_all(grant, parts, ticket=ticket)
            ended = last is not None and await self._end_behind(who, known, parts, last)
            # Who is cancelled before it is waited for has heard nothing of it.
            noted = None if ended is True else unawaited(hosted.durable())
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
        hosted.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def add_offsets(
        self, who: Identity, group: str, offsets: Mapping[TopicPartition, Offset]
    ) -> None:
        """Let the open transaction commit offsets of a group."""
        hosted = await self._enter(who)
        if self.cluster is None:
            self._consume.check_offsets(group, offsets)
        else:
            # Group and messages are known elsewhere; the leaders look at them in the end.
            for name in offsets:
                self._topic(name.topic).partition(name.partition)
        listed = [(name.topic, int(name.partition), int(at)) for name, at in offsets.items()]
        hosted.commit(hosted.producer.add_offsets(who, group, listed).events)
        hosted.touch(self._clock.monotonic_ms())
        await hosted.durable()

    async def hold(self, who: Identity, group: str, parts: Sequence[Settlement]) -> list[Settled]:
        """Let the open transaction ack what a group has leased; what is not leased is refused."""
        if self.cluster is not None:
            return await self.cluster.participant.hold(who, group, parts)
        hosted = await self._enter(who)
        hosted.producer.check_open(who)
        number = hosted.producer.number
        self._consume.ledgers.check(group, parts)
        places = [(part.partition.topic, int(part.partition.partition)) for part in parts]
        # The coordinator knows first: a hold it does not know would be ended at the next start.
        hosted.commit(hosted.producer.add_holds(who, group, places).events)
        outcomes, _ = hold_all(self._consume, self._clock, number, group, parts)
        hosted.touch(self._clock.monotonic_ms())
        await asyncio.gather(hosted.durable(), self._consume.durable(group, parts))
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
            await self._participants.stored(hosted)
            is_stored, decision = True, hosted.producer.detach(who)
        hosted.commit(decision.events)
        if decision.events:
            hosted.start_clock(self._clock.monotonic_ms())
        await hosted.durable()

    async def adopt(self, who: Identity, children: Sequence[Identity]) -> None:
        """Let detached transactions end as this one; if one cannot be had, none is adopted."""
        hosted = await self._enter(who)
        self._roster.adopt(hosted, who, children)
        hosted.touch(self._clock.monotonic_ms())
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
                if messages is not None and self._participants.count(producer) != messages:
                    return False
                ends = self._participants.unproven(producer)
                if not self._participants.are_here:
                    await self._participants.stored(hosted)
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
        hosted.touch(started_ms)
        if producer.state in PREPARED and not producer.is_told:
            await self._endings.carry_out(hosted)
        outcome = producer.outcome()
        if not decision.reply and outcome is not None:
            self.metrics.ended(outcome, seconds=(self._clock.monotonic_ms() - started_ms) / 1_000)

    def heartbeat(self, who: Identity, name: str | None = None) -> None:
        """Note that a producer is there."""
        hosted = self._roster.find(who, name)
        hosted.producer.check_life(who)
        hosted.touch(self._clock.monotonic_ms())

    async def abort_named(self, name: str) -> None:
        """Abort the open transaction of an id, on an operator's word."""
        hosted = self._roster.get(name)
        hosted.commit(hosted.producer.give_up("an operator").events)
        if hosted.producer.state in PREPARED:
            await self._endings.carry_out(hosted)

    def get(self, name: str) -> TxProducer:
        """Return what is known of an id."""
        return self._roster.get(name).producer

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer, also of one that is not loaded here."""
        name = self._roster.name_of(producer_id)
        if name is None and self.cluster is not None:
            return self.cluster.name_of(producer_id)
        return name

    async def learn_name(self, producer_id: int) -> None:
        """Find out the transactional id of a producer that another node may know."""
        if self.cluster is not None and self.name_of(producer_id) is None:
            await self.cluster.learn(producer_id)

    async def resolve(self, who: Identity, name: str | None = None) -> Identity:
        """Return who speaks, with the latest transaction if none is named; raise if unknown."""
        if self.cluster is not None:
            return await self.cluster.resolve(who, name)
        return who.in_transaction(self.find(who, name).number)

    def handlers(self) -> Mapping[PeerOperation, TxHandler]:
        """Return what answers peers, by operation; nothing on a broker alone."""
        return {} if self.cluster is None else self.cluster.handlers()

    def find(self, who: Identity, name: str | None = None) -> TxProducer:
        """Return what is known of who speaks, or raise if that is nothing."""
        return self._roster.find(who, name).producer

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(TopicName(name))
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        return topic
