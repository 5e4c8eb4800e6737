"""The hard cases, each as a story: what happens in which order, and what must be so afterwards."""

import pytest

from goqueue.base.ids import NodeId
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import AlterOutcome, IsrMember, LogKey
from goqueue.core.replication.session import SessionRequest
from tests.core.replication.cluster import Cluster, Plan
from tests.core.replication.feeding import Fetching
from tests.core.replication.node import SimNode
from tests.core.replication.world import CONTROLLER, Weather

A, B, C = NodeId("n0"), NodeId("n1"), NodeId("n2")


def started(seed: int, plan: Plan | None = None, *, messages: int = 5) -> tuple[Cluster, LogKey]:
    """Return a cluster led by its first node, with some messages everywhere."""
    cluster = Cluster(seed, plan)
    cluster.world.run(2_000)
    key = cluster.keys[0]
    if cluster.leader_of(key) != A:
        depose(cluster, key, A)
    for _ in range(messages):
        acked(cluster, key)
    cluster.world.run(1_000)
    return cluster, key


def depose(cluster: Cluster, key: LogKey, to: NodeId) -> None:
    """Have another node lead, by restarting those that do."""
    for _ in range(10):
        leader = cluster.leader_of(key)
        if leader == to:
            break
        assert leader is not None
        cluster.stop(leader, loses_power=False)
        cluster.world.run(2_000)
        cluster.start(leader)
        cluster.world.run(4_000)
    assert cluster.leader_of(key) == to


def acked(cluster: Cluster, key: LogKey) -> int:
    """Publish a message and wait until it is safe."""
    value = cluster.publish(key)
    assert cluster.world.run(10_000, until=lambda: value in cluster.checks.acked)
    return value


def values(node: SimNode, key: LogKey) -> list[int]:
    return [frame.value for frame in node.disk.logs[key].frames]


def others(cluster: Cluster, name: NodeId) -> list[str]:
    return [CONTROLLER, *[other for other in cluster.names if other != name]]


def knows(node: SimNode, other: SimNode) -> bool:
    """Return True if a node has heard that a process was let in."""
    node_epochs = node.image.node_epochs if node.image is not None else {}
    return other.node_epoch is not None and node_epochs.get(other.name) == other.node_epoch


def test_case_1_nothing_is_cut_at_a_watermark_that_was_not_heard_of() -> None:
    """KIP-101: the leader acks and dies; the next one has an older HW and keeps every message."""
    cluster, key = started(1)
    value = cluster.publish(key)
    cluster.world.run(500, until=lambda: value in cluster.checks.acked)
    assert cluster.nodes[B].logs[key].high_watermark <= cluster.nodes[B].logs[key].end_offset - 1
    for name in (B, C):
        cluster.restart(name)
    cluster.stop(A, loses_power=True)
    cluster.world.run(6_000)

    assert cluster.leader_of(key) in (B, C)
    for name in (B, C):
        assert value in values(cluster.nodes[name], key)
    cluster.finish()


def test_case_2_two_quick_failovers_leave_one_history() -> None:
    """KIP-279: frames of epochs that the next leader never saw are cut, others are not."""
    cluster, key = started(2)
    safe = values(cluster.nodes[A], key)
    cluster.world.isolate(A, others(cluster, A))
    for _ in range(3):
        cluster.publish(key, node=A)
    cluster.world.run(3_000)
    second = cluster.leader_of(key)
    assert second in (B, C)
    third = C if second == B else B
    cluster.world.isolate(second, [*others(cluster, second)])
    for _ in range(2):
        cluster.publish(key, node=second)
    cluster.world.run(3_000)
    cluster.finish()

    for name in (A, B, C):
        assert values(cluster.nodes[name], key)[: len(safe)] == safe
    assert third is not None


