"""Replicas on their way to other nodes, while topics change and nodes die."""

import os
import random

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.cluster.commands import (
    AddPartitions,
    AdvanceMoves,
    CancelReassignment,
    CreateTopic,
    DeleteTopic,
    PartMove,
    PauseReassignment,
    ResumeReassignment,
    StartReassignment,
)
from goqueue.core.cluster.replies import ReassignmentReply
from goqueue.core.replication.replica import DATA_LOG
from tests.runtime.cluster.replica_steps import publish_once, values_at
from tests.sim.cluster_clients import log_bytes, place_of
from tests.sim.cluster_nodes import SimCluster, SimNode, run_cluster

SEEDS = int(os.environ.get("GOQUEUE_SIM_SEEDS", "200")) // 20
PLACE = place_of("orders")
VALUES = [b"value %d" % number for number in range(20)]
SLOW = 2_000


async def placed(cluster: SimCluster, *replicas: str, values: list[bytes] = VALUES) -> None:
    """Make the topic ``orders`` on some nodes, with messages."""
    cluster.controller.decide(
        CreateTopic(name="orders", partitions=1, assignments={0: list(replicas)})
    )
    await cluster.until(cluster.is_whole)
    for value in values:
        await publish_once(cluster, value)


def begin(cluster: SimCluster, *new: str, throttle: int = 1 << 30) -> str:
    """Begin to move the only partition; return the id of the reassignment."""
    parts = [PartMove(topic="orders", partition=0, new=list(new))]
    reply = cluster.controller.decide(StartReassignment(parts=parts, throttle_bytes=throttle))
    assert isinstance(reply, ReassignmentReply)
    return reply.id


def is_over(cluster: SimCluster) -> bool:
    return not cluster.controller.image.moving and cluster.is_whole()


def is_empty(node: SimNode) -> bool:
    """Return True if a node has nothing of the partition."""
    place = TopicPartition(TopicName("orders"), PartitionId(0))
    return (
        place not in node.replicas.groups
        and node.broker.topic("orders").partition(0).log.end_offset == 0
    )


def test_a_partition_moves_with_all_its_messages() -> None:
    """The new replicas are equal to the old ones, which have nothing left."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        begin(cluster, "n3", "n4")
        await cluster.until(lambda: is_over(cluster))
        await publish_once(cluster, b"after")
        new = [cluster.nodes[NodeId(name)] for name in ("n3", "n4")]
        await cluster.until(
            lambda: log_bytes(cluster, new[0], PLACE) == log_bytes(cluster, new[1], PLACE)
        )

        assert cluster.record("orders").replicas == ("n3", "n4")
        assert await values_at(cluster.leader("orders")) == [*VALUES, b"after"]
        await cluster.until(lambda: all(is_empty(cluster.nodes[NodeId(n)]) for n in ("n1", "n2")))

    run_cluster(scenario, nodes=4)


def test_what_is_paused_is_not_copied_until_it_is_resumed() -> None:
    """A replica that is in sync goes on; one that is brought in waits."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        name = begin(cluster, "n2", "n3", throttle=SLOW)
        cluster.controller.decide(PauseReassignment(id=name))
        await cluster.advance_ms(1_000)
        before = cluster.partition(cluster.nodes[NodeId("n3")], "orders").log.end_offset
        await publish_once(cluster, b"meanwhile")
        await cluster.advance_ms(20_000)
        after = cluster.partition(cluster.nodes[NodeId("n3")], "orders").log.end_offset
        assert before == after < len(VALUES)
        assert cluster.controller.image.moving
        cluster.controller.decide(ResumeReassignment(id=name))
        await cluster.until(lambda: is_over(cluster))

        assert await values_at(cluster.leader("orders")) == [*VALUES, b"meanwhile"]

    run_cluster(scenario, nodes=3)


def test_the_throttle_holds_up_what_moves_and_nothing_else() -> None:
    """Copies take as long as the throttle says; acks do not wait for them."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        log = cluster.nodes[NodeId("n1")].replicas.groups[PLACE].logs[DATA_LOG].partition
        assert log is not None
        size = log.log.size_bytes
        began = cluster.simulation.loop.time()
        begin(cluster, "n1", "n2", "n3", throttle=size // 10)
        await publish_once(cluster, b"meanwhile")
        assert cluster.simulation.loop.time() - began < 1
        await cluster.until(lambda: is_over(cluster))
        seconds = cluster.simulation.loop.time() - began

        assert 8 < seconds < 14

    run_cluster(scenario, nodes=3)


def test_a_topic_that_is_deleted_and_made_again_while_it_moves() -> None:
    """Hard case 17: nothing of the old topic is in the new one, nor is it moved."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        begin(cluster, "n3", "n4", throttle=SLOW)
        await cluster.advance_ms(300)
        cluster.nodes[NodeId("n3")].kill()
        cluster.controller.decide(DeleteTopic(name="orders"))
        assert not cluster.controller.image.moving
        cluster.controller.decide(
            CreateTopic(name="orders", partitions=1, assignments={0: ["n4", "n2", "n1"]})
        )
        await cluster.until(lambda: cluster.is_led("orders"))
        await publish_once(cluster, b"new")
        cluster.nodes[NodeId("n3")].begin()
        await cluster.until(lambda: is_over(cluster))
        await cluster.advance_ms(2_000)

        assert await values_at(cluster.leader("orders")) == [b"new"]
        found = {log_bytes(cluster, cluster.nodes[NodeId(n)], PLACE) for n in ("n1", "n2", "n4")}
        assert len(found) == 1
        assert is_empty(cluster.nodes[NodeId("n3")])

    run_cluster(scenario, nodes=4)


