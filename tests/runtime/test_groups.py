"""Groups in a broker: durable, swept, followed by those who hold something for their members."""

from collections.abc import Sequence
from typing import Any

import pytest

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    GroupNotEmptyError,
    GroupNotFoundError,
    InvalidNameError,
    OverloadedError,
    StaleGenerationError,
    StorageFailedError,
    TopicNotFoundError,
    UnknownMemberError,
)
from goqueue.base.ids import MemberId, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.member import JoinRequest
from goqueue.core.groups.states import GroupState
from goqueue.runtime import broker as broker_module
from goqueue.runtime.ballast import BALLAST_PATH
from goqueue.runtime.groups import groups as groups_module
from goqueue.runtime.groups.absences import STALL_MS
from goqueue.runtime.groups.group_news import GroupNews
from goqueue.runtime.groups.hosted_group import HostedGroup
from goqueue.testing.disk import CrashError
from tests.runtime.rig import Rig, run

SESSION_MS = 30_000


@pytest.fixture(autouse=True)
def _few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the internal topic small, so that crashes at every operation are soon told."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def numbers(hosted: HostedGroup, member: str) -> list[int]:
    return [one.partition for one in hosted.partitions_of(member)]


def orders(*found: int) -> list[TopicPartition]:
    return [TopicPartition(TopicName("orders"), PartitionId(number)) for number in found]


async def join(
    rig: Rig,
    client: str,
    *,
    group: str = "billing",
    topics: Sequence[str] = ("orders",),
    member_id: str | None = None,
    protocol: str | None = None,
    **options: Any,
) -> tuple[HostedGroup, MemberId]:
    request = JoinRequest(
        client_id=client,
        topics=tuple(topics),
        member_id=member_id,
        protocol=protocol,
        options=options,
    )
    return await rig.broker.groups.join(group, request)


async def start(partitions: int = 4) -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("orders", partitions=partitions)
    return rig


def test_a_member_comes_polls_and_goes() -> None:
    """A member has its partitions from its join to its leaving, and is then unknown."""

    async def main() -> None:
        rig = await start()
        hosted, member = await join(rig, "a")

        assert member.startswith("a-")
        assert len(member) == len("a-") + 16
        assert hosted.partitions_of(member) == orders(0, 1, 2, 3)
        assert hosted.owns(member, orders(3)[0])
        assert not hosted.owns(member, orders(4)[0])
        assert hosted.check_member(member, 1).client_id == "a"
        with pytest.raises(StaleGenerationError):
            hosted.check_member(member, 2)

        await rig.broker.groups.leave("billing", member)
        assert hosted.state is GroupState.EMPTY
        for call in (hosted.check_member, hosted.partitions_of, hosted.touch):
            with pytest.raises(UnknownMemberError):
                call(member)
        assert not hosted.owns(member, orders(3)[0])
        await rig.stop()

    run(main())


def test_a_group_comes_back_after_a_restart() -> None:
    """Members, generations, assignments and options are durable (trap G3)."""

    async def main() -> None:
        rig = await start()
        _, first = await join(
            rig, "a", protocol="cooperative", visibility_timeout="5m", ordering="key"
        )
        _, second = await join(rig, "b")
        await join(rig, "c", group="other", mode="shared")
        await rig.stop()
        await rig.start()
        groups = rig.broker.groups
        hosted = groups.get("billing")

        assert [one.name for one in groups] == ["billing", "other"]
        assert groups.get("other").options.is_shared
        assert list(hosted.members) == [first, second]
        assert hosted.group.leader_id == first
        assert (hosted.generation, hosted.state) == (2, GroupState.REBALANCING)
        assert hosted.options.visibility_timeout_ms == 300_000
        assert hosted.options.is_by_key

        # A full session to come back, and the same member by the same id.
        rig.clock.advance(SESSION_MS - 1)
        groups.sweep()
        again = await join(rig, "a", member_id=first)
        assert again == (hosted, first)
        await groups.revoke("billing", first, generation=2, revoked=orders(2, 3))
        assert (numbers(hosted, first), numbers(hosted, second)) == ([0, 1], [2, 3])
        rig.clock.advance(1)
        groups.sweep()
        assert list(hosted.members) == [first]
        await rig.stop()

    run(main())


