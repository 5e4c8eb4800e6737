"""Faults of a simulated cluster from a seed, with publishers and readers meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from goqueue.testing.sim.simulation import Simulation
from tests.sim.cluster_clients import (
    ClusterHistory,
    ClusterProducer,
    judge,
    place_of,
    read_through,
)
from tests.sim.cluster_metadata import CONTROLLER
from tests.sim.cluster_nodes import SimCluster, SimNode

TOPIC = "orders"
CHAOS_SECONDS = 6.0


@dataclass(frozen=True)
class ClusterPlan:
    """What kind of topic is replicated."""

    nodes: int = 3
    partitions: int = 2
    replicas: int = 3
    min_insync: int = 2
    durability: str = "fsync"
    segment_bytes: int = 1 << 20


PLANS = [
    ClusterPlan(),
    ClusterPlan(segment_bytes=1 << 16),
    ClusterPlan(min_insync=1),
    ClusterPlan(replicas=2, min_insync=1),
    ClusterPlan(replicas=2, min_insync=2, partitions=3),
    ClusterPlan(nodes=4, partitions=3),
    ClusterPlan(durability="os"),
]


class ClusterChaos:
    """One cluster, its clients, and what goes wrong."""

    def __init__(self, seed: int, plan: ClusterPlan | None = None) -> None:
        self.plan = plan or PLANS[seed % len(PLANS)]
        self.seed = seed
        self.history = ClusterHistory()
        self.faults: list[str] = []

    def run(self) -> Simulation:
        simulation = Simulation(self.seed)
        simulation.run(self._main)
        assert not simulation.failures, simulation.failures
        return simulation

    async def _main(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._random = Random(simulation.chance.getrandbits(64))
        self.cluster = cluster = SimCluster(simulation, self.plan.nodes)
        await cluster.start()
        await cluster.create(
            TOPIC,
            partitions=self.plan.partitions,
            replication_factor=self.plan.replicas,
            min_insync_replicas=self.plan.min_insync,
            durability=self.plan.durability,
            segment_bytes=self.plan.segment_bytes,
        )
        producers = [
            ClusterProducer(
                cluster, self.history, number + 1, Random(simulation.chance.getrandbits(64))
            )
            for number in range(3)
        ]
        tasks = [asyncio.ensure_future(one.run(TOPIC, self.plan.partitions)) for one in producers]
        watching = asyncio.ensure_future(self._watch())
        await self._go_wrong()
        cluster.heal()
        for one in producers:
            one.is_over = True
        await asyncio.gather(*tasks)
        await cluster.until(cluster.is_whole)
        await judge(cluster, self.history, TOPIC)
        watching.cancel()

    async def _watch(self) -> None:
        while True:
            self.history.watch_ends(self.cluster)
            place = place_of(TOPIC, self._random.randrange(self.plan.partitions))
            await read_through(self.cluster, self.history, place)
            await asyncio.sleep(self._random.uniform(0.005, 0.2))

    async def _go_wrong(self) -> None:
        kinds = self._kinds()
        until = self.simulation.loop.time() + CHAOS_SECONDS
        while self.simulation.loop.time() < until:
            await asyncio.sleep(self._random.uniform(0.02, 0.9))
            kind = self._random.choice(kinds)
            at = self.simulation.loop.time()
            self.faults.append(f"{at:.3f} {kind.__name__}")
            kind()

    def _kinds(self) -> list[Callable[[], None]]:
        kinds = [
            self._kill,
            self._isolate,
            self._cut_one_way,
            self._join,
            self._pause,
            self._slow_disks,
            self._stop_controller,
            self._fill_disk,
        ]
        if self.plan.durability == "fsync":
            kinds += [self._cut_power, self._cut_all_power, self._fail_disk, self._wipe]
        return kinds

    # What goes wrong.

    def _node(self) -> SimNode:
        return self.cluster.nodes[self._random.choice(self.cluster.names)]

    def _later(self, what: Callable[[], None], *, choices: tuple[float, ...]) -> None:
        self.simulation.loop.call_later(self._random.choice(choices), what)

    def _begin(self, node: SimNode) -> None:
        if not node.is_up:
            node.begin()

    def _kill(self) -> None:
        node = self._node()
        if node.is_up:
            node.kill()
            self._later(lambda: self._begin(node), choices=(0.001, 0.3, 2.5))

    def _cut_power(self) -> None:
        node = self._node()
        if node.is_up:
            node.cut_power()
            self._later(lambda: self._begin(node), choices=(0.001, 0.3, 2.5))

    def _cut_all_power(self) -> None:
        for node in self.cluster.nodes.values():
            if node.is_up:
                node.cut_power()
                self._later(lambda one=node: self._begin(one), choices=(0.001, 0.3))  # type: ignore[misc]

    def _others(self, node: SimNode) -> list[str]:
        return [name for name in self.cluster.names if name != node.name]

    def _isolate(self) -> None:
        node = self._node()
        others = self._others(node)
        if self._random.random() < 0.6:
            others.append(CONTROLLER)
        self.cluster.peers.isolate(node.name, others)

    def _cut_one_way(self) -> None:
        source, target = self._random.sample([*map(str, self.cluster.names), CONTROLLER], 2)
        self.cluster.peers.cuts.add((source, target))

    def _join(self) -> None:
        self.cluster.peers.heal()

    def _pause(self) -> None:
        node = self._node()
        if node.is_up:
            node.host.pause(self._random.choice([0.05, 0.8, 2.5]))

    def _slow_disks(self) -> None:
        self.simulation.slow_down_disks(self._random.choice([0, 0.02, 0.3]))

    def _stop_controller(self) -> None:
        controller = self.cluster.controller
        controller.is_stopped = True

        def resume() -> None:
            controller.is_stopped = False

        self._later(resume, choices=(0.2, 1.5))

    def _fill_disk(self) -> None:
        node = self._node()
        node.disk.fill_up(self._random.choice([0, 500, 5_000]), path_glob="logs/*")
        disk = node.disk
        self._later(disk.make_room, choices=(0.2, 1.5))

    def _fail_disk(self) -> None:
        """A sync fails; the process is started again later, on a mended disk."""
        node = self._node()
        if not node.is_up:
            return
        node.disk.fail_sync(f"logs/{TOPIC}/*")
        lives = node.lives

        def mend() -> None:
            node.disk.heal()
            if node.is_up and node.lives == lives:
                node.cut_power()
                node.begin()

        self._later(mend, choices=(0.3, 1.5))

    def _wipe(self) -> None:
        """A disk is replaced, where everything is elsewhere too."""
        cluster, node = self.cluster, self._node()
        image = cluster.controller.image
        topic = image.topic(TOPIC)
        if cluster.controller.is_stopped or not all(map(cluster.is_alive, cluster.names)):
            return
        if any(node.name in one.replicas and len(one.isr_ids) < 2 for one in topic.partitions):
            return
        if any(set(one.isr_ids) == {node.name} for one in topic.partitions):
            return
        cluster.peers.heal()
        node.cut_power()
        cluster.forget_disk(node)
        node.begin()
