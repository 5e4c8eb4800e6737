"""Random proposals against an image and a naive model of what may be lost.

The model is another one than the image's: for each partition it keeps, node by node, how many
messages are there, commits by the rules of replication, and elects nothing. Whenever the image
makes a leader without counting a loss, that leader must have everything that was committed.
"""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import TopicName
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.verbs import decide
from tests.core.cluster.world import World, founded, rebuilt, state_of

NODES = "abcd"
TOPICS = ("t0", "t1")
nodes = st.sampled_from(NODES)
topics = st.sampled_from(TOPICS)
parts = st.integers(0, 3)
Key = tuple[int, int]


class Messages:
    """How many messages of each partition lie on each disk, and how many are committed."""

    def __init__(self) -> None:
        self.logs: dict[Key, dict[str, int]] = {}
        self.committed: dict[Key, int] = {}
        self.unclean = 0

    def append(self, image: ClusterImage, key: Key) -> None:
        """Take a message on all in sync; it is committed if they are enough."""
        topic = image.topics.get(key[0])  # type: ignore[call-overload]
        if topic is None or key[1] >= len(topic.partitions):
            return
        record = topic.partitions[key[1]]
        if record.leader_id is None:
            return
        log = self.logs.setdefault(key, {})
        end = log.get(record.leader_id, 0) + 1
        for node in record.isr_ids:
            log[node] = end
        if len(record.isr_ids) >= topic.replication.min_insync_replicas:
            self.committed[key] = end

    def copy(self, image: ClusterImage, key: Key, node: str) -> None:
        """A follower copies what its leader has."""
        record = image.topics[key[0]].partitions[key[1]]  # type: ignore[index]
        log = self.logs.setdefault(key, {})
        log[node] = log.get(str(record.leader_id), 0)

    def wipe(self, node: str) -> None:
        for log in self.logs.values():
            log.pop(node, None)

    def crash(self, image: ClusterImage, node: str) -> None:
        """A node loses what it had not synced: of topics that do not wait for it, everything."""
        for topic in image.topics.values():
            if not image.catalog.get(topic.name).settings.is_fsync:
                for number in range(len(topic.partitions)):
                    self.logs.get((topic.id, number), {}).pop(node, None)

    def check(self, image: ClusterImage) -> None:
        """Every leader and everyone in sync or eligible has all that is committed."""
        for topic in image.topics.values():
            for number, record in enumerate(topic.partitions):
                key = (topic.id, number)
                log, committed = self.logs.get(key, {}), self.committed.get(key, 0)
                for node in (*record.isr_ids, *record.elr_ids):
                    assert log.get(node, 0) >= committed, f"{topic.name}/{number} on {node}"


