"""Clients of a fleet: transactional producers, readers and workers that repeat what gets lost."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from goqueue.base.errors import (
    GoQueueError,
    LeaderNotAvailableError,
)
from goqueue.base.ids import NodeId, Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.member import JoinRequest
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.families import home_of
from goqueue.core.tx.numbers import number_after
from goqueue.core.tx.producer import Identity
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.log.isolation import Isolation
from goqueue.runtime.log.published import Published
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.runtime.tx.producer_sessions import Life
from goqueue.runtime.tx.tx_link import TX_TOPIC
from tests.runtime.grants import FETCHING, POLLING, PUBLISHING
from tests.runtime.rig import messages_in
from tests.runtime.test_transactions import ack_of, frames
from tests.sim.tx_fleet import Fleet

T = TypeVar("T")
Work = Callable[[Broker], Coroutine[Any, Any, T]]
PATIENCE_SECONDS: Final = 30.0
GROUP: Final = "g"


def place(topic: str, partition: int) -> TopicPartition:
    """Name a partition."""
    return TopicPartition(TopicName(topic), PartitionId(partition))


COORDINATORS: Final = 2


def coordinator_of(name: str) -> TopicPartition:
    """Return which partition coordinates a transactional id."""
    return place(TX_TOPIC, partition_of_key(home_of(name).encode(), COORDINATORS))


class Client:
    """Asks whoever leads, again and again."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    async def once(self, where: TopicPartition, work: Work[T], *, timeout_s: float = 5.0) -> T:
        """Ask the leader of a partition."""
        leader: NodeId | None = self.fleet.leader(where)
        if leader is None:
            raise LeaderNotAvailableError(f"{where} has no leader")
        return await self.fleet.call(leader, work, timeout_s=timeout_s)

    async def ask(
        self, where: TopicPartition, work: Work[T], *, patience_s: float = PATIENCE_SECONDS
    ) -> T:
        """Ask until there is an answer."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + patience_s
        while True:
            try:
                return await self.once(where, work)
            except GoQueueError as error:
                if not error.retryable or loop.time() > deadline_s:
                    raise
            await asyncio.sleep(0.05)


class Teller(Client):
    """A transactional producer."""

    def __init__(self, fleet: Fleet, name: str, *, timeout_ms: int = 60_000) -> None:
        super().__init__(fleet)
        self.name = name
        self.where = coordinator_of(name)
        self.timeout_ms = timeout_ms
        self.who = Identity(producer_id=0, epoch=0)
        self.token = ""
        self._sequences: dict[TopicPartition, int] = {}

    async def init(self) -> None:
        """Begin a life."""
        # Each try of a producer that knows nothing of itself fences the one before.
        life: Life = await self.ask(
            self.where,
            lambda broker: broker.transactions.init(self.name, timeout_ms=self.timeout_ms),
        )
        self.who = Identity(producer_id=life.stamp.producer_id, epoch=life.stamp.epoch)
        self.token = life.token
        self._sequences = {}

    async def begin(self) -> Identity:
        """Begin a transaction, in a new life if it is not certain whether one has begun."""
        while True:
            life = Identity(producer_id=self.who.producer_id, epoch=self.who.epoch)
            try:
                number = await self.once(self.where, partial(_begin, life))
            except GoQueueError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.05)
                await self.init()
                continue
            self.who = Identity(producer_id=life.producer_id, epoch=life.epoch, number=number)
            return self.who

    def go_on(self) -> Identity:
        """Use the number that follows, which begins with its first request."""
        number = number_after(self.who.number or 0)
        self.who = Identity(producer_id=self.who.producer_id, epoch=self.who.epoch, number=number)
        return self.who

    def pack(self, where: TopicPartition, *values: str) -> memoryview:
        """Return messages with the next sequence numbers."""
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + len(values)
        stamp = ProducerStamp(self.who.producer_id, self.who.epoch, sequence)  # type: ignore[arg-type]
        now_us = int(self.fleet.simulation.wall.now_ns() // 1_000)
        return frames(values, self.who.number or 0, stamp, now_us)

    async def publish(self, topic: str, partition: int, *values: str) -> Published:
        """Publish messages, again until they are acknowledged."""
        where = place(topic, partition)
        raw = self.pack(where, *values)
        try:
            return await self.send(where, raw)
        except GoQueueError as error:
            if not error.retryable:
                # It was refused, and its sequence numbers are the next ones' again.
                self._sequences[where] -= len(values)
            raise

    async def send(
        self, where: TopicPartition, raw: memoryview, *, patience_s: float = PATIENCE_SECONDS
    ) -> Published:
        """Send frames until they are acknowledged."""
        who = self.who

        async def work(broker: Broker) -> Published:
            parts = [(int(where.partition), raw)]
            (outcome,) = await broker.transactions.publish(PUBLISHING, who, where.topic, parts)
            if isinstance(outcome, GoQueueError):
                raise outcome
            return outcome

        return await self.ask(where, work, patience_s=patience_s)

    async def end(self, outcome: str, *, token: str = "") -> None:
        """Commit or abort, again until it is answered."""
        who = self.who

        async def work(broker: Broker) -> bool:
            return await broker.transactions.end(who, outcome, token=token)

        assert await self.ask(self.where, work)

    async def offsets(self, topic: str, partition: int, offset: int) -> None:
        """Commit offsets of the group with the transaction."""
        who, offsets = self.who, {place(topic, partition): Offset(offset)}

        async def work(broker: Broker) -> None:
            await broker.transactions.add_offsets(who, GROUP, offsets)

        await self.ask(self.where, work)

    async def hold(self, leased: Leased) -> int:
        """Ack what was leased with the transaction; return how many are refused. Not repeated."""
        who = self.who
        part = ack_of(leased)

        async def work(broker: Broker) -> int:
            (settled,) = await broker.transactions.hold(who, GROUP, [part])
            return len(settled.refused)

        return await self.once(leased.partition, work)

    async def beat(self) -> None:
        """Say that the producer is there."""
        who = self.who

        async def work(broker: Broker) -> None:
            broker.transactions.heartbeat(who)

        await self.once(self.where, work)


class Worker(Client):
    """A member of the group, whose coordinator leads the partition it reads."""

    def __init__(self, fleet: Fleet, topic: str) -> None:
        super().__init__(fleet)
        self.topic = topic
        self.member = ""

    async def join(self) -> None:
        """Become a member."""
        topic = self.topic

        async def work(broker: Broker) -> str:
            request = JoinRequest(client_id="w", topics=(topic,), options={})
            _, member = await broker.groups.join(GROUP, request)
            return member

        self.member = await self.ask(place(STATE_TOPIC, 0), work)

    async def poll(self, limit: int = 5) -> list[Leased]:
        """Lease some messages."""
        member = self.member

        async def work(broker: Broker) -> list[Leased]:
            limits = PollLimits(limit, 10_000, 0)
            return (await broker.consume.poll(POLLING, GROUP, member, None, limits)).parts

        return await self.once(place(STATE_TOPIC, 0), work)


class Reader(Client):
    """Reads a partition at its leader."""

    async def read(
        self, topic: str, partition: int, *, offset: int = 0, committed: bool = True
    ) -> list[tuple[int, str]]:
        """Return what can be read from an offset on, each with its offset."""
        where = place(topic, partition)
        found: list[tuple[int, str]] = []

        async def work(offset: int, broker: Broker) -> Fetched:
            (outcome,) = await fetch(
                FETCHING,
                broker.topic(topic),
                [FetchPart(partition=partition, offset=offset)],
                bytes_max=100_000,
                wait_ms=0,
                lens=Isolation(is_committed=committed),
            )
            assert isinstance(outcome, Fetched), outcome
            return outcome

        while True:
            outcome = await self.ask(where, partial(work, offset))
            messages = messages_in(topic, partition, outcome.frames)
            found += [
                (one.offset, (one.value or b"").decode())
                for one in messages
                if one.offset >= offset
            ]
            if outcome.next_offset == offset:
                return found
            offset = outcome.next_offset

    async def values(self, topic: str, partition: int, *, committed: bool = True) -> list[str]:
        """Return what can be read."""
        found = await self.read(topic, partition, committed=committed)
        return [value for _, value in found]


async def _begin(who: Identity, broker: Broker) -> int:
    return await broker.transactions.begin(who)
