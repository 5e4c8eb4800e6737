"""A broker, clients that use everything it can do, faults, and the verdict."""

import asyncio
from collections import Counter
from random import Random

import goqueue.aio
from goqueue.client.aclient import AsyncClient
from goqueue.testing.sim import Simulation
from goqueue.testing.sim.broker import ADDRESS, SimBroker
from goqueue.testing.sim.host import Host
from goqueue.wire.queue_calls import Progress
from tests.sim.chaos import Chaos
from tests.sim.workload import (
    ACCOUNTS,
    BILLS,
    ORDERS,
    PARTITIONS,
    SCHEDULE,
    TICKS,
    Biller,
    Consumer,
    History,
    Publisher,
    Transfers,
    Worker,
)

FAULTS = 6
DRAIN_SECONDS = 300
GROUPS: dict[str, dict[str, object]] = {
    "plain": {},
    "shared": {"mode": "shared"},
    "keyed": {"ordering": "key"},
}


class Scenario:
    """One run: what happened, and whether every promise held."""

    def __init__(self, seed: int, *, faults: int = FAULTS, is_beside: bool | None = None) -> None:
        self.simulation = Simulation(seed)
        # A choice of its own: the rest of a seed stays as it is.
        beside = bool(Random(seed).getrandbits(1)) if is_beside is None else is_beside
        self.history = History()
        self._faults = faults
        self._broker = SimBroker(self.simulation, is_beside=beside)
        chance = self.simulation.chance
        self._groups = chance.sample(sorted(GROUPS), chance.choice((1, 1, 2)))
        self._consumers = [
            Consumer(f"{group}-{number}", self.history, _dice(chance), group, GROUPS[group])
            for group in self._groups
            for number in range(chance.choice((1, 2)))
        ]
        self._publishers: list[Worker] = [Publisher("p1", self.history, _dice(chance))]
        self._billers: list[Worker] = []
        if chance.getrandbits(1):
            self._publishers.append(Transfers("left", self.history, _dice(chance)))
        if chance.getrandbits(1):
            self._billers.append(Biller("biller", self.history, _dice(chance)))
            self._groups.append("billing")
        self._takers: list[tuple[Worker, asyncio.Task[None]]] = []
        self.chaos = Chaos(self.simulation, self._broker, self._consumers)

    def run(self) -> str:
        """Run it and return its trace; raise where a promise was broken."""
        try:
            self.simulation.run(lambda _: self._run())
            self.history.check()
            assert not self.simulation.failures, self.simulation.failures
        except BaseException as error:
            error.add_note(f"seed {self.simulation.seed}, faults: {self.chaos.done}")
            error.add_note(f"errors met: {dict(self.history.errors)}")
            raise
        return self.simulation.trace.digest

    async def _run(self) -> None:
        await self.chaos.start()
        async with await goqueue.aio.connect(ADDRESS) as client:
            await self._create_topics(client)
        host = self.simulation.host("clients")
        senders = [(worker, host.begin(worker.run())) for worker in self._publishers]
        self._begin_taking(host)
        await self.chaos.run(self._faults)
        await self.chaos.mend()
        await _end(senders)
        await self._drain()
        await _end(self._takers)
        await self._judge()

    def _begin_taking(self, host: Host) -> None:
        """Start those who consume."""
        readers: list[Worker] = [*self._billers, *self._consumers]
        self._takers = [(worker, host.begin(worker.run())) for worker in readers]

    async def _create_topics(self, client: AsyncClient) -> None:
        await client.create_topic(ORDERS, partitions=PARTITIONS, dedup_window_ms="1h")
        await client.create_topic(ACCOUNTS, partitions=2)
        await client.create_topic(BILLS, partitions=2)
        await client.create_topic(TICKS, partitions=2)
        await client.create_schedule(SCHEDULE, TICKS, b"tick", every=1, missed="all")

    async def _drain(self) -> None:
        """Wait until every group has settled everything."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS), await goqueue.aio.connect(ADDRESS) as client:
                for group in self._groups:
                    while any(map(_has_work, await client.group_progress(group))):  # noqa: ASYNC110 - virtual time
                        await asyncio.sleep(0.5)
        except TimeoutError as error:
            raise AssertionError(f"a group still has messages after {DRAIN_SECONDS} s") from error

    async def _judge(self) -> None:
        async with await goqueue.aio.connect(ADDRESS) as client:
            await self._judge_orders(client)
            await self._judge_transfers(client)
            await self._judge_ticks(client)
            if self._billers:
                await self._judge_bills(client)
        for hosted in self._broker.broker.consume.ledgers:
            if hosted.partition.name.topic == ORDERS and hosted.group in GROUPS:
                name, ledger, view = hosted.partition.name, hosted.ledger, hosted.view()
                self.history.groups.compare(hosted.group, name, ledger, view)

    async def _judge_orders(self, client: AsyncClient) -> None:
        state = await client.describe_topic(ORDERS)
        for partition in self._broker.broker.topic(ORDERS).partitions:
            number = partition.name.partition
            seen = [
                (one.offset, one.value or b"")
                async for one in client.read(ORDERS, partitions=[number], delayed="show")
            ]
            part = state.partitions[number]
            self.history.log.read(
                partition.name, seen, start_offset=part.start_offset, end_offset=part.end_offset
            )

    async def _judge_transfers(self, client: AsyncClient) -> None:
        sides: dict[str, Counter[str]] = {}
        async for message in client.read(ACCOUNTS):
            name, row = (message.value or b"").decode().split(" ")
            sides.setdefault(name, Counter())[row[0]] += 1
            if sides[name][row[0]] > 3:
                self.history.fault(f"{name}{row} is there twice")
        for name, counts in sides.items():
            if set(counts) != {"+", "-"}:
                self.history.fault(f"{name}: one side only: {dict(counts)}")
            if name in self.history.aborted:
                self.history.fault(f"{name} was aborted and is visible")
        for name in self.history.committed - sides.keys():
            self.history.fault(f"{name} was committed and is gone")

    async def _judge_ticks(self, client: AsyncClient) -> None:
        """Every tick that counts as published has its one message."""
        await client.pause_schedule(SCHEDULE)
        schedules = self._broker.broker.schedules
        while schedules.get(SCHEDULE).state.begun is not None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)
        state = schedules.get(SCHEDULE).state
        found = [one.value async for one in client.read(TICKS)]
        if not len(found) == state.published == state.number > 0:
            self.history.fault(f"{len(found)} messages of {state.number} ticks: {state}")

    async def _judge_bills(self, client: AsyncClient) -> None:
        bills = Counter([(one.value or b"") async for one in client.read(BILLS)])
        orders = Counter(
            [b"bill of " + (one.value or b"") async for one in client.read(ORDERS, delayed="show")]
        )
        never = Counter(b"bill of " + payload for payload in self.history.may_be_cancelled)
        missing, extra = orders - bills - never, bills - orders
        if missing or extra:
            self.history.fault(f"bills: {len(missing)} missing {list(missing)[:3]}, {extra}")


async def _end(workers: list[tuple[Worker, "asyncio.Task[None]"]]) -> None:
    for worker, _ in workers:
        worker.is_over = True
    async with asyncio.timeout(DRAIN_SECONDS):
        await asyncio.gather(*(task for _, task in workers))


def _has_work(part: Progress) -> bool:
    return bool(part.lag or part.in_flight or part.waiting or part.delayed)


def _dice(chance: Random) -> Random:
    return Random(chance.getrandbits(64))
