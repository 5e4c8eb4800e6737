"""A leader counts what is on disks, with everybody who may be in sync."""

import pytest

from goqueue.base.errors import NotEnoughReplicasError, NotLeaderError
from goqueue.base.ids import NO_EPOCH, Epoch, NodeEpoch, NodeId, Offset, PartitionEpoch
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.leader import (
    PROPOSAL_RETRY_MS,
    GroupLeader,
    LeaderEffect,
    ProposeIsr,
    WaitersFailed,
    WaitersReleased,
    WatermarkMoved,
)
from goqueue.core.replication.replica import (
    DATA_LOG,
    STATE_LOG,
    AlterOutcome,
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    IsrAnswer,
    LogId,
    ReplicaLog,
    ReplicaSet,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
LAG_MS = 10_000


def state(
    *isr: NodeId, version: int = 1, min_insync: int = 2, replicas: tuple[NodeId, ...] = (A, B, C)
) -> ReplicaSet:
    return ReplicaSet(
        epoch=Epoch(5),
        partition_epoch=PartitionEpoch(version),
        leader=A,
        replicas=replicas,
        isr=isr,
        min_insync=min_insync,
    )


class Story:
    """A leader with a data log of ten messages, all of them on its own disk."""

    def __init__(self, begin: ReplicaSet, *, logs: tuple[LogId, ...] = (DATA_LOG,)) -> None:
        self.now_ms = 100_000
        self.heard: dict[NodeId, int] = {}
        self.logs = {}
        for log in logs:
            own = ReplicaLog(end_offset=Offset(10), durable_offset=Offset(10))
            own.epochs.begin(EpochStart(Epoch(1), Offset(0)))
            own.epochs.begin(EpochStart(Epoch(5), Offset(10)))
            self.logs[log] = own
        self.leader = GroupLeader(
            A, begin, self.logs, heard=self.heard, now_ms=self.now_ms, lag_ms=LAG_MS
        )

    def fetch(
        self,
        node: NodeId,
        offset: int,
        durable: int | None = None,
        *,
        epoch: int = 5,
        last_epoch: int | None = None,
        log: LogId = DATA_LOG,
        node_epoch: int = 1,
    ) -> FetchAnswer | None:
        self.heard[node] = self.now_ms
        last = self.logs[log].epochs.last_epoch(Offset(offset))
        position = FetchPosition(
            epoch=Epoch(epoch),
            offset=Offset(offset),
            last_epoch=last if last_epoch is None else Epoch(last_epoch),
            durable_offset=Offset(offset if durable is None else durable),
        )
        return self.leader.judge(
            node, log, position, node_epoch=NodeEpoch(node_epoch), now_ms=self.now_ms
        )

    def append(self, end: int, *, synced: bool = True, log: LogId = DATA_LOG) -> None:
        self.leader.appended(log, Offset(end))
        if synced:
            self.leader.synced(log, Offset(end))

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.leader.tick(now_ms=self.now_ms)

    def answer(self, outcome: AlterOutcome, now: ReplicaSet) -> None:
        answer = IsrAnswer(outcome=outcome, state=now)
        self.leader.answered(answer, now_ms=self.now_ms)

    def effects(self) -> list[LeaderEffect]:
        return self.leader.take_effects()

    def proposed(self) -> list[tuple[NodeId, ...]]:
        found = [effect for effect in self.effects() if isinstance(effect, ProposeIsr)]
        return [tuple(member.node for member in effect.isr) for effect in found]

    @property
    def watermark(self) -> int:
        return self.logs[DATA_LOG].high_watermark


def test_the_watermark_is_the_least_of_what_is_on_disks() -> None:
    """Of the leader and of every follower in sync; what was only fetched does not count."""
    story = Story(state(A, B, C))
    story.fetch(B, 10)
    story.fetch(C, 10, 7)
    assert story.watermark == 7
    story.append(12, synced=False)
    story.fetch(B, 12)
    story.fetch(C, 12)

    assert story.watermark == 10
    story.leader.synced(DATA_LOG, Offset(12))
    assert story.watermark == 12
    assert WatermarkMoved(log=DATA_LOG, high_watermark=Offset(12)) in story.effects()


def test_a_new_leader_keeps_its_watermark_until_its_isr_has_fetched() -> None:
    """It does not take its own end for committed."""
    story = Story(state(A, B, C))
    story.logs[DATA_LOG].high_watermark = Offset(4)
    story.leader.synced(DATA_LOG, Offset(10))
    story.fetch(B, 10)

    assert story.watermark == 4
    story.fetch(C, 10)
    assert story.watermark == 10


def test_a_leader_that_lagged_takes_nothing_for_committed_that_it_does_not_have() -> None:
    """It was elected uncleanly, and heard of a watermark beyond its own end."""
    log = ReplicaLog(end_offset=Offset(10), durable_offset=Offset(10), high_watermark=Offset(20))
    begin = state(A, replicas=(A, B), min_insync=2)
    leader = GroupLeader(A, begin, {DATA_LOG: log}, heard={}, now_ms=0)
    leader.appended(DATA_LOG, Offset(12))
    leader.wait(DATA_LOG, Offset(12), "waiter")

    assert log.high_watermark == 10
    assert leader.take_effects() == []


def test_waiters_hear_when_their_messages_are_committed() -> None:
    """In any order, once, with the number of disks that have them."""
    story = Story(state(A, B, C))
    story.append(12)
    story.leader.wait(DATA_LOG, Offset(12), "late")
    story.leader.wait(DATA_LOG, Offset(11), "early")
    story.fetch(B, 12)
    story.fetch(C, 11)
    released = [e for e in story.effects() if isinstance(e, WaitersReleased)]
    assert released == [WaitersReleased(waiters=("early",), replicas=3)]
    story.leader.wait(DATA_LOG, Offset(10), "repeat")
    story.leader.close()

    assert story.effects() == [
        WaitersReleased(waiters=("repeat",), replicas=3),
        WaitersFailed(waiters=("late",)),
    ]
    assert story.leader.replicas_with(DATA_LOG, Offset(12)) == 2


def test_with_too_few_in_sync_nothing_is_taken_and_nothing_is_committed() -> None:
    """Not even what was appended before."""
    story = Story(state(A, B, C))
    story.append(12)
    story.leader.changed(state(A, version=2), now_ms=story.now_ms)

    assert story.watermark == 0
    with pytest.raises(NotEnoughReplicasError):
        story.leader.check_append()
    assert not story.leader.is_alone
    story.leader.changed(state(A, version=3, min_insync=1), now_ms=story.now_ms)
    assert story.watermark == 12
    assert story.leader.is_alone


def test_a_partition_with_one_replica_commits_by_itself() -> None:
    """It asks for no more replicas than it has."""
    story = Story(state(A, replicas=(A,)))
    story.leader.check_append()
    story.append(11)

    assert story.leader.is_alone
    assert story.watermark == 11


def test_a_follower_that_lags_leaves_by_time_only() -> None:
    """However far it is behind; until the controller has agreed it is counted."""
    story = Story(state(A, B, C))
    story.fetch(B, 10)
    story.fetch(C, 10)
    story.append(1_000_000)
    for _ in range(9):
        story.pass_ms(1_000)
        story.fetch(B, 1_000_000)
        assert story.proposed() == []
    story.pass_ms(2_000)

    assert story.proposed() == [(A, B)]
    assert story.watermark == 10
    story.answer(AlterOutcome.ACCEPTED, state(A, B, version=2))
    assert story.watermark == 1_000_000


def test_a_follower_whose_syncs_take_long_stays_as_long_as_it_gets_on() -> None:
    """It is never at the end, but always where the end was a while ago."""
    story = Story(state(A, B, C))
    for turn in range(30):
        story.append(20 + 10 * turn)
        story.fetch(B, 20 + 10 * turn)
        story.fetch(C, 20 + 10 * turn, max(10, 10 * turn - 20))
        story.pass_ms(1_000)

    assert story.proposed() == []


def test_an_idle_follower_is_in_sync_while_its_node_is_heard() -> None:
    """Its log is not mentioned in requests, because nothing has changed."""
    story = Story(state(A, B, C))
    story.fetch(B, 10)
    story.fetch(C, 10)
    for _ in range(60):
        story.pass_ms(1_000)
        story.heard[B] = story.now_ms
        if story.now_ms < 130_000:
            story.heard[C] = story.now_ms

    assert set(story.proposed()) == {(A, B)}


def test_a_follower_enters_when_it_has_all_from_before_the_epoch() -> None:
    """The watermark of a new leader may be old: messages behind it may be committed."""
    story = Story(state(A, B))
    story.logs[DATA_LOG].high_watermark = Offset(4)
    story.fetch(C, 9)
    assert story.watermark == 4
    assert story.proposed() == []
    story.fetch(C, 10)

    assert story.proposed() == [(A, B, C)]
    story.fetch(B, 10)
    story.append(11)
    story.fetch(B, 11)
    assert story.watermark == 10, "the controller may have let it in already"
    story.fetch(C, 11)
    assert story.watermark == 11


def test_a_follower_enters_with_all_its_logs() -> None:
    """The state log moves with the data."""
    story = Story(state(A, B), logs=(DATA_LOG, STATE_LOG))
    story.fetch(C, 10)
    assert story.proposed() == []
    story.fetch(C, 10, log=STATE_LOG)

    assert story.proposed() == [(A, B, C)]
    story.fetch(B, 10, log=STATE_LOG)
    assert story.logs[STATE_LOG].high_watermark == 10
    assert story.watermark == 0


def test_a_proposal_without_answer_is_sent_again() -> None:
    """Lost or late: the controller takes the first, the second is stale."""
    story = Story(state(A, B))
    story.fetch(C, 10)
    assert len(story.proposed()) == 1
    story.fetch(C, 10)
    assert story.proposed() == []
    story.heard[C] = story.now_ms + PROPOSAL_RETRY_MS
    story.pass_ms(PROPOSAL_RETRY_MS)

    assert story.proposed() == [(A, B, C)]
    story.answer(AlterOutcome.STALE, state(A, B, C, version=2))
    assert story.leader.state.isr == (A, B, C)
    story.answer(AlterOutcome.ACCEPTED, state(A, B, version=1))
    assert story.leader.state.isr == (A, B, C), "what is older comes late"


def test_a_refused_member_counts_until_the_partition_has_changed() -> None:
    """A copy of the proposal may still be accepted; the same ISR, accepted, rules it out."""
    story = Story(state(A, B))
    story.fetch(B, 10)
    story.fetch(C, 10)
    assert story.proposed() == [(A, B, C)]
    story.answer(AlterOutcome.INELIGIBLE, state(A, B))
    story.append(11)
    story.fetch(B, 11)
    assert story.watermark == 10
    story.pass_ms(PROPOSAL_RETRY_MS)

    assert story.proposed() == [(A, B)]
    story.answer(AlterOutcome.ACCEPTED, state(A, B, version=2))
    assert story.watermark == 11


def test_an_answer_to_an_earlier_leadership_means_nothing() -> None:
    """It was fenced then, and leads again."""
    story = Story(state(A, B, C))
    story.answer(AlterOutcome.FENCED, state(A, B, C))
    story.leader.check_append()

    later = ReplicaSet(
        epoch=Epoch(6), partition_epoch=PartitionEpoch(9), leader=B, replicas=(A, B, C), isr=(B, C)
    )
    story.answer(AlterOutcome.FENCED, later)
    with pytest.raises(NotLeaderError):
        story.leader.check_append()


def test_a_leader_resigns_when_its_disk_fails() -> None:
    """Those who wait are in doubt, and nothing is committed any more."""
    story = Story(state(A, B, C))
    story.append(11)
    story.leader.wait(DATA_LOG, Offset(11), "waiter")
    story.leader.disk_failed()
    resigned, failed = story.effects()

    assert isinstance(resigned, ProposeIsr)
    assert resigned.resigns
    assert [member.node for member in resigned.isr] == [B, C]
    assert failed == WaitersFailed(waiters=("waiter",))
    story.fetch(B, 11)
    story.fetch(C, 11)
    assert story.watermark == 0
    story.leader.wait(DATA_LOG, Offset(11), "later")
    assert story.effects() == [WaitersFailed(waiters=("later",))]


def test_positions_that_do_not_fit_are_not_counted() -> None:
    """Another epoch, another log, before the start: each is told what to do."""
    story = Story(state(A, B, C))
    story.logs[DATA_LOG].start_offset = Offset(3)

    def outcome(offset: int, *, epoch: int = 5, last_epoch: int = 1) -> FetchOutcome | None:
        said = story.fetch(B, offset, epoch=epoch, last_epoch=last_epoch)
        return None if said is None else said.outcome

    assert outcome(10, epoch=4) is FetchOutcome.FENCED
    assert outcome(10, epoch=6) is FetchOutcome.UNKNOWN
    assert outcome(2) is FetchOutcome.OUT_OF_RANGE
    assert outcome(11) is FetchOutcome.DIVERGING
    assert outcome(9, last_epoch=3) is FetchOutcome.DIVERGING
    assert outcome(9, last_epoch=NO_EPOCH) is None
    stranger = story.fetch(NodeId("x"), 10)
    assert stranger is not None
    assert stranger.outcome is FetchOutcome.UNKNOWN
    assert story.leader.replicas_with(DATA_LOG, Offset(10)) == 1


def test_a_replica_that_lost_what_it_had_leaves_at_once() -> None:
    """A process that comes back with less than is committed does not count as in sync."""
    story = Story(state(A, B, C))
    story.fetch(B, 10)
    story.fetch(C, 10)
    story.fetch(C, 6, node_epoch=2)

    assert story.proposed() == [(A, B)]
    assert story.watermark == 10
    story.answer(AlterOutcome.ACCEPTED, state(A, B, version=2))
    story.fetch(C, 10, node_epoch=2)
    assert story.proposed() == [(A, B, C)]
    story.answer(AlterOutcome.ACCEPTED, state(A, B, C, version=3))
    story.pass_ms(1_000)
    assert story.proposed() == []


def test_what_a_follower_reported_late_does_not_take_back_what_it_has() -> None:
    """Requests may come out of order; a follower has no more on its disk than it fetched."""
    story = Story(state(A, B))
    story.append(12)
    story.fetch(B, 12)
    assert story.watermark == 12
    story.fetch(B, 11, 10)
    story.append(13)
    story.fetch(B, 12, 99)

    assert story.watermark == 12