@pytest.mark.parametrize("away_ms", [1_000, 8_000, 20_000])
def test_case_3_an_isolated_leader_acks_nothing(away_ms: int) -> None:
    """However long it is away and whatever it takes; a repeat of each message is there once."""
    cluster, key = started(3)
    cluster.world.isolate(A, others(cluster, A))
    doubtful = [cluster.publish(key, node=A) for _ in range(5)]
    cluster.world.run(away_ms)

    assert not set(doubtful) & cluster.checks.acked.keys()
    cluster.heal()
    cluster.world.run(8_000)
    for value in doubtful:
        cluster.publish(key, value=value)
    assert cluster.world.run(10_000, until=lambda: set(doubtful) <= cluster.checks.acked.keys())
    cluster.finish()


def test_case_4_an_isr_that_shrinks_late_is_counted_until_then() -> None:
    """The leader waits for a follower until the controller has let it go, and acks after."""
    cluster, key = started(4, Plan(min_insync=2))
    cluster.world.cut(C, A)
    cluster.world.cut(A, CONTROLLER)
    value = cluster.publish(key, node=A)
    cluster.world.run(600)

    assert value not in cluster.checks.acked
    cluster.heal()
    cluster.world.cut(C, A)
    assert cluster.world.run(10_000, until=lambda: value in cluster.checks.acked)
    assert C not in cluster.state_of(key).isr
    cluster.finish()


def test_case_4_a_follower_that_may_have_been_let_in_is_counted() -> None:
    """KIP-497: the controller accepted it, the leader did not hear; it might be elected next."""
    cluster, key = started(41)
    cluster.stop(C, loses_power=False)
    cluster.world.run(4_000)
    assert cluster.state_of(key).isr == (A, B)
    back = cluster.start(C)
    assert cluster.world.run(2_000, until=lambda: knows(cluster.nodes[A], back))
    cluster.world.cut(CONTROLLER, A)
    assert cluster.world.run(8_000, until=lambda: C in cluster.state_of(key).isr)
    cluster.world.cut(A, C)
    cluster.world.cut(C, A)
    value = cluster.publish(key, node=A)
    cluster.world.run(500)

    assert cluster.nodes[A].leaders[key.group].state.isr == (A, B)
    assert value in values(cluster.nodes[B], key)
    assert value not in cluster.checks.acked
    for name in (A, B):
        cluster.stop(name, loses_power=True)
    cluster.world.run(3_000)
    assert cluster.leader_of(key) == C
    cluster.finish()


def test_case_4_a_copy_of_an_older_proposal_is_refused() -> None:
    """The follower was let in, cut off and let go since; the leader does not count it any more."""
    cluster, key = started(42)
    state = cluster.state_of(key)
    members = tuple(IsrMember(name, cluster.nodes[name].node_epoch) for name in state.isr)
    copy = ProposeIsr(epoch=state.epoch, partition_epoch=state.partition_epoch, isr=members)
    cluster.world.isolate(C, others(cluster, C))
    cluster.world.run(4_000)
    cluster.world.heal()
    cluster.world.cut(C, A)
    cluster.world.run(1_000)
    node_epoch = cluster.nodes[A].node_epoch
    assert node_epoch is not None
    answer = cluster.controller.alter(A, node_epoch, key.group, copy)

    assert answer.outcome is AlterOutcome.STALE
    assert cluster.state_of(key).isr == (A, B)
    cluster.finish()


def test_case_4_proposals_are_lost_repeated_and_reordered_with_an_election() -> None:
    """Whatever is answered late is about another state, and is known to be."""
    cluster, key = started(40)
    cluster.world.weather = Weather(loss=0.1, repeats=0.5, reorders=0.5, delay_ms_max=300)
    for turn in range(6):
        cluster.world.cut(C if turn % 2 else B, A)
        for _ in range(3):
            cluster.publish(key)
        cluster.world.run(2_500)
        weather = cluster.world.weather
        cluster.world.heal()
        cluster.world.weather = weather
        if turn == 3:
            cluster.restart(A)
        cluster.world.run(1_500)
    cluster.finish()