def test_watchers_hear_who_is_gone_and_what_was_lost() -> None:
    """Whoever holds leases is told in the same step who left, who expired and what moved."""

    async def main() -> None:
        rig = await start()
        heard: list[GroupNews] = []
        groups = rig.broker.groups
        groups.watch(heard.append)
        hosted, first = await join(rig, "a", protocol="cooperative")
        _, second = await join(rig, "b")
        assert [(dict(one.gone), dict(one.lost)) for one in heard] == [({}, {}), ({}, {})]
        await groups.revoke("billing", first, generation=2, revoked=orders(3))
        assert heard[-1].lost == {first: frozenset(orders(3))}

        rig.clock.advance(SESSION_MS - 1)
        hosted.touch(second)
        rig.clock.advance(1)
        groups.sweep()
        assert heard[-1].gone == {first: "expired"}
        assert numbers(hosted, second) == [0, 1, 2, 3]
        await groups.leave("billing", second)
        assert heard[-1].gone == {second: "left"}
        await groups.delete("billing")
        assert (heard[-1].group, heard[-1].is_deleted) == ("billing", True)
        assert sum(one.is_deleted for one in heard) == 1
        await rig.stop()

    run(main())


def test_news_wakes_those_who_wait() -> None:
    """A poll that waits hears of a change of assignment, and of nothing else."""

    async def main() -> None:
        rig = await start()
        hosted, member = await join(rig, "a")
        news = hosted.waiters.watch()
        hosted.touch(member)
        await join(rig, "a", member_id=member)
        assert not news.done()
        _, other = await join(rig, "b")
        assert news.done()
        later = hosted.waiters.watch()
        assert not later.done()
        await rig.broker.groups.leave("billing", other)
        assert later.done()
        await rig.stop()

    run(main())


def test_what_is_not_given_up_in_time_is_taken() -> None:
    """After the revocation timeout the heir has the partition, and it is counted."""

    async def main() -> None:
        rig = await start()
        groups = rig.broker.groups
        hosted, first = await join(
            rig, "a", protocol="cooperative", session_timeout="5m", revocation_timeout="10s"
        )
        _, second = await join(rig, "b")
        rig.clock.advance(9_999)
        groups.sweep()
        assert numbers(hosted, second) == []
        assert numbers(hosted, first) == [0, 1]
        rig.clock.advance(1)
        groups.sweep()

        assert (numbers(hosted, first), numbers(hosted, second)) == ([0, 1], [2, 3])
        tally = hosted.tally
        assert (tally.total, tally.successful, tally.failed, tally.timeouts) == (2, 2, 0, 1)
        assert (tally.revoked, tally.assigned, tally.last_duration_ms) == (2, 6, 10_000)
        assert tally.by_reason == {"member_joined": 2}
        assert tally.average_duration_ms == pytest.approx(3_000)
        assert rig.broker.groups.tally.total == 2
        await rig.stop()

    run(main())


def test_the_sweep_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask: a session that is over ends at the next sweep."""
    monkeypatch.setattr(groups_module, "SWEEP_INTERVAL_MS", 1)

    async def main() -> None:
        rig = await start()
        hosted, _ = await join(rig, "a")
        news = hosted.waiters.watch()
        rig.clock.advance(SESSION_MS)
        await news
        assert hosted.state is GroupState.EMPTY
        await rig.stop()

    run(main())


def test_a_broker_that_stood_still_expires_nobody() -> None:
    """A minute in which the process was stopped does not count against members."""

    async def main() -> None:
        rig = await start()
        hosted, member = await join(rig, "a")
        rig.clock.advance(60_000)
        rig.broker.groups.sweep(late_ms=59_000)
        assert list(hosted.members) == [member]
        rig.clock.advance(SESSION_MS - 1_001)
        rig.broker.groups.sweep(late_ms=STALL_MS)
        assert list(hosted.members) == [member]
        rig.clock.advance(1)
        rig.broker.groups.sweep()
        assert hosted.state is GroupState.EMPTY
        await rig.stop()

    run(main())


def test_the_clock_on_the_wall_ends_no_session() -> None:
    """A jump of a day on the wall's clock leaves everybody where they are."""

    async def main() -> None:
        rig = await start()
        hosted, member = await join(rig, "a")
        for jump_ms in (86_400_000, -2 * 86_400_000):
            rig.clock.jump(jump_ms)
            rig.broker.groups.sweep()
        assert list(hosted.members) == [member]
        await rig.stop()

    run(main())


