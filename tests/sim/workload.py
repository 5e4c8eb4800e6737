"""Clients of a simulated broker, and what each of them was told."""

import asyncio
from collections import Counter, defaultdict
from random import Random

import goqueue.aio
from goqueue.base.errors import GoQueueError, ProducerFencedError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.client.aclient import AsyncClient
from goqueue.client.consumer.delivery import Delivery
from goqueue.client.consumer.options import Refusal
from goqueue.testing.conservation_checker import ConservationChecker
from goqueue.testing.log_checker import LogChecker
from goqueue.testing.sim.broker import ADDRESS

PARTITIONS = 3
EARLY_MS = 2
DELAY_MAX_S = 4.0
ORDERS = "orders"
ACCOUNTS = "accounts"
BILLS = "bills"
TICKS = "ticks"
SCHEDULE = "pulse"


class History:
    """What the clients were told, and what contradicts it."""

    def __init__(self) -> None:
        self.log = LogChecker()
        self.groups = ConservationChecker()
        self.faults: list[str] = []
        self.due: dict[bytes, tuple[float, int]] = {}
        """Delayed messages: when due on the steady clock, and on the wall in ns."""
        self.cancelled: set[bytes] = set()
        self.may_be_cancelled: set[bytes] = set()
        """Asked for, and nobody was told what became of it."""
        self.delivered: set[bytes] = set()
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.errors: Counter[str] = Counter()

    def fault(self, text: str) -> None:
        """Note a broken promise."""
        self.faults.append(text)

    def check(self) -> None:
        """Raise naming every broken promise."""
        assert not self.faults, self.faults[:10]
        self.log.check()
        self.groups.check()


class Worker:
    """A client process that works until it is asked to stop."""

    def __init__(self, name: str, history: History, chance: Random) -> None:
        self.name = name
        self.history = history
        self.chance = chance
        self.is_over = False

    async def run(self) -> None:
        """Connect and work; a client that cannot go on begins again."""
        while not self.is_over:
            try:
                async with await goqueue.aio.connect(ADDRESS, timeout=20) as client:
                    await self.work(client)
            except GoQueueError as error:
                self.note(error)
                await self.pause(0.05)

    async def work(self, client: AsyncClient) -> None:
        raise NotImplementedError

    def note(self, error: GoQueueError) -> None:
        """Count an error: under faults any may come."""
        self.history.errors[f"{type(self).__name__} {error.code}"] += 1

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.chance.uniform(0.5, 1.5))


class Publisher(Worker):
    """Publishes one message after the other, some of them later than now, some of them twice."""

    number = 0

    def __init__(self, name: str, history: History, chance: Random) -> None:
        super().__init__(name, history, chance)
        self._unwanted: list[tuple[bytes, TopicPartition, int]] = []

    async def work(self, client: AsyncClient) -> None:
        producer = client.producer(ORDERS, linger_ms=self.chance.choice((0, 1, 5)))
        while not self.is_over:
            try:
                count = self.chance.choice((1, 1, 1, 3, 12))
                await asyncio.gather(*(self._publish(producer) for _ in range(count)))
                await self._cancel_some(client)
            except GoQueueError as error:
                self.note(error)
            await self.pause(3.0)

    async def _publish(self, producer: goqueue.aio.AsyncProducer) -> None:
        self.number += 1
        payload = b"%s-%d" % (self.name.encode(), self.number)
        partition = self.number % PARTITIONS
        place = TopicPartition(TopicName(ORDERS), PartitionId(partition))
        fields: dict[str, object] = {"partition": partition}
        if self.chance.randrange(10) == 0:
            delay = self.chance.choice((0.2, 1.0, DELAY_MAX_S))
            fields["delay"] = delay
            now = asyncio.get_running_loop().time()
            self.history.due[payload] = (now + delay, goqueue_wall_ns() + int(delay * 1e9))
        if self.chance.randrange(10) == 0:
            fields["dedup_id"] = payload
        if self.chance.randrange(10) == 0:
            fields["priority"] = self.chance.choice(("low", "high"))
        self.history.log.sent(place, payload)
        key = b"k%d" % self.chance.randrange(5)
        try:
            at = await producer.publish(payload, key=key, **fields)  # type: ignore[arg-type]
        except GoQueueError as error:
            self.note(error)
            return
        self.history.log.acked(place, at.offset, payload)
        self.history.groups.sent(place, [at.offset])
        if fields.get("delay") == DELAY_MAX_S and self.chance.getrandbits(1):
            self._unwanted.append((payload, place, at.offset))

    async def _cancel_some(self, client: AsyncClient) -> None:
        """Cancel delayed messages; those that are delivered by now are refused."""
        while self._unwanted:
            payload, place, offset = self._unwanted.pop()
            self.history.may_be_cancelled.add(payload)
            try:
                found = await client.cancel_delayed(ORDERS, place.partition, offset)
            except GoQueueError as error:
                self.note(error)
                continue
            if found:
                self.history.cancelled.add(payload)
            if found and payload in self.history.delivered:
                self.history.fault(f"{payload!r} was delivered and cancelled")


def goqueue_wall_ns() -> int:
    """Return the simulated wall clock."""
    import time  # noqa: PLC0415 - the simulation replaces its functions

    return time.time_ns()