def test_case_5_the_last_replica_standing_keeps_what_was_acked() -> None:
    """The third one takes nothing alone; the last two to be in sync may lead, the first one not."""
    cluster, key = started(5)
    kept = acked(cluster, key)
    for name in (C, B):
        cluster.stop(name, loses_power=True)
        cluster.world.run(4_000)
    refused = cluster.publish(key, node=A)
    cluster.world.run(1_000)

    assert cluster.state_of(key).isr == (A,)
    assert refused not in values(cluster.nodes[A], key)
    cluster.stop(A, loses_power=True)
    cluster.world.run(3_000)
    assert cluster.leader_of(key) is None
    cluster.start(C)
    cluster.world.run(3_000)
    assert cluster.leader_of(key) is None, "it was let go while there were enough without it"
    cluster.start(B)
    cluster.world.run(3_000)
    assert cluster.leader_of(key) == B, "nothing was committed since it was let go"
    assert kept in values(cluster.nodes[B], key)
    cluster.finish()


def test_case_5_all_nodes_lose_power_at_once() -> None:
    """What was acked is on every disk, so nothing is lost."""
    cluster, key = started(50)
    safe = [acked(cluster, key) for _ in range(5)]
    for _ in range(5):
        cluster.publish(key)
    for name in cluster.names:
        cluster.stop(name, loses_power=True)
    cluster.world.run(3_000)
    cluster.finish()

    for node in cluster.nodes.values():
        assert set(safe) <= set(values(node, key))


def test_case_5_a_topic_without_fsync_does_not_trust_a_node_that_lost_power() -> None:
    """KIP-966: it leaves the replicas in sync before it does anything else."""
    cluster, key = started(51, Plan(is_fsynced=False))
    for node in cluster.nodes.values():
        node.sync_ms_max = 60_000
    cluster.nodes[A].sync_ms_max = 60_000
    kept = acked(cluster, key)
    before = len(cluster.controller.images)
    cluster.restart(A, loses_power=True)
    cluster.world.run(3_000)

    assert A not in cluster.controller.images[before].groups[key.group].isr
    assert cluster.leader_of(key) in (B, C)
    cluster.finish()
    assert kept in values(cluster.nodes[A], key)


def test_case_6_a_follower_that_dies_before_its_sync_has_reported_nothing() -> None:
    """The message is not acked before the follower has it again, synced."""
    cluster, key = started(6)
    cluster.nodes[B].sync_ms_max = cluster.nodes[C].sync_ms_max = 100_000
    value = cluster.publish(key, node=A)
    cluster.world.run(50, until=lambda: value in values(cluster.nodes[B], key))
    cluster.world.run(100)

    assert value in values(cluster.nodes[B], key)
    assert value not in cluster.checks.acked
    for name in (B, C):
        cluster.stop(name, loses_power=True)
        cluster.nodes[name].disk.logs[key].truncate(5)
        cluster.start(name)
    assert cluster.world.run(10_000, until=lambda: value in cluster.checks.acked)
    cluster.finish()


@pytest.mark.parametrize("wiped", [[C], [C, B]])
def test_case_8_a_wiped_node_is_a_new_replica(wiped: list[NodeId]) -> None:
    """It leaves the replicas in sync before it fetches, leads only when it has everything."""
    cluster, key = started(8)
    safe = acked(cluster, key)
    for name in wiped:
        cluster.stop(name, loses_power=True)
        cluster.start(name, wiped=True)
        assert name not in cluster.state_of(key).isr
        assert cluster.nodes[name].disk.logs[key].frames == []
        if name is wiped[-1]:
            break
        cluster.world.run(6_000)
    cluster.finish()

    for name in wiped:
        assert safe in values(cluster.nodes[name], key)


def test_case_8_two_of_three_wiped_at_once_lose_nothing_while_one_is_left() -> None:
    """The one that is left leads; if it dies before the others have copied it, nothing is led."""
    cluster, key = started(80)
    safe = acked(cluster, key)
    for name in (B, C):
        cluster.stop(name, loses_power=True)
        cluster.start(name, wiped=True)
    cluster.stop(A, loses_power=False)
    cluster.world.run(5_000)

    assert cluster.leader_of(key) is None
    cluster.finish()
    assert all(safe in values(node, key) for node in cluster.nodes.values())