def test_topics_that_come_and_go_are_followed() -> None:
    """A deleted topic's partitions are nobody's; a new one of the name is shared out again."""

    async def main() -> None:
        rig = await start()
        rig.broker.create_topic("events", partitions=1)
        hosted, member = await join(rig, "a", topics=("orders", "events"))
        news = hosted.waiters.watch()
        rig.broker.delete_topic("orders")
        assert news.done()
        assert [one.topic for one in hosted.partitions_of(member)] == ["events"]
        # Coming back with the subscription it has is no error, though one topic is gone.
        again = await join(rig, "a", topics=("events", "orders"), member_id=member)
        assert again == (hosted, member)
        assert not hosted.owns(member, orders(0)[0])
        rig.broker.create_topic("orders", partitions=2)
        assert len(hosted.partitions_of(member)) == 3
        rig.broker.delete_topic("events")
        await rig.stop()
        # What happened to topics while nobody looked is seen at the start.
        await rig.start()
        assert rig.broker.groups.get("billing").partitions_of(member) == orders(0, 1)
        await rig.stop()

    run(main())


def test_a_group_with_members_is_deleted_by_force_only() -> None:
    """A deleted group is unknown, over a restart too, and its name may be used again."""

    async def main() -> None:
        rig = await start()
        groups = rig.broker.groups
        hosted, member = await join(rig, "a", mode="shared")
        with pytest.raises(GroupNotEmptyError):
            await groups.delete("billing")
        assert hosted.check_member(member).client_id == "a"
        await groups.delete("billing", is_forced=True)
        with pytest.raises(GroupNotFoundError):
            groups.get("billing")
        await rig.stop()
        await rig.start()
        assert len(rig.broker.groups) == 0
        fresh, _ = await join(rig, "b")
        assert not fresh.options.is_shared
        assert fresh.generation == 1
        await rig.stop()

    run(main())


def test_what_is_refused_leaves_no_trace() -> None:
    """A join that is refused makes no group, no internal topic and no series."""

    async def main() -> None:
        rig = await start()
        refused: list[tuple[type[GoQueueError], dict[str, Any]]] = [
            (TopicNotFoundError, {"topics": ["nothing"]}),
            (InvalidNameError, {"group": "../../escaped"}),
            (InvalidNameError, {"group": "__internal"}),
            (InvalidNameError, {"group": "a" * 250}),
            (UnknownMemberError, {"member_id": "a-0"}),
        ]
        for error, fields in refused:
            with pytest.raises(error):
                await join(rig, "a", **fields)
        assert len(rig.broker.groups) == 0
        assert list(rig.broker.topics) == ["orders"]
        assert "goqueue_consumer_group_joins_total{" not in rig.metrics_text()
        await rig.stop()

    run(main())


