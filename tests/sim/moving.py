"""A broker whose state partitions come and go all the time, with clients that need all of them."""

import asyncio
from collections import Counter

import goqueue.aio
from goqueue.base.errors import DelayedNotFoundError, RedriveActiveError
from goqueue.client.aclient import AsyncClient
from goqueue.core.dlq.record import redrives_of
from goqueue.testing.sim.broker import ADDRESS
from tests.sim.chaos import Chaos
from tests.sim.scenario import GROUPS, Scenario
from tests.sim.workload import Biller, Consumer, Publisher, Transfers, Worker

ROUNDS = 3
LATER = "later"
LETTERS = "letters"
SUBJECT = "subject"


class Canceller(Worker):
    """Publishes messages for later, then cancels some and gives some another time."""

    def __init__(self, scenario: "MovingScenario") -> None:
        super().__init__("canceller", scenario.history, scenario.simulation.chance)
        self.expected: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self.number = 0

    async def work(self, client: AsyncClient) -> None:
        producer = client.producer(LATER, linger_ms=0)
        while not self.is_over:
            self.number += 1
            payload = b"later-%d" % self.number
            at = await producer.publish(payload, delay=20)
            self.expected.add(payload)
            self.unsure.add(payload)
            kind = self.chance.randrange(3)
            try:
                if kind == 0:
                    await client.cancel_delayed(LATER, at.partition, at.offset)
                    self.cancelled.add(payload)
                elif kind == 1:
                    await client.reschedule_delayed(LATER, at.partition, at.offset, delay=0.5)
                self.unsure.discard(payload)
            except DelayedNotFoundError:
                # The answer to an earlier try got lost.
                self.history.errors["late"] += 1
            await self.pause(0.3)

    async def judge(self, client: AsyncClient) -> None:
        """What was cancelled is not there; everything else is, once."""
        await asyncio.sleep(30)
        seen = Counter([one.value or b"" async for one in client.read(LATER)])
        sure = self.expected - self.unsure
        if any(count > 1 for count in seen.values()):
            self.history.fault(f"delayed messages are there twice: {seen.most_common(3)}")
        if sure - self.cancelled - seen.keys():
            self.history.fault("delayed messages are gone")
        if self.cancelled & seen.keys():
            self.history.fault("cancelled messages came")


class Refuser(Worker):
    """Rejects each letter once, and acks it when it comes back."""

    def __init__(self, scenario: "MovingScenario") -> None:
        super().__init__("refuser", scenario.history, scenario.simulation.chance)

    async def work(self, client: AsyncClient) -> None:
        async with client.consumer("refusers", [LETTERS], client_id=self.name) as consumer:
            while not self.is_over:
                for message in await consumer.poll(5, wait_s=1):
                    if redrives_of(message.headers):
                        message.ack()
                    else:
                        message.reject("not today")


class Redriver(Worker):
    """Publishes letters and sends those that died back."""

    def __init__(self, scenario: "MovingScenario") -> None:
        super().__init__("redriver", scenario.history, scenario.simulation.chance)
        self.letters: set[bytes] = set()
        self.number = 0

    async def work(self, client: AsyncClient) -> None:
        producer = client.producer(LETTERS, linger_ms=0)
        while not self.is_over:
            self.number += 1
            payload = b"letter-%d" % self.number
            await producer.publish(payload)
            self.letters.add(payload)
            try:
                await client.dlq_redrive(LETTERS, wait=False, max_redrives=1)
            except RedriveActiveError:
                self.history.errors["redrive_active"] += 1
            await self.pause(0.5)


class Registrar(Worker):
    """Registers one schema after the other."""

    def __init__(self, scenario: "MovingScenario") -> None:
        super().__init__("registrar", scenario.history, scenario.simulation.chance)
        self.places: dict[int, tuple[int, str]] = {}
        self.number = 0

    async def work(self, client: AsyncClient) -> None:
        await client.schemas.set_compatibility("NONE", SUBJECT)
        while not self.is_over:
            self.number += 1
            text = f'{{"type": "object", "title": "t{self.number}"}}'
            place = await client.schemas.register(SUBJECT, text)
            known = self.places.setdefault(place.version, (place.id, text))
            if known != (place.id, text):
                self.history.fault(f"version {place.version} was given twice")
            await self.pause(0.5)

    async def judge(self, client: AsyncClient) -> None:
        """Every version that somebody was told of is there, as it was."""
        for version, (number, text) in self.places.items():
            found = await client.schemas.get(SUBJECT, version)
            if (found.id, found.schema) != (number, text):
                self.history.fault(f"version {version} is {found}")


class Mover(Chaos):
    """Unloads and loads every state partition, several times, under load."""

    async def run(self, faults: int) -> None:
        """Move each by itself, then all at once."""
        for _ in range(faults):
            places = self._broker.places()
            self._chance.shuffle(places)
            for place in places:
                await self._broker.unload(*place)
                await asyncio.sleep(self._chance.choice((0, 0, 0.001, 0.2)))
                await self._broker.load(*place)
                await asyncio.sleep(self._chance.choice((0, 0.01, 0.2)))
            for place in places:
                await self._broker.unload(*place)
            await asyncio.sleep(self._chance.uniform(0, 1))
            for place in self._chance.sample(places, len(places)):
                await self._broker.load(*place)
            await asyncio.sleep(2)

    async def mend(self) -> None:
        """Leave the broker as it is: a restart would heal what a move left behind."""


class MovingScenario(Scenario):
    """Everything that has state, and a broker that holds none of it for long."""

    def __init__(self, seed: int, *, rounds: int = ROUNDS, is_beside: bool = False) -> None:
        super().__init__(seed, faults=rounds, is_beside=is_beside)
        history, chance = self.history, self.simulation.chance
        self._consumers = [
            Consumer(f"{group}-{number}", history, chance, group, GROUPS[group])
            for group in GROUPS
            for number in range(2)
        ]
        self._groups = [*GROUPS, "billing", "refusers"]
        self._canceller, self._registrar = Canceller(self), Registrar(self)
        self._redriver = Redriver(self)
        self._publishers = [
            Publisher("p1", history, chance),
            Transfers("left", history, chance),
            self._canceller,
            self._registrar,
            self._redriver,
        ]
        self._billers = [Biller("biller", history, chance), Refuser(self)]
        self.chaos = Mover(self.simulation, self._broker, self._consumers)

    async def _create_topics(self, client: AsyncClient) -> None:
        await super()._create_topics(client)
        await client.create_topic(LATER, partitions=2)
        await client.create_topic(LETTERS, partitions=1)

    async def _judge(self) -> None:
        await super()._judge()
        async with await goqueue.aio.connect(ADDRESS) as client:
            await self._canceller.judge(client)
            await self._registrar.judge(client)
            await self._judge_letters(client)

    async def _judge_letters(self, client: AsyncClient) -> None:
        """Each letter was there, died once, and came back once."""
        await client.dlq_redrive(LETTERS, max_redrives=1)
        seen = Counter([one.value or b"" async for one in client.read(LETTERS)])
        dead = Counter([one.value or b"" async for one in client.read(f"{LETTERS}.dlq")])
        for payload in self._redriver.letters:
            if (seen[payload], dead[payload]) != (2, 1):
                times = f"{seen[payload]} times, dead {dead[payload]} times"
                self.history.fault(f"{payload!r} is there {times}")