def test_case_8_what_an_earlier_process_had_does_not_count_for_a_wiped_one() -> None:
    """KIP-903: neither a proposal that names it nor a fetch of it that arrives late is believed."""
    cluster, key = started(81)
    cluster.stop(C, loses_power=False)
    cluster.world.run(4_000)
    old = cluster.start(C)
    leader = cluster.nodes[A].leaders[key.group]
    assert cluster.world.run(2_000, until=lambda: knows(cluster.nodes[A], old))
    cluster.world.cut(A, CONTROLLER)
    assert cluster.world.run(900, until=lambda: C in leader.isr_max)
    assert old.node_epoch is not None
    state = leader.state
    members = (IsrMember(A, None), IsrMember(B, None), IsrMember(C, old.node_epoch))
    late = ProposeIsr(epoch=state.epoch, partition_epoch=state.partition_epoch, isr=members)
    position = old.followers[key.group].position(key.log)
    cluster.world.heal()
    cluster.world.cut(C, A)
    cluster.stop(C, loses_power=True)
    wiped = cluster.start(C, wiped=True)
    node_epoch = cluster.nodes[A].node_epoch
    assert node_epoch is not None
    answer = cluster.controller.alter(A, node_epoch, key.group, late)
    assert answer.outcome is AlterOutcome.INELIGIBLE

    assert cluster.world.run(900, until=lambda: knows(cluster.nodes[A], wiped))
    request = SessionRequest(session=2**60, sequence=0, answered=-1, parts=((key, position),))
    before = leader.replicas_with(key.log, position.offset)
    fetching = Fetching(C, old.node_epoch, request)
    cluster.nodes[A].act(lambda: cluster.nodes[A].fetch(fetching))
    assert request.session not in [feed.number for feed in cluster.nodes[A].feeds]
    assert leader.replicas_with(key.log, position.offset) <= before
    cluster.finish()


def test_case_9_an_election_that_was_not_heard_of_and_an_old_controller() -> None:
    """Nodes hear of an election late, and of older ones again: the latest counts."""
    cluster, key = started(9)
    old = list(cluster.controller.images)
    cluster.world.cut(A, CONTROLLER)
    for name in cluster.names:
        cluster.world.cut(CONTROLLER, name)
    cluster.world.run(2_000)
    assert cluster.leader_of(key) != A
    doubtful = cluster.publish(key, node=A)
    cluster.world.run(1_000)
    assert cluster.nodes[A].leaders

    cluster.world.heal()
    for image in old:
        for node in cluster.nodes.values():
            node.learn(image)
    cluster.world.run(3_000)
    assert [name for name in cluster.names if cluster.nodes[name].leaders] == [
        cluster.leader_of(key)
    ]
    cluster.publish(key, value=doubtful)
    cluster.finish()


def test_case_11_a_retry_finds_what_is_there() -> None:
    """The first part of a request survives the failover, the rest does not; each is there once."""
    cluster, key = started(11)
    first = [cluster.publish(key, node=A) for _ in range(2)]
    cluster.world.run(200, until=lambda: first[-1] in values(cluster.nodes[B], key))
    cluster.world.isolate(A, others(cluster, A))
    rest = [cluster.publish(key, node=A) for _ in range(2)]
    cluster.world.run(4_000)
    leader = cluster.leader_of(key)
    assert leader in (B, C)
    for value in [*first, *rest]:
        cluster.publish(key, node=leader, value=value)
        cluster.world.run(100)
    assert cluster.world.run(9_000, until=lambda: {*first, *rest} <= cluster.checks.acked.keys())
    cluster.finish()


