"""Members, leaders and coordinators of a group on two nodes, from seeds: each message ends once."""

import asyncio
import contextlib
from random import Random

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import NodeId
from goqueue.runtime import broker as broker_module
from goqueue.runtime.queue.leasing import Leased
from goqueue.testing.sim import Simulation
from tests.sim.two_nodes import A, B, TwoNodes, place

SEEDS = 12
PARTITIONS = 3
SECONDS = 60
DRAIN_SECONDS = 200
GROUPS: dict[str, dict[str, object]] = {
    "g": {"session_timeout": "6s", "visibility_timeout": "8s", "max_retries": 1_000},
    "shared": {"mode": "shared", "session_timeout": "6s", "max_retries": 1_000},
    "keyed": {"ordering": "key", "session_timeout": "6s", "max_retries": 1_000},
}


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


class Worker:
    """A member that polls both nodes and acks, until it dies without a word."""

    def __init__(self, nodes: TwoNodes, group: str, name: str, random: Random) -> None:
        self.nodes = nodes
        self.group = group
        self.name = name
        self.random = random
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            with contextlib.suppress(GoQueueError):
                member = await self.nodes.join(self.name, self.group, **GROUPS[self.group])
                await self.work(member)
            await asyncio.sleep(self.random.uniform(0.01, 0.2))

    async def work(self, member: str) -> None:
        errors = 0
        while not self.is_over and errors < 10:
            groups = self.nodes.coordinator(self.group).groups
            with contextlib.suppress(GoQueueError):
                hosted = groups.get(self.group)
                hosted.heartbeat(member)
                await hosted.settled()
                seen = hosted.generation
                for node in (A, B):
                    await self.take(node, member, seen)
                await asyncio.sleep(0.02)
                errors = 0
                continue
            errors += 1
            await asyncio.sleep(self.random.uniform(0.01, 0.5))
            if self.random.random() < 0.02:
                return

    async def take(self, node: NodeId, member: str, seen: int) -> None:
        try:
            parts = await self.nodes.poll(
                node, member, group=self.group, seen=seen, wait_ms=200, limit=5
            )
        except GoQueueError as error:
            if error.code != "not_leader":
                raise
            return
        for part in parts:
            await self.settle(part, member)

    async def settle(self, part: Leased, member: str) -> None:
        dice = self.random.random()
        if dice < 0.05:
            return
        if dice < 0.3:
            await asyncio.sleep(self.random.uniform(0, 1))
        for _ in range(3):
            try:
                await self.nodes.ack(part, group=self.group, member=member)
            except GoQueueError:
                await asyncio.sleep(0.1)
            else:
                return


async def publish_some(nodes: TwoNodes, random: Random) -> None:
    for number in range(100):
        with contextlib.suppress(GoQueueError, AssertionError):
            await nodes.publish(random.randrange(PARTITIONS), f"m{number}")
        await asyncio.sleep(random.uniform(0, SECONDS / 60))


async def break_things(nodes: TwoNodes, random: Random) -> None:
    """Move partitions and coordinators, and cut the nodes off one another."""
    movable = [place(number) for number in range(PARTITIONS)]
    movable += [nodes.coordinator_place(group) for group in GROUPS]
    ends_at = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < ends_at:
        await asyncio.sleep(random.choice((0.01, 1, 4)))
        if random.random() < 0.2:
            nodes.is_cut = True
            await asyncio.sleep(random.choice((0.1, 3, 10)))
            nodes.is_cut = False
        else:
            chosen = dict.fromkeys(random.sample(movable, random.choice((1, 1, 3))))
            pauses = [random.choice((0, 0.01, 0.5)) for _ in chosen]
            await asyncio.gather(*map(nodes.move, chosen, pauses))


def is_drained(nodes: TwoNodes, group: str) -> bool:
    """Return True if a group has settled everything, wherever it is led."""
    for number in range(PARTITIONS):
        partition = nodes.leader(place(number)).topic("orders").partition(number)
        hosted = nodes.leader(place(number)).consume.ledgers.of(group).get(place(number))
        if partition.visible_offset and (hosted is None or hosted.lag()):
            return False
    return True


async def live(simulation: Simulation, seed: int) -> None:
    random = Random(seed)
    nodes = await TwoNodes(simulation).start(partitions=PARTITIONS)
    workers = [
        Worker(nodes, group, f"{group}-{number}", Random(random.random()))
        for group in GROUPS
        for number in range(2)
    ]
    tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
    await asyncio.gather(
        publish_some(nodes, Random(random.random())), break_things(nodes, Random(random.random()))
    )
    async with asyncio.timeout(DRAIN_SECONDS):
        while not all(is_drained(nodes, group) for group in GROUPS):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)
    for worker in workers:
        worker.is_over = True
    await asyncio.gather(*tasks)
    nodes.check()
    for group in GROUPS:
        for where, offsets in nodes.checker.published.items():
            missing = offsets - nodes.checker.acked[group, where]
            ledger = nodes.leader(where).consume.ledgers.of(group)[where].ledger
            # An ack whose answer was lost counts for the ledger alone.
            assert all(map(ledger.is_settled, missing)), (group, where)
    await nodes.stop()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_every_message_ends_once_wherever_it_is_led(seed: int) -> None:
    """P2, P4: over moves of leaders and coordinators, cuts between nodes and members that die."""
    simulation = Simulation(seed)
    simulation.run(lambda _: live(simulation, seed))
    assert not simulation.failures, simulation.failures