class Consumer(Worker):
    """Consumes orders in a group and settles them in every way there is."""

    def __init__(
        self, name: str, history: History, chance: Random, group: str, options: dict[str, object]
    ) -> None:
        super().__init__(name, history, chance)
        self.group = group
        self.options = options
        self.acks_only = "ordering" in options
        self.wall_believed_s = 0.0
        """When the broker last began to believe the wall clock: its latest start."""
        self.jumped_s = 0.0
        self.member_id = ""
        self._refused: set[tuple[int, int]] = set()

    def _on_refused(self, refusal: Refusal) -> None:
        self._refused.add((refusal.partition, refusal.offset))

    async def work(self, client: AsyncClient) -> None:
        consumer = client.consumer(
            self.group,
            [ORDERS],
            client_id=self.name,
            on_refused=self._on_refused,
            visibility_timeout=8,
            max_retries=3,
            settle_linger_ms=self.chance.choice((20, 100, 500)),
            **self.options,
        )
        async with consumer:
            while not self.is_over:
                self.member_id = consumer.member_id
                messages = await consumer.poll(self.chance.choice((1, 5, 100)), wait_s=5)
                acked = [one for one in messages if self._handle(one)]
                if self.chance.randrange(4) == 0:
                    await self.pause(0.02)
                try:
                    await consumer.flush()
                except GoQueueError as error:
                    self.note(error)
                    continue
                self._confirm(acked)

    def _confirm(self, acked: list[Delivery]) -> None:
        by_partition: dict[int, list[int]] = defaultdict(list)
        for one in acked:
            if (one.partition, one.offset) not in self._refused:
                by_partition[one.partition].append(one.offset)
        for partition, offsets in by_partition.items():
            place = TopicPartition(TopicName(ORDERS), PartitionId(partition))
            self.history.groups.settled(self.group, place, offsets)
        self._refused.clear()

    def _handle(self, message: Delivery) -> bool:
        """Settle a message or let it go; return True if it was acked."""
        place = TopicPartition(TopicName(ORDERS), PartitionId(message.partition))
        failures = {int(message.offset): message.delivery_count - 1}
        self.history.groups.delivered(self.group, place, [message.offset], failures)
        self._check_due(message)
        dice = 99 if self.acks_only else self.chance.randrange(100)
        if dice < 4:
            message.nack(delay=0.1)
        elif dice < 5:
            message.reject("does not fit")
        elif dice < 7:
            return False
        else:
            message.ack()
            return True
        return False

    def _check_due(self, message: Delivery) -> None:
        payload = message.value or b""
        self.history.delivered.add(payload)
        due = self.history.due.get(payload)
        if payload in self.history.cancelled:
            self.history.fault(f"{self.group}: {payload!r} was cancelled, then delivered")
        if due is None:
            return
        steady_s, wall_ns = due
        now = asyncio.get_running_loop().time()
        is_due = now * 1_000 >= steady_s * 1_000 - EARLY_MS
        if self.wall_believed_s >= self.jumped_s:
            is_due = is_due or goqueue_wall_ns() >= wall_ns - EARLY_MS * 1_000_000
        if not is_due:
            self.history.fault(f"{self.group}: {payload!r} came {steady_s - now:.3f} s early")


class Transfers(Worker):
    """Moves money between two accounts; some transfers are given up."""

    number = 0

    async def work(self, client: AsyncClient) -> None:
        async with client.producer(ACCOUNTS, transactional_id=self.name) as producer:
            while not self.is_over:
                self.number += 1
                try:
                    await self._transfer(producer, f"{self.name}-{self.number}")
                except ProducerFencedError:
                    raise
                except GoQueueError as error:
                    self.note(error)
                await self.pause(6.0)

    async def _transfer(self, producer: goqueue.aio.AsyncProducer, name: str) -> None:
        tx = producer.transaction()
        await tx.begin()
        for partition, sign in ((0, "+"), (1, "-")):
            for row in range(self.chance.choice((1, 1, 3))):
                tx.send(f"{name} {sign}{row}".encode(), partition=partition)
        if self.chance.randrange(5) == 0:
            self.history.aborted.add(name)
            await tx.abort()
        else:
            await tx.commit(token=name)
            self.history.committed.add(name)


class Biller(Worker):
    """Consumes orders and writes one bill for each, both in one transaction."""

    async def work(self, client: AsyncClient) -> None:
        options: dict[str, object] = {"visibility_timeout": 8, "max_retries": 1_000}
        options |= {"client_id": self.name, "settle_linger_ms": 200}
        async with (
            client.producer(BILLS, transactional_id=self.name) as producer,
            client.consumer("billing", [ORDERS], **options) as consumer,
        ):
            while not self.is_over:
                messages = await consumer.poll(self.chance.choice((1, 20)), wait_s=5)
                if messages:
                    await self._bill(producer, messages)

    async def _bill(self, producer: goqueue.aio.AsyncProducer, messages: list[Delivery]) -> None:
        try:
            async with producer.transaction() as tx:
                for message in messages:
                    tx.send(b"bill of " + (message.value or b""))
                    tx.ack(message)
        except GoQueueError as error:
            self.note(error)
            for message in messages:
                if not message.is_settled:
                    message.nack(delay=0)
            if isinstance(error, ProducerFencedError):
                raise
            await self.pause(0.1)
