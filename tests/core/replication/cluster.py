"""A cluster of simulated nodes, their controller and the clients, from a seed."""

from dataclasses import dataclass
from typing import Any

from goqueue.base.ids import (
    DirectoryId,
    Epoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    PartitionId,
    TopicName,
    TopicPartition,
)
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import DATA_LOG, STATE_LOG, IsrAnswer, LogKey, ReplicaSet
from tests.core.replication.checks import Checks, demand
from tests.core.replication.controller import Controller, Image, Record
from tests.core.replication.disk import DiskLog, SimDisk
from tests.core.replication.feeding import Fed, Fetching, GroupShape, over_the_wire
from tests.core.replication.node import SimNode
from tests.core.replication.world import CONTROLLER, World

HEAL_MS_MAX = 60_000
"""So long after everything is mended everything must be committed and in sync again."""


@dataclass(frozen=True)
class Plan:
    """What kind of cluster it is."""

    nodes: int = 3
    replicas: int = 3
    min_insync: int = 2
    groups: int = 1
    has_state_log: bool = False
    is_fsynced: bool = True
    is_unclean_allowed: bool = False


class Cluster:
    """Everything that a scenario needs."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.plan = plan = plan or Plan()
        self.world = World(seed)
        self.checks = Checks()
        self.controller = Controller()
        self.is_controller_stopped = False
        self.names = [NodeId(f"n{number}") for number in range(plan.nodes)]
        self.nodes: dict[NodeId, SimNode] = {}
        self.values: dict[int, LogKey] = {}
        self._starts = 0
        self._is_encoded = seed % 4 == 0
        """Whether what nodes say is made to bytes and read again."""
        self._wiped: dict[NodeId, list[SimDisk]] = {}
        """Disks that are gone; what was on them was there when it was reported."""
        logs = (DATA_LOG, STATE_LOG) if plan.has_state_log else (DATA_LOG,)
        groups = [TopicPartition(TopicName("t"), PartitionId(n)) for n in range(plan.groups)]
        self.shapes = {group: GroupShape(logs, plan.is_fsynced) for group in groups}
        self.keys = [LogKey(group, log) for group in groups for log in logs]
        for name in self.names:
            self.start(name)
        for number, group in enumerate(groups):
            order = [self.names[(number + n) % plan.nodes] for n in range(plan.replicas)]
            self.controller.create(group, order, self._record(order))
        self.controller.publish()
        self._spread()
        self._tick()

    def _record(self, replicas: list[NodeId]) -> Record:
        state = ReplicaSet(
            epoch=Epoch(0),
            partition_epoch=PartitionEpoch(0),
            leader=None,
            replicas=tuple(replicas),
            isr=(),
            min_insync=self.plan.min_insync,
        )
        return Record(
            state,
            is_fsynced=self.plan.is_fsynced,
            is_unclean_allowed=self.plan.is_unclean_allowed,
        )

    # Processes.

    def start(self, name: NodeId, *, wiped: bool = False) -> SimNode:
        """Start a process of a node; it registers when it reaches the controller."""
        self._starts += 1
        old = self.nodes.get(name)
        assert old is None or not old.is_alive
        disk = old.disk if old is not None else SimDisk(DirectoryId(f"{name}-0"))
        if wiped:
            self._wiped.setdefault(name, []).append(disk)
            disk = SimDisk(DirectoryId(f"{name}-{self._starts}"))
        node = SimNode(
            name,
            self.world,
            self.checks,
            disk,
            self.shapes,
            number=self._starts,
            disks_of=self._disks_of,
            tell=lambda what, message: self._told(name, what, message),
        )
        node.crash_chance = old.crash_chance if old is not None else 0.0
        self.nodes[name] = node
        if wiped:
            # At once, so that no second fault comes between: two of them may cost everything.
            self._let_in(node, is_clean=False)
            node.node_epoch = self.controller.nodes[name].node_epoch
        self._register(node, is_clean=old is None or not old.has_lost_power)
        node.start()
        return node

    def _register(self, node: SimNode, *, is_clean: bool) -> None:
        """Ask until the controller has answered; then the node may act on images."""
        if node.node_epoch is not None or not node.is_alive:
            return

        def welcome(one: SimNode, told: tuple[NodeEpoch, Image]) -> None:
            if one is node:
                one.node_epoch = told[0]
                one.learn(told[1])

        def register(_: object) -> None:
            if self.is_controller_stopped or node.node_epoch is not None or not node.is_alive:
                return
            given = self._let_in(node, is_clean=is_clean)
            self._deliver(CONTROLLER, node.name, welcome, (given, self.controller.image))

        self.world.send(node.name, CONTROLLER, register, None)
        self.world.after(300, lambda: self._register(node, is_clean=is_clean))

    def _let_in(self, node: SimNode, *, is_clean: bool) -> NodeEpoch:
        given = self.controller.register(
            node.name,
            node.disk.directory,
            process=node.number,
            is_clean=is_clean,
            now_ms=self.world.now_ms,
        )
        self._notice_unclean()
        return given

    def _deliver(self, source: str, name: NodeId, take: Any, message: object) -> None:
        """Have a message taken by the process that the node has when it arrives."""

        def arrive(told: object) -> None:
            node = self.nodes[name]
            node.act(lambda: take(node, told))

        self.world.send(source, name, arrive, message)

    def stop(self, name: NodeId, *, loses_power: bool) -> None:
        """Kill a process; with the power its disk loses what was not synced."""
        node = self.nodes[name]
        node.is_alive = False
        node.has_lost_power = loses_power
        if loses_power:
            node.disk.lose_power(self.world.random)

    def restart(self, name: NodeId, *, loses_power: bool = True, wiped: bool = False) -> None:
        if self.nodes[name].is_alive:
            self.stop(name, loses_power=loses_power)
        self.start(name, wiped=wiped)

    def _disks_of(self, name: NodeId) -> list[SimDisk]:
        return [self.nodes[name].disk, *self._wiped.get(name, [])]

    # Messages.

    def _told(self, name: NodeId, what: str, message: Any) -> None:
        if what == "crash":
            self._crash(name, message)
        elif what == "heartbeat":
            self.world.send(name, CONTROLLER, self._heard, message)
        elif what == "propose":
            self.world.send(name, CONTROLLER, self._alter, message)
        else:
            target, said = message
            said = over_the_wire(said) if self._is_encoded else said
            self._deliver(name, target, _fetch if what == "fetch" else _fed, said)

    def _crash(self, name: NodeId, node: SimNode) -> None:
        """Restart a process that ended in the middle of something."""
        self.stop(name, loses_power=True)
        self.world.after(self.world.random.randint(1, 2_000), lambda: self._revive(name, node))

    def _revive(self, name: NodeId, dead: SimNode) -> None:
        if self.nodes[name] is dead:
            self.start(name)

    def _heard(self, node: SimNode) -> None:
        if self.is_controller_stopped or node.node_epoch is None:
            return
        before = self.controller.image.version
        self.controller.heard(node.name, node.node_epoch, self.world.now_ms)
        if self.controller.image.version != before:
            self._notice_unclean()
            self._spread()
        else:
            self._deliver(CONTROLLER, node.name, _learn, self.controller.image)

    def _alter(self, message: tuple[SimNode, TopicPartition, ProposeIsr]) -> None:
        node, group, proposal = message
        if self.is_controller_stopped or node.node_epoch is None:
            return
        answer = self.controller.alter(node.name, node.node_epoch, group, proposal)
        state = answer.state
        demand(set(state.isr) <= set(state.replicas), f"{state.isr} are not all replicas")
        self._notice_unclean()

        def take(one: SimNode, told: IsrAnswer) -> None:
            if one is node:
                one.answered(group, told)

        self._deliver(CONTROLLER, node.name, take, answer)
        self._spread()

    def _tick(self) -> None:
        if not self.is_controller_stopped and self.controller.tick(self.world.now_ms):
            self._notice_unclean()
            self._spread()
        self.world.after(100, self._tick)

    def _spread(self) -> None:
        for name in self.names:
            self._deliver(CONTROLLER, name, _learn, self.controller.image)

    def _notice_unclean(self) -> None:
        for group, record in self.controller.groups.items():
            if record.unclean_elections:
                self.checks.forgiven.add(group)

    # Clients.

    def publish(self, key: LogKey, *, node: NodeId | None = None, value: int | None = None) -> int:
        """Have a node that believes to lead take a message, or each of them a copy."""
        value = len(self.values) if value is None else value
        self.values.setdefault(value, key)
        leaders = [
            one
            for one in self.nodes.values()
            if one.is_alive and key.group in one.leaders and node in (None, one.name)
        ]
        if leaders:
            one = self.world.random.choice(leaders)
            one.act(lambda: one.publish(key, value))
        return value

    def leader_of(self, key: LogKey) -> NodeId | None:
        return self.controller.groups[key.group].state.leader

    def state_of(self, key: LogKey) -> ReplicaSet:
        return self.controller.groups[key.group].state

    # The end.

    def heal(self) -> None:
        """Mend everything: all nodes run, nothing is lost on the way any more."""
        self.world.heal()
        self.is_controller_stopped = False
        for name in self.names:
            node = self.nodes[name]
            node.crash_chance = 0.0
            node.sync_ms_max = 10
            node.paused_until_ms = 0
            if not node.is_alive:
                self.start(name)

    def finish(self) -> None:
        """Heal, and see that everything works again and nothing was lost."""
        self.heal()
        demand(
            self.world.run(HEAL_MS_MAX, until=self._is_whole), f"not whole in time: {self.wrong()}"
        )
        probes = {self.publish(key): key for key in self.keys}
        self._repeat(probes)
        demand(
            self.world.run(HEAL_MS_MAX, until=lambda: probes.keys() <= self.checks.acked.keys()),
            f"no ack in time: {self.wrong()}",
        )
        self.world.run(HEAL_MS_MAX, until=lambda: self._is_whole() and self._is_level())
        for key in self.keys:
            self.checks.equal(key, self._copies(key))

    def _repeat(self, probes: dict[int, LogKey]) -> None:
        """Send again what was not acked, as clients do."""
        for value, key in probes.items():
            if value not in self.checks.acked:
                self.publish(key, value=value)
        if not probes.keys() <= self.checks.acked.keys():
            self.world.after(300, lambda: self._repeat(probes))

    def _copies(self, key: LogKey) -> list[DiskLog]:
        return [self.nodes[name].disk.logs[key] for name in self.state_of(key).replicas]

    def _is_level(self) -> bool:
        return all(
            len({(log.end_offset, log.durable_offset) for log in self._copies(key)}) == 1
            for key in self.keys
        )

    def _is_whole(self) -> bool:
        return all(
            set(record.state.isr) == set(record.state.replicas)
            and record.state.leader is not None
            and group in self.nodes[record.state.leader].leaders
            for group, record in self.controller.groups.items()
        )

    def wrong(self) -> str:
        """Say how things stand."""
        return f"{[record.state for record in self.controller.groups.values()]}"


def _fetch(node: SimNode, fetching: Fetching) -> None:
    node.fetch(fetching)


def _fed(node: SimNode, fed: Fed) -> None:
    node.fed(fed)


def _learn(node: SimNode, image: Image) -> None:
    node.learn(image)