def test_case_18_retention_passes_a_follower() -> None:
    """It starts again where the leader starts, and comes back into sync."""
    cluster, key = started(18)
    cluster.stop(C, loses_power=True)
    cluster.world.run(4_000)
    for _ in range(20):
        acked(cluster, key)
    leader = cluster.leader_of(key)
    assert leader is not None
    cluster.nodes[leader].trim(key, 0.9)
    start = cluster.nodes[leader].disk.logs[key].start_offset
    assert start > cluster.nodes[C].disk.logs[key].end_offset
    cluster.start(C)
    cluster.world.run(5_000)

    assert cluster.nodes[C].disk.logs[key].start_offset == start
    assert C in cluster.state_of(key).isr
    cluster.finish()


def test_case_18_retention_passes_a_follower_in_the_middle_of_its_session() -> None:
    """What is on its way to it is not sent any more."""
    cluster, key = started(181)
    cluster.world.weather = Weather(delay_ms_max=400)
    for _ in range(30):
        cluster.publish(key)
        cluster.world.run(30)
        for node in cluster.nodes.values():
            if node.leaders:
                node.trim(key, 1.0)
    cluster.finish()


def test_a_leader_whose_disk_fails_resigns() -> None:
    """Another one leads at once, without waiting for the session to end."""
    cluster, key = started(19)
    cluster.nodes[A].act(cluster.nodes[A].fail_disk)
    cluster.world.run(300)

    assert cluster.leader_of(key) in (B, C)
    acked(cluster, key)
    cluster.stop(A, loses_power=True)
    cluster.finish()


def test_a_leader_that_was_started_again_leads_in_a_new_epoch() -> None:
    """What followers have of its old epoch may differ from what it writes now."""
    cluster, key = started(20)
    epoch = cluster.state_of(key).epoch
    cluster.nodes[A].sync_ms_max = 100_000
    lost = cluster.publish(key, node=A)
    cluster.world.run(100, until=lambda: lost in values(cluster.nodes[B], key))
    cluster.stop(A, loses_power=True)
    cluster.nodes[A].disk.logs[key].truncate(5)
    cluster.start(A)
    cluster.world.run(100)
    cluster.publish(key, node=A)
    cluster.world.run(1_000)

    assert cluster.state_of(key).epoch > epoch
    cluster.finish()


def test_an_unclean_election_is_counted_as_loss_and_heals() -> None:
    """Only where the topic allows it: the replicas agree again, without what was lost."""
    cluster, key = started(21, Plan(is_unclean_allowed=True))
    cluster.stop(C, loses_power=True)
    cluster.world.run(4_000)
    lost = acked(cluster, key)
    cluster.world.run(1_000)
    for name in (B, A):
        cluster.stop(name, loses_power=True)
    cluster.world.run(3_000)
    cluster.start(C)
    cluster.world.run(3_000)

    assert cluster.leader_of(key) == C
    assert cluster.controller.groups[key.group].unclean_elections == 1
    cluster.finish()
    assert cluster.checks.losses >= 1
    assert lost not in values(cluster.nodes[A], key)


def test_a_dead_follower_is_not_let_in_again() -> None:
    """It had everything when the controller let it go; the leader would wait for it for ever."""
    cluster, key = started(23)
    cluster.stop(C, loses_power=True)
    for _ in range(20):
        cluster.world.run(500)
        assert cluster.leader_of(key) == A
    assert cluster.state_of(key).isr == (A, B)

    started_ms = cluster.world.now_ms
    acked(cluster, key)
    assert cluster.world.now_ms - started_ms < 200
    cluster.finish()


def test_an_empty_epoch_does_not_cover_what_another_leader_wrote() -> None:
    """A node that led without a message follows another one: its notes say what is so."""
    cluster, key = started(22)
    cluster.world.isolate(A, others(cluster, A))
    for _ in range(3):
        cluster.publish(key, node=A)
    cluster.world.run(3_000)
    cluster.finish()

    for node in cluster.nodes.values():
        log, epochs = node.disk.logs[key], node.disk.notes[key].epochs
        assert log.frames
        for offset, frame in enumerate(log.frames, log.start_offset):
            assert epochs.epoch_at(offset) == frame.epoch
