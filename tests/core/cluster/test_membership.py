"""Who is heard of, and for how long a node may answer for itself."""

from goqueue.base.ids import NodeId
from goqueue.core.cluster.membership import (
    ClusterTimers,
    FailureDetector,
    NodeHealth,
    NodeLease,
)

A, B, C, D = (NodeId(name) for name in "abcd")
SECOND = 1_000


def detector(*nodes: NodeId) -> FailureDetector:
    found = FailureDetector(ClusterTimers(), own=A, now_ms=0)
    found.watch([A, *nodes], now_ms=0)
    return found


def run(one: FailureDetector, start_ms: int, end_ms: int, *heard: NodeId) -> list[str]:
    """Tick every second; the nodes are heard each time."""
    found = []
    for now_ms in range(start_ms, end_ms + 1, SECOND):
        for node in heard:
            one.heard(node, now_ms=now_ms)
        one.tick(now_ms)
        found += [f"{change.at_ms} {change.node} {change.health}" for change in one.take_effects()]
    return found


def test_silence_makes_a_node_suspect_and_then_dead() -> None:
    """After 6 and 9 seconds; a node that is heard stays alive."""
    one = detector(B, C)

    assert run(one, 0, 12 * SECOND, C) == ["6000 b suspect", "9000 b dead"]
    assert one.health == {B: NodeHealth.DEAD, C: NodeHealth.ALIVE}


def test_a_dead_node_that_is_heard_is_alive_again() -> None:
    """Nothing has to be restarted when a network heals (C6)."""
    one = detector(B)
    run(one, 0, 10 * SECOND)

    assert run(one, 11 * SECOND, 11 * SECOND, B) == ["11000 b alive"]


def test_a_refused_connection_makes_suspect_at_once() -> None:
    """One witness alone never makes a node dead."""
    one = detector(B, C)
    for now_ms in range(0, 5_000, 100):
        one.refused(B, by=C, now_ms=now_ms)

    assert one.health[B] is NodeHealth.SUSPECT


def test_two_witnesses_within_a_second_make_dead() -> None:
    """The process is gone: its machine itself says so, to two nodes."""
    one = detector(B, C)
    one.refused(B, by=C, now_ms=0)
    one.refused(B, by=A, now_ms=1_000)
    assert one.health[B] is NodeHealth.SUSPECT
    one.refused(B, by=C, now_ms=1_500)

    assert one.health[B] is NodeHealth.DEAD


def test_the_dead_and_the_accused_bear_no_witness() -> None:
    """Nor does a node that is not watched."""
    one = detector(B, C)
    one.refused(C, by=B, now_ms=0)
    one.refused(C, by=A, now_ms=0)
    assert one.health[C] is NodeHealth.DEAD
    one.refused(B, by=C, now_ms=1)
    one.refused(B, by=B, now_ms=1)
    one.refused(B, by=D, now_ms=1)

    assert one.health[B] is NodeHealth.ALIVE


def test_being_heard_ends_suspicion() -> None:
    """A connection may be refused while a process starts again."""
    one = detector(B, C)
    one.refused(B, by=C, now_ms=0)
    one.heard(B, now_ms=100)
    one.refused(B, by=A, now_ms=200)

    assert one.health[B] is NodeHealth.SUSPECT


def test_a_controller_that_stood_still_blames_no_one() -> None:
    """A stall of its own is not the silence of others; they get the rest of their time."""
    one = detector(B)
    run(one, 0, 2 * SECOND, B)
    one.tick(30 * SECOND)
    assert one.health[B] is NodeHealth.ALIVE

    assert run(one, 31 * SECOND, 40 * SECOND) == ["33000 b suspect", "36000 b dead"]


def test_only_registered_nodes_are_watched() -> None:
    """A forgotten one is not heard, a new one has full time."""
    one = detector(B)
    one.watch([A, C], now_ms=5 * SECOND)
    one.heard(B, now_ms=5 * SECOND)

    assert one.health == {C: NodeHealth.ALIVE}
    assert one.heard_ms == {C: 5 * SECOND}


def test_a_node_answers_for_nothing_when_its_lease_is_over() -> None:
    """6 seconds from when the last answered heartbeat was sent: before silence makes it dead."""
    lease = NodeLease(ClusterTimers())
    assert not lease.is_held(0)
    lease.renew(sent_ms=1_000)
    lease.renew(sent_ms=500)

    assert lease.is_held(6_999)
    assert not lease.is_held(7_000)
    lease.renew(sent_ms=20_000)
    lease.end()
    assert not lease.is_held(20_001)
