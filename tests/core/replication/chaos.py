"""Faults from a seed: what happens to a cluster until it is mended."""

from functools import partial

from goqueue.base.ids import NodeId
from tests.core.replication.cluster import Cluster, Plan
from tests.core.replication.world import CONTROLLER, Weather

PLANS = [
    Plan(),
    Plan(has_state_log=True),
    Plan(min_insync=1),
    Plan(nodes=2, replicas=2, min_insync=1),
    Plan(nodes=2, replicas=2, min_insync=2),
    Plan(groups=3, has_state_log=True),
    Plan(nodes=5, replicas=5, min_insync=3),
    Plan(nodes=4, replicas=3, groups=2),
    Plan(is_fsynced=False),
    Plan(is_unclean_allowed=True),
]
PUBLISH_MS = 40
CHAOS_MS = 6_000


class Chaos:
    """One cluster, clients that publish and repeat, and faults at random times."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.cluster = Cluster(seed, plan or PLANS[seed % len(PLANS)])
        self.faults: list[str] = []
        self._world = self.cluster.world
        self._random = self.cluster.world.random
        self._is_over = False
        self._risky: NodeId | None = None
        """A node that may have lost its disk; until it is back no other one loses anything."""

    def run(self) -> None:
        """Let things go wrong, then mend them and judge."""
        self._world.run(1_500)
        self._publish()
        if self._random.random() < 0.5:
            self._world.weather = Weather(
                loss=self._random.choice([0, 0.01, 0.1]),
                repeats=self._random.choice([0, 0.05, 0.3]),
                reorders=self._random.choice([0, 0.05, 0.5]),
                delay_ms_max=self._random.choice([3, 20, 200]),
            )
        if self.cluster.plan.is_fsynced and self._random.random() < 0.3:
            for node in self.cluster.nodes.values():
                node.crash_chance = 0.005
        self._fault()
        self._world.run(CHAOS_MS)
        self._is_over = True
        self.cluster.finish()

    def _publish(self) -> None:
        if self._is_over:
            return
        cluster, random = self.cluster, self._random
        key = random.choice(cluster.keys)
        doubtful = [
            v for v, k in cluster.values.items() if k == key and v not in cluster.checks.acked
        ]
        is_repeat = doubtful and random.random() < 0.3
        cluster.publish(key, value=random.choice(doubtful[-20:]) if is_repeat else None)
        self._world.after(random.randint(1, PUBLISH_MS), self._publish)

    def _fault(self) -> None:
        if self._is_over:
            return
        kinds = [
            self._cut_power,
            self._kill,
            self._cut_all_power,
            self._isolate,
            self._cut_one_way,
            self._join_again,
            self._pause,
            self._slow_disk,
            self._fail_disk,
            self._stop_controller,
            self._say_old_things,
            self._wipe,
            self._trim,
        ]
        kind = self._random.choice(kinds)
        self.faults.append(f"{self._world.now_ms}:{kind.__name__}")
        kind()
        self._world.after(self._random.randint(20, 900), self._fault)

    def _node(self) -> NodeId:
        return self._random.choice(self.cluster.names)

    def _may_lose(self, name: NodeId) -> bool:
        """Return True if every group has what this node has elsewhere, on a running node."""
        cluster = self.cluster
        if self._risky is not None and cluster.nodes[self._risky].node_epoch is None:
            return False
        if any(not node.is_alive for node in cluster.nodes.values()):
            return False
        return all(
            name not in record.state.replicas or set(record.state.isr) - {name}
            for record in cluster.controller.groups.values()
        )

    def _down(self, name: NodeId, *, loses_power: bool, wiped: bool = False) -> None:
        if not self.cluster.nodes[name].is_alive:
            return
        self.cluster.stop(name, loses_power=loses_power)
        dead = self.cluster.nodes[name]
        delay = self._random.choice([1, 50, 400, 3_000])

        def up() -> None:
            if self.cluster.nodes[name] is dead:
                self.cluster.start(name, wiped=wiped)

        self._world.after(0 if wiped else delay, up)

    def _cut_power(self) -> None:
        name = self._node()
        if self.cluster.plan.is_fsynced:
            self._down(name, loses_power=True)
        elif self._may_lose(name):
            self._risky = name
            self._down(name, loses_power=True)

    def _kill(self) -> None:
        self._down(self._node(), loses_power=False)

    def _cut_all_power(self) -> None:
        if self.cluster.plan.is_fsynced:
            for name in self.cluster.names:
                self._down(name, loses_power=True)

    def _wipe(self) -> None:
        name = self._node()
        if self._may_lose(name) and not self.cluster.is_controller_stopped:
            self._world.heal()
            self._risky = name
            self._down(name, loses_power=True, wiped=True)

    def _isolate(self) -> None:
        name = self._node()
        others: list[str] = [other for other in self.cluster.names if other != name]
        if self._random.random() < 0.5:
            others.append(CONTROLLER)
        self._world.isolate(name, others)

    def _cut_one_way(self) -> None:
        ends: list[str] = [*self.cluster.names, CONTROLLER]
        source, target = self._random.sample(ends, 2)
        self._world.cut(source, target)

    def _join_again(self) -> None:
        weather = self._world.weather
        self._world.heal()
        self._world.weather = weather

    def _pause(self) -> None:
        node = self.cluster.nodes[self._node()]
        node.paused_until_ms = self._world.now_ms + self._random.choice([100, 1_500, 4_000])

    def _slow_disk(self) -> None:
        self.cluster.nodes[self._node()].sync_ms_max = self._random.choice([5, 300, 3_000])

    def _fail_disk(self) -> None:
        node = self.cluster.nodes[self._node()]
        if self.cluster.plan.is_fsynced and node.is_alive:
            node.act(node.fail_disk)
            self._world.after(30, lambda: self._down(node.name, loses_power=True))

    def _stop_controller(self) -> None:
        self.cluster.is_controller_stopped = True
        self._world.after(self._random.choice([200, 2_500]), self._resume_controller)

    def _resume_controller(self) -> None:
        self.cluster.is_controller_stopped = False

    def _say_old_things(self) -> None:
        """A controller that was stopped goes on and says what it decided long ago."""
        image = self._random.choice(self.cluster.controller.images)
        for name in self.cluster.names:
            node = self.cluster.nodes[name]
            node.act(partial(node.learn, image))

    def _trim(self) -> None:
        key = self._random.choice(self.cluster.keys)
        for node in self.cluster.nodes.values():
            if node.is_alive:
                node.act(partial(node.trim, key, self._random.random()))