class ClusterMachine(RuleBasedStateMachine):
    """Nodes come and go, topics and replicas change, decisions are cut and repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.messages = Messages()
        self.disks = dict.fromkeys(NODES, 0)
        self.is_thorough = True

    @initialize()
    def found(self) -> None:
        self.world = founded("a", "b", "c")

    def attempt(self, command: commands.Command, *, cut: bool = False) -> None:
        """Propose; the controller may die after the first entry, and the command is repeated."""
        world = self.world
        proposal = commands.Proposal(command=command)
        before = state_of(world.image) if self.is_thorough else []
        try:
            decision = decide(world.image, proposal, now_ms=world.now_ms)
        except GoQueueError:
            assert not self.is_thorough or state_of(world.image) == before
            return
        if self.is_thorough:
            assert state_of(world.image) == before, "deciding changes nothing"
            assert decision == decide(world.image, proposal, now_ms=world.now_ms), "one answer"
        found = events.entries(decision.events)
        for entry in found[:1] if cut else found:
            self.note_unclean(entry)
            world.apply(entry)
        if cut and len(found) > 1:
            self.attempt(command)

    def note_unclean(self, entry: list[events.Event]) -> None:
        """What an unclean leader lacks is lost; from then on it counts as never committed."""
        for event in entry:
            if isinstance(event, events.PartitionsChanged):
                for topic_id, partition in event.unclean:
                    self.messages.unclean += 1
                    self.messages.committed.pop((topic_id, partition), None)
                    self.messages.logs.pop((topic_id, partition), None)

    @rule(node=nodes, kind=st.sampled_from(["same", "clean", "wiped"]), unfence=st.booleans())
    def start(self, node: str, kind: str, unfence: bool) -> None:  # noqa: FBT001 - drawn
        world = self.world
        known = world.image.nodes.get(node)  # type: ignore[call-overload]
        # The directory of a removed node is refused for good; an empty one is not.
        if kind == "wiped" and (known is None or known.is_fenced):
            self.disks[node] += 1
            self.messages.wipe(node)
        if kind == "same":
            self.messages.crash(self.world.image, node)
        directory = f"{node}-{self.disks[node]}" if self.disks[node] else f"{node}-disk"
        world.incarnations[directory] = world.incarnations.get(directory, 0) + 1
        self.attempt(
            commands.RegisterNode(
                cluster_id="blue",
                node=node,
                directory=directory,
                incarnation=world.incarnations[directory],
                is_clean=kind == "clean",
            )
        )
        if unfence and node in world.image.nodes:
            self.attempt(commands.UnfenceNode(node=node, epoch=world.epoch(node)))

    @rule(
        node=nodes,
        kind=st.sampled_from(
            [commands.UnfenceNode, commands.FenceNode, commands.BeginLeave, commands.FinishLeave]
        ),
        cut=st.booleans(),
    )
    def step(self, node: str, kind: Callable[..., Any], cut: bool) -> None:  # noqa: FBT001 - drawn
        if node in self.world.image.nodes:
            self.attempt(kind(node=node, epoch=self.world.epoch(node)), cut=cut)

    @rule(node=nodes)
    def forget(self, node: str) -> None:
        self.attempt(commands.ForgetNode(node=node))

    @rule(node=nodes, move=st.booleans(), cancel=st.booleans())
    def retire(self, node: str, move: bool, cancel: bool) -> None:  # noqa: FBT001 - drawn
        command = commands.RetireNode(node=node, move_replicas=move, is_cancelled=cancel)
        self.attempt(command)

    @rule(
        name=topics,
        count=st.integers(1, 3),
        factor=st.integers(1, 4),
        least=st.integers(1, 3),
        durability=st.sampled_from(["fsync", "os"]),
    )
    def create(self, name: str, count: int, factor: int, least: int, durability: str) -> None:
        chosen: dict[str, commands.Setting] = {
            "replication_factor": factor,
            "min_insync_replicas": least,
            "durability": durability,
        }
        self.attempt(commands.CreateTopic(name=name, partitions=count, settings=chosen))

    @rule(name=topics, least=st.integers(1, 3), unclean=st.booleans(), cut=st.booleans())
    def configure(self, name: str, least: int, unclean: bool, cut: bool) -> None:  # noqa: FBT001
        chosen: dict[str, commands.Setting] = {
            "min_insync_replicas": least,
            "unclean_leader_election": unclean,
        }
        self.attempt(commands.ConfigureTopic(name=name, settings=chosen), cut=cut)

    @rule(name=topics)
    def delete(self, name: str) -> None:
        self.attempt(commands.DeleteTopic(name=name))

    @rule(name=topics, count=st.integers(1, 4), finish=st.booleans())
    def scale(self, name: str, count: int, finish: bool) -> None:  # noqa: FBT001 - drawn
        self.attempt(commands.AddPartitions(name=name, count=count))
        known = {one.name: one for one in self.world.image.topics.values()}.get(TopicName(name))
        if finish and known is not None and known.is_scaling:
            ends = [count] * known.history[-2].count
            self.attempt(commands.FinishScaling(name=name, topic_id=known.id, ends=ends))

    @rule(name=topics, partition=parts, members=st.sets(nodes))
    def alter(self, name: str, partition: int, members: set[str]) -> None:
        """A leader asks for a set; new members have copied everything before."""
        image = self.world.image
        topic = next((one for one in image.topics.values() if one.name == name), None)
        if topic is None or partition >= len(topic.partitions):
            return
        record = topic.partitions[partition]
        leader = record.leader_id
        if leader is None:
            return
        wanted = {leader, *(node for node in members if node in record.replicas)}
        for node in wanted - set(record.isr_ids):
            self.messages.copy(image, (topic.id, partition), node)
        part = self.world.part(name, *sorted(wanted), partition=partition)
        self.attempt(
            commands.AlterPartitions(node=leader, epoch=self.world.epoch(leader), parts=[part])
        )

    @rule(name=topics, partition=parts, new=st.permutations(NODES), size=st.integers(1, 3))
    def move(self, name: str, partition: int, new: list[str], size: int) -> None:
        part = commands.PartMove(topic=name, partition=partition, new=new[:size])
        self.attempt(commands.StartReassignment(parts=[part], moves_per_node=1, timeout_ms=50))

    @rule(
        number=st.integers(1, 4),
        kind=st.sampled_from(
            [commands.PauseReassignment, commands.ResumeReassignment, commands.CancelReassignment]
        ),
    )
    def turn(self, number: int, kind: Callable[..., Any]) -> None:
        self.attempt(kind(id=f"reassign-{number}"))

    @rule(
        command=st.sampled_from(
            [commands.AdvanceMoves(), commands.BalanceLeaders(), commands.MendLeaders()]
        )
    )
    def tick(self, command: commands.Command) -> None:
        self.world.now_ms += 20
        self.attempt(command)

    @rule(name=topics, partition=parts)
    def publish(self, name: str, partition: int) -> None:
        for topic in self.world.image.topics.values():
            if topic.name == name:
                self.messages.append(self.world.image, (topic.id, partition))

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        self.messages.check(self.world.image)
        assert self.messages.unclean == self.world.image.unclean_elections

    def teardown(self) -> None:
        """Replaying the log, or a snapshot, gives the same image, byte for byte."""
        state = state_of(self.world.image)
        assert state_of(rebuilt(self.world.log)) == state
        assert state_of(rebuilt(state)) == state


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(
    max_examples=120,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


Step = Callable[[ClusterMachine, random.Random], None]


def change_node(machine: ClusterMachine, chance: random.Random) -> None:
    node, cut = chance.choice(NODES), chance.random() < 0.5
    kinds = [commands.FenceNode, commands.FenceNode, commands.BeginLeave, commands.FinishLeave]
    machine.step(node=node, kind=chance.choice(kinds), cut=cut)


def change_topic(machine: ClusterMachine, chance: random.Random) -> None:
    name, least = chance.choice(TOPICS), chance.randint(1, 3)
    machine.configure(
        name=name, least=least, unclean=chance.random() < 0.1, cut=chance.random() < 0.5
    )
    if chance.random() < 0.2:
        machine.scale(name=name, count=chance.randint(1, 4), finish=True)
    if chance.random() < 0.1:
        machine.delete(name=name)


def make_topic(machine: ClusterMachine, chance: random.Random) -> None:
    durability = chance.choice(["fsync", "fsync", "os"])
    factor, least = chance.randint(1, 3), chance.randint(1, 3)
    name = chance.choice(TOPICS)
    machine.create(name=name, count=3, factor=factor, least=least, durability=durability)


def move_replicas(machine: ClusterMachine, chance: random.Random) -> None:
    name, partition = chance.choice(TOPICS), chance.randrange(3)
    new, size = chance.sample(NODES, 4), chance.randint(1, 3)
    machine.move(name=name, partition=partition, new=new, size=size)
    numbers = list(machine.world.image.reassignments)
    if numbers and chance.random() < 0.3:
        machine.turn(number=chance.choice(numbers), kind=commands.CancelReassignment)


def change_isr(machine: ClusterMachine, chance: random.Random) -> None:
    members = {str(node) for node in machine.world.image.nodes if chance.random() < 0.7}
    machine.alter(name=chance.choice(TOPICS), partition=chance.randrange(3), members=members)


def pass_time(machine: ClusterMachine, chance: random.Random) -> None:
    due = [commands.AdvanceMoves(), commands.BalanceLeaders(), commands.MendLeaders()]
    machine.tick(command=chance.choice(due))


def start_node(machine: ClusterMachine, chance: random.Random) -> None:
    kind = chance.choice(["same", "clean", "wiped"])
    machine.start(node=chance.choice(NODES), kind=kind, unfence=chance.random() < 0.8)


def publish_some(machine: ClusterMachine, chance: random.Random) -> None:
    machine.publish(name=chance.choice(TOPICS), partition=chance.randrange(3))


STEPS: dict[Step, int] = {
    start_node: 20,
    publish_some: 30,
    change_isr: 30,
    change_node: 18,
    move_replicas: 12,
    change_topic: 8,
    pass_time: 6,
    make_topic: 10,
}


@pytest.mark.parametrize("seed", range(int(os.environ.get("GOQUEUE_IMAGE_SEEDS", "60"))))
def test_nothing_committed_is_lost_whatever_happens(seed: int) -> None:
    """Hundreds of steps from a seed: deeper than Hypothesis goes."""
    chance = random.Random(seed)
    machine = ClusterMachine()
    machine.is_thorough = False
    machine.found()
    for step in chance.choices(list(STEPS), weights=list(STEPS.values()), k=400):
        step(machine, chance)
        machine.nothing_committed_is_lost()

    machine.teardown()
