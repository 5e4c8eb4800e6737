"""Transactions over a fleet whose nodes die, are cut off and take over from each other."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from goqueue.base.errors import GoQueueError, InvalidTransactionStateError
from goqueue.base.ids import NodeId, Offset
from goqueue.core.delivery.runs import set_of
from goqueue.core.offset_sets import each
from goqueue.core.tx.producer import ABORT, COMMIT
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.storage.log_notes import Gap
from goqueue.testing.conservation_checker import ConservationChecker
from goqueue.testing.log_checker import LogChecker
from goqueue.testing.sim.simulation import Simulation
from tests.sim.tx_clients import GROUP, Reader, Teller, Worker, place
from tests.sim.tx_fleet import Fleet

ACCOUNTS: Final = 3
ORDERS: Final = 100
TIMEOUT_MS: Final = 6_000
CALM_SECONDS: Final = 60


class History:
    """What clients were told of transactions."""

    def __init__(self) -> None:
        self.log = LogChecker()
        self.groups = ConservationChecker()
        self.outcomes: dict[str, str] = {}
        """How each transaction ended: committed, aborted, or one of both."""
        self.sizes: dict[str, int] = {}
        self.seen: set[str] = set()
        self.errors: Counter[str] = Counter()


class Chaos:
    """One run from a seed."""

    def __init__(self, seed: int, *, faults: int = 8) -> None:
        self.simulation = Simulation(seed)
        self.random = Random(seed)
        self.faults = faults
        self.history = History()
        self.is_over = False
        self.story: list[str] = []

    def run(self) -> str:
        """Run it, judge it, and return its trace."""
        try:
            self.simulation.run(self._main)
        except BaseException as error:
            raise AssertionError(
                f"seed {self.simulation.seed} after {self.story}: {error!r}"[:2_000]
            ) from error
        assert not self.simulation.failures, (self.simulation.seed, self.simulation.failures)
        return self.simulation.trace.digest

    async def _main(self, simulation: Simulation) -> None:
        fleet = Fleet(simulation)
        fleet.tied[place("in", 0)] = place(STATE_TOPIC, 0)
        await fleet.start({"accounts": ACCOUNTS, "in": 1})
        await self._fill(fleet)
        fleet.loss = self.random.choice([0.0, 0.02, 0.1])
        clients: list[Callable[[Fleet], Awaitable[None]]] = [
            lambda fleet: self._transfer(fleet, "left"),
            lambda fleet: self._transfer(fleet, "right"),
            lambda fleet: self._transfer(fleet, "left.task-1"),
            self._bill,
            self._bill,
            self._read,
        ]
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(_as_coroutine(client(fleet))) for client in clients]
        for _ in range(self.faults):
            await asyncio.sleep(self.random.uniform(0, 1.5))
            await self._fault(fleet)
        await self._calm(fleet)
        await asyncio.sleep(15)
        self.is_over = True
        async with asyncio.timeout(200):
            await asyncio.gather(*tasks)
        fleet.copy_s = 0.02
        await asyncio.sleep(CALM_SECONDS)
        await self._judge(fleet)

    async def _fill(self, fleet: Fleet) -> None:
        teller = Teller(fleet, "filler")
        await teller.init()
        await teller.begin()
        await teller.publish("in", 0, *(f"order {number}" for number in range(ORDERS)))
        await teller.end(COMMIT)
        self.history.groups.sent(place("in", 0), range(ORDERS))

    # Faults.

    async def _fault(self, fleet: Fleet) -> None:
        name = self.random.choice(list(fleet.nodes))
        down = [one for one in fleet.nodes if not fleet.is_reachable(one)]
        kind = self.random.choice(["kill", "power", "cut", "elect", "elect", "elect"])
        if kind != "elect" and down:
            await self._mend(fleet)
            return
        self.story.append(f"{kind} {name}")
        if kind == "elect":
            self._elect(fleet)
        elif kind == "cut":
            await fleet.cut(name)
        else:
            await fleet.kill(name, power=kind == "power")

    def _elect(self, fleet: Fleet) -> None:
        where = self.random.choice([one for one in fleet.places if one not in fleet.tied])
        others = [
            one
            for one in fleet.places[where].in_sync
            if fleet.is_reachable(one) and one != fleet.leader(where)
        ]
        if others:
            fleet.elect(where, self.random.choice(others))

    async def _mend(self, fleet: Fleet) -> None:
        for name, node in fleet.nodes.items():
            if name in fleet.cut_off:
                self.story.append(f"heal {name}")
                fleet.heal(name)
            elif node.broker is None:
                self.story.append(f"start {name}")
                await fleet.start_node(name)

    async def _calm(self, fleet: Fleet) -> None:
        fleet.loss = 0.0
        await self._mend(fleet)

    # Clients.

    async def _transfer(self, fleet: Fleet, name: str) -> None:
        """Publish the same to several partitions, again and again."""
        teller = Teller(fleet, name, timeout_ms=TIMEOUT_MS)
        number = 0
        await self._patiently(teller.init)
        while not self.is_over:
            number += 1
            label = f"{name}-{number}"
            try:
                await self._transfer_once(teller, label)
            except GoQueueError as error:
                self.history.errors[error.code] += 1
                await self._patiently(teller.init)
            if self.random.random() < 0.1:
                # A second instance of the same id fences the first.
                teller = Teller(fleet, name, timeout_ms=TIMEOUT_MS)
                await self._patiently(teller.init)
            await asyncio.sleep(self.random.uniform(0, 0.2))

    async def _transfer_once(self, teller: Teller, label: str) -> None:
        history = self.history
        partitions = self.random.sample(range(ACCOUNTS), self.random.choice([2, 3]))
        await teller.begin()
        # Nobody has asked to commit it yet.
        history.outcomes[label] = "aborted"
        history.sizes[label] = len(partitions)
        for partition in partitions:
            await self._publish(teller, label, partition, f"{label} {partition}")
        if self.random.random() < 0.25:
            await teller.end(ABORT)
            return
        await self._commit(teller, label)

    async def _publish(self, teller: Teller, label: str, partition: int, payload: str) -> None:
        where, raw = place("accounts", partition), payload.encode()
        self.history.log.sent(where, raw, producer=label)
        published = await teller.publish("accounts", partition, payload)
        self.history.log.acked(where, published.base_offset, raw)

    async def _commit(self, teller: Teller, label: str) -> None:
        self.history.outcomes[label] = "unsure"
        try:
            await teller.end(COMMIT, token=label)
        except InvalidTransactionStateError:
            self.history.outcomes[label] = "aborted"
            raise
        self.history.outcomes[label] = "committed"

    async def _bill(self, fleet: Fleet) -> None:
        """Take orders and write a bill for each, in one transaction with their acks."""
        worker = Worker(fleet, "in")
        name = f"biller-{self.random.randrange(10**6)}"
        teller = Teller(fleet, name, timeout_ms=TIMEOUT_MS)
        await self._patiently(teller.init)
        await self._patiently(worker.join)
        number = 0
        while not self.is_over:
            await asyncio.sleep(self.random.uniform(0, 0.6))
            try:
                for leased in await worker.poll(self.random.choice([1, 2, 3])):
                    number += 1
                    await self._bill_for(teller, f"{name}-{number}", leased)
            except GoQueueError as error:
                self.history.errors[error.code] += 1
                if error.code in ("unknown_member", "stale_generation", "group_not_found"):
                    await self._patiently(worker.join)
                await self._patiently(teller.init)

    async def _bill_for(self, teller: Teller, label: str, leased: Leased) -> None:
        offsets = list(map(int, each(set_of(leased.order))))
        history = self.history
        history.groups.delivered(GROUP, place("in", 0), offsets, {})
        await teller.begin()
        history.outcomes[label] = "aborted"
        history.sizes[label] = len(offsets)
        if await teller.hold(leased):
            await teller.end(ABORT)
            return
        for offset in offsets:
            await self._publish(teller, label, offset % ACCOUNTS, f"{label} bill {offset}")
        await self._commit(teller, label)
        history.groups.settled(GROUP, place("in", 0), offsets)

    async def _read(self, fleet: Fleet) -> None:
        """See what anybody may see: nothing that is not or will not be committed."""
        reader = Reader(fleet)
        while not self.is_over:
            await asyncio.sleep(self.random.uniform(0, 0.5))
            with contextlib.suppress(GoQueueError, AssertionError):
                partition = self.random.randrange(ACCOUNTS)
                self.history.seen.update(await reader.values("accounts", partition))

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(100):
            while True:
                try:
                    return await work()
                except GoQueueError as error:
                    self.history.errors[error.code] += 1
                await asyncio.sleep(0.1)

    # Judging.

    async def _judge(self, fleet: Fleet) -> None:
        reader, history = Reader(fleet), self.history
        visible: list[str] = []
        for partition in range(ACCOUNTS):
            where = place("accounts", partition)
            found = await reader.read("accounts", partition, committed=False)
            rows = [(offset, value.encode()) for offset, value in found]
            led = fleet.led(where)
            ends = [Gap(Offset(one), Offset(one + 1)) for one in each(led.queue.empty)]
            end = led.visible_offset
            history.log.read(where, rows, start_offset=0, end_offset=end, gaps=ends)
            visible += await reader.values("accounts", partition)
        history.log.check()
        self._judge_visible(visible)
        self._judge_bills(fleet, visible)
        self._judge_open(fleet)

    def _judge_visible(self, visible: list[str]) -> None:
        history = self.history
        counts = Counter(value.split(" ")[0] for value in visible)
        assert max(Counter(visible).values(), default=1) == 1, "twice"
        for label, outcome in history.outcomes.items():
            wanted = {"committed": {history.sizes[label]}, "aborted": {0}}.get(
                outcome, {0, history.sizes[label]}
            )
            assert counts[label] in wanted, f"{label} was {outcome}: {counts[label]} are visible"
        lost = history.seen - set(visible)
        assert not lost, f"was visible once: {lost}"
        assert sum(one == "committed" for one in history.outcomes.values()) > 0, history.errors

    def _judge_bills(self, fleet: Fleet, visible: list[str]) -> None:
        bills = Counter(value.rpartition(" ")[2] for value in visible if " bill " in value)
        assert max(bills.values(), default=1) == 1, f"billed twice: {bills.most_common(3)}"
        leader: NodeId | None = fleet.leader(place(STATE_TOPIC, 0))
        assert leader is not None
        hosted = fleet.nodes[leader].up.consume.ledgers.of(GROUP).get(place("in", 0))
        if hosted is None:
            # A member that was never told of its join has the partition.
            assert not bills
            return
        self.history.groups.compare(GROUP, place("in", 0), hosted.ledger, hosted.view())
        self.history.groups.check()
        for offset in range(ORDERS):
            is_billed = str(offset) in bills
            assert hosted.ledger.is_settled(offset) == is_billed, f"order {offset}: {is_billed}"

    def _judge_open(self, fleet: Fleet) -> None:
        for where in fleet.places:
            assert not list(fleet.led(where).queue.tx), f"{where} has open transactions"
            for node in fleet.nodes.values():
                partition = node.up.topic(where.topic).partition(where.partition)
                assert not list(partition.queue.tx), f"{node.name}: {where} has open transactions"
        for node in fleet.nodes.values():
            for ledger in node.up.consume.ledgers:
                assert not ledger.ledger.holds, f"{ledger} holds messages"
            cluster = node.up.transactions.cluster
            assert cluster is not None
            for producer in node.up.transactions:
                assert not producer.is_open, f"{producer} is open"


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work