def test_a_topic_that_grows_while_it_moves() -> None:
    """Hard case 17: the old partition arrives, the new ones are led."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        begin(cluster, "n3", "n4", throttle=SLOW)
        await cluster.advance_ms(300)
        cluster.controller.decide(AddPartitions(name="orders", count=4))
        await cluster.until(lambda: is_over(cluster))

        assert cluster.record("orders").replicas == ("n3", "n4")
        assert await values_at(cluster.leader("orders")) == VALUES
        assert all(
            len(node.broker.topic("orders").partitions) == 4 for node in cluster.nodes.values()
        )

    run_cluster(scenario, nodes=4)


def test_one_that_is_cancelled_is_as_it_was() -> None:
    """What was copied is removed, and the next move begins from nothing."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        name = begin(cluster, "n3", "n4", throttle=SLOW)
        await cluster.advance_ms(500)
        cluster.controller.decide(CancelReassignment(id=name))
        await cluster.until(lambda: is_over(cluster))
        assert cluster.record("orders").replicas == ("n1", "n2")
        await cluster.until(lambda: all(is_empty(cluster.nodes[NodeId(n)]) for n in ("n3", "n4")))
        begin(cluster, "n3", "n4")
        await cluster.until(lambda: is_over(cluster))

        assert await values_at(cluster.leader("orders")) == VALUES

    run_cluster(scenario, nodes=4)


def test_a_node_that_was_away_drops_what_has_moved_meanwhile() -> None:
    """Its files are of no use, and would never go; it may get the partition again."""

    async def scenario(cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2")
        away = cluster.nodes[NodeId("n1")]
        away.kill()
        await cluster.until(lambda: cluster.is_led("orders"))
        begin(cluster, "n3", "n4")
        await cluster.until(lambda: not cluster.controller.image.moving)
        away.begin()
        await cluster.until(lambda: is_over(cluster))
        await cluster.until(lambda: is_empty(away))
        begin(cluster, "n1", "n3")
        await cluster.until(lambda: is_over(cluster))

        assert await values_at(cluster.leader("orders")) == VALUES

    run_cluster(scenario, nodes=4)


class MovesUnderFaults:
    """A topic that moves all the time, on nodes that die."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.acked: list[bytes] = []
        self.steps: list[str] = []

    async def run(self, cluster: SimCluster) -> None:
        await placed(cluster, "n1", "n2", "n3", values=[])
        names = ["publish"] * 4 + ["move", "turn", "kill", "cut_power", "wait"]
        for number in range(30):
            step = self._chance.choice(names)
            self.steps.append(step)
            try:
                await self._step(cluster, step, number)
            except GoQueueError:
                await cluster.advance_ms(200)
        await self._end(cluster)

    async def _step(self, cluster: SimCluster, step: str, number: int) -> None:
        chance, image = self._chance, cluster.controller.image
        if step == "publish" and not cluster.is_led("orders"):
            await cluster.advance_ms(500)
        elif step == "publish":
            await publish_once(cluster, b"%d" % number)
            self.acked.append(b"%d" % number)
        elif step == "move":
            new = chance.sample([str(name) for name in cluster.names], 3)
            begin(cluster, *new, throttle=chance.choice([50, 1 << 20]))
        elif step == "turn":
            turn = chance.choice((PauseReassignment, ResumeReassignment, CancelReassignment))
            cluster.controller.decide(turn(id=f"reassign-{max(image.reassignments, default=1)}"))
        elif step == "wait":
            await cluster.advance_ms(chance.randrange(10, 2_000))
        else:
            getattr(cluster.nodes[chance.choice(cluster.names)], step)()
            await cluster.advance_ms(chance.randrange(100, 4_000))
            cluster.heal()

    async def _end(self, cluster: SimCluster) -> None:
        cluster.heal()
        for one in [one for one in cluster.controller.image.reassignments.values() if one.is_open]:
            cluster.controller.decide(ResumeReassignment(id=one.id))
        cluster.controller.decide(AdvanceMoves())
        await cluster.until(lambda: is_over(cluster), 120)
        acked = set(self.acked)
        # A new leader shows messages when its replicas have said what they have.
        partition = cluster.partition(cluster.leader("orders"), "orders")
        await cluster.until(lambda: partition.visible_offset == partition.log.end_offset)
        read = await values_at(cluster.leader("orders"))
        assert [value for value in read if value in acked] == self.acked
        replicas = [cluster.nodes[name] for name in cluster.record("orders").replicas]
        await cluster.until(lambda: len({log_bytes(cluster, n, PLACE) for n in replicas}) == 1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_moves_under_faults(seed: int) -> None:
    """P1: whatever dies meanwhile, what was acknowledged is there once, in order, everywhere."""
    moves = MovesUnderFaults(seed)
    try:
        run_cluster(moves.run, seed=seed + 1, nodes=4)
    except BaseException as error:
        error.add_note(f"seed {seed}: {' '.join(moves.steps)}")
        raise