def test_there_is_a_limit_to_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group more than there may be is refused; those that are there go on."""
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)

    async def main() -> None:
        rig = await start()
        for name in ("a", "b"):
            await join(rig, "x", group=name)
        with pytest.raises(OverloadedError):
            await join(rig, "x", group="c")
        await join(rig, "y", group="b")
        await rig.stop()

    run(main())


def test_a_full_disk_refuses_joins_and_expires_nobody() -> None:
    """What cannot be written does not happen; when there is room again the sweep catches up."""

    async def main() -> None:
        rig = await start()
        hosted, member = await join(rig, "a")
        rig.clock.advance(SESSION_MS)
        rig.disk.remove(BALLAST_PATH)
        rig.disk.fill_up()
        with pytest.raises(DiskFullError):
            await join(rig, "b")
        rig.broker.groups.sweep()
        assert list(hosted.members) == [member]
        rig.disk.make_room()
        rig.broker.groups.sweep()
        assert hosted.state is GroupState.EMPTY
        await rig.stop()

    run(main())


def test_metrics_follow_a_group_and_go_with_it() -> None:
    """Every series of the family is really updated, and gone when the group is."""

    async def main() -> None:
        rig = await start()
        groups = rig.broker.groups
        hosted, first = await join(rig, "a", protocol="cooperative")
        _, second = await join(rig, "b")
        await groups.revoke("billing", first, generation=2, revoked=orders(2, 3))
        hosted.heartbeat(first)
        rig.clock.advance(SESSION_MS - 1)
        groups.sweep()
        hosted.touch(second)
        rig.clock.advance(1)
        groups.sweep()
        shown = rig.metrics_text()
        for line in (
            'group_members{consumer_group="billing"} 1.0',
            'group_generation{consumer_group="billing"} 3.0',
            'assigned_partitions{consumer_group="billing"} 4.0',
            'partitions_revoked_total{consumer_group="billing"} 2.0',
            'partitions_assigned_total{consumer_group="billing"} 8.0',
            'group_joins_total{consumer_group="billing"} 2.0',
            'group_leaves_total{consumer_group="billing",reason="expired"} 1.0',
            'heartbeats_sent_total{consumer_group="billing"} 1.0',
            'heartbeat_timeouts_total{consumer_group="billing"} 2.0',
            'session_timeouts_total{consumer_group="billing"} 1.0',
            'rebalances_total{consumer_group="billing",trigger="member_joined"} 2.0',
            'rebalances_total{consumer_group="billing",trigger="member_expired"} 1.0',
            'rebalance_latency_seconds_count{consumer_group="billing",rebalance_type="cooperative"} 3.0',  # noqa: E501
            'group_state{consumer_group="billing",state="Stable"} 1.0',
            'group_state{consumer_group="billing",state="Empty"} 0.0',
        ):
            assert f"goqueue_consumer_{line}" in shown
        await groups.delete("billing", is_forced=True)
        assert 'consumer_group="billing"' not in rig.metrics_text()
        await rig.stop()

    run(main())


async def live(rig: Rig, said: list[object]) -> None:
    """Live through joins, a rebalance, a leave and a deletion, noting what was answered."""
    await rig.start()
    groups = rig.broker.groups
    rig.broker.create_topic("orders", partitions=2)
    hosted, first = await join(rig, "a", protocol="cooperative")
    said.append(facts(hosted))
    _, second = await join(rig, "b")
    said.append(facts(hosted))
    await groups.revoke("billing", first, generation=2, revoked=orders(1))
    said.append(facts(hosted))
    await groups.leave("billing", first)
    said.append(facts(hosted))
    await groups.leave("billing", second)
    said.append(facts(hosted))
    await groups.delete("billing")
    said.append(None)
    await rig.stop()


def facts(hosted: HostedGroup) -> object:
    """Say how a group stands, its members by the names they gave themselves."""
    group = hosted.group
    owned = [(one.client_id, sorted(group.owned_by(one.id))) for one in group.members.values()]
    return group.state, group.generation, owned


async def die_at(operation: int, expected: list[object]) -> bool:
    """Die at an operation and compare what is left; tell whether the life ended before."""
    rig = Rig()
    rig.die_in(operation)
    said: list[object] = [None]
    try:
        await live(rig, said)
    except (CrashError, StorageFailedError):
        rig.recover_with(rig.disk.crash())
    else:
        return True
    await rig.start()
    groups = rig.broker.groups
    found = facts(groups.get("billing")) if len(groups) else None

    # What was answered is there; or the next step is, which was under way.
    assert found in expected[len(said) - 1 : len(said) + 1]
    await rig.stop()
    return False


def test_a_crash_at_any_operation_keeps_what_was_answered() -> None:
    """After a crash the group is as it was last answered, or one step further."""

    async def main() -> None:
        expected: list[object] = [None]
        await live(Rig(), expected)
        operation = 1
        while not await die_at(operation, expected):
            operation += 1
        assert operation > 20

    run(main())


def test_a_heartbeat_speaks_of_durable_generations() -> None:
    """Who waits for a change to settle is released when it is on the disk, not before."""

    async def main() -> None:
        rig = await start()
        hosted, member = await join(rig, "a")
        await hosted.settled()
        durable = hosted.commit(hosted.group.leave(member, partitions={}).events)
        assert not durable.done()
        await hosted.settled()
        assert durable.done()
        await rig.stop()

    run(main())
