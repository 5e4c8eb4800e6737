"""A leader and the controller: a proposal that is refused holds nothing up for long."""

from collections.abc import Sequence

from goqueue.base.ids import NO_EPOCH, NodeEpoch, NodeId, Offset
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.leader import PROPOSAL_RETRY_MS, GroupLeader, ProposeIsr
from goqueue.core.replication.replica import (
    DATA_LOG,
    AlterOutcome,
    FetchPosition,
    IsrAnswer,
    ReplicaLog,
    ReplicaSet,
)
from goqueue.runtime.cluster.isr_proposals import replica_set
from tests.core.cluster.world import World, founded

NODES = ("a", "b", "c")


class Leading:
    """The leader of a partition on node a, whose proposals an image decides about."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now_ms = 10_000
        self.own = ReplicaLog()
        self.heard: dict[NodeId, int] = {}
        self.leader = GroupLeader(
            NodeId("a"), self.state, {DATA_LOG: self.own}, heard=self.heard, now_ms=self.now_ms
        )

    @property
    def state(self) -> ReplicaSet:
        """The partition as the controller has it."""
        topic = self.world.image.topic("orders")
        return replica_set(topic, topic.partitions[0])

    def hear(self, node: str, durable: int) -> None:
        """Take the position of a follower that has so much of the log."""
        self.heard[NodeId(node)] = self.now_ms
        position = FetchPosition(
            epoch=self.leader.epoch,
            offset=Offset(durable),
            last_epoch=self.leader.epoch if durable else NO_EPOCH,
            durable_offset=Offset(durable),
        )
        epoch = NodeEpoch(self.world.epoch(node))
        assert not self.leader.judge(
            NodeId(node), DATA_LOG, position, node_epoch=epoch, now_ms=self.now_ms
        )

    def propose(self) -> Sequence[str]:
        """Have the controller decide about what the leader proposes; return the outcomes."""
        outcomes: list[str] = []
        for effect in self.leader.take_effects():
            if isinstance(effect, ProposeIsr):
                names = [str(member.node) for member in effect.isr]
                part = self.world.part("orders", *names)
                (outcome,) = self.world.alter(part, node="a")
                outcomes.append(outcome)
                verdict = AlterOutcome.ACCEPTED if outcome == "ok" else AlterOutcome.INELIGIBLE
                answer = IsrAnswer(outcome=verdict, state=self.state)
                self.leader.answered(answer, now_ms=self.now_ms)
        return outcomes


def test_a_replica_that_left_while_it_was_proposed_holds_up_no_message() -> None:
    """Its last fetch came just after it was taken out of the replicas in sync."""
    world = founded(*NODES)
    world.assign("orders", *NODES)
    world.fence("c")
    leading = Leading(world)
    leading.hear("c", 0)
    assert leading.propose() == ["node_fenced"]
    leading.leader.appended(DATA_LOG, Offset(1))
    leading.own.epochs.begin(EpochStart(leading.leader.epoch, Offset(0)))
    leading.leader.synced(DATA_LOG, Offset(1))
    leading.hear("b", 1)
    assert leading.own.high_watermark == 0, "a copy of the proposal might still be accepted"

    leading.now_ms += PROPOSAL_RETRY_MS
    leading.leader.tick(now_ms=leading.now_ms)
    assert leading.propose() == ["ok"]

    assert leading.own.high_watermark == 1
