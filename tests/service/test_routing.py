"""HTTP on any node: each request is answered by the nodes it belongs to."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from goqueue.base.deeds import Deed
from goqueue.base.errors import GroupNotFoundError, TopicNotFoundError
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.runtime.turns import Turns
from goqueue.service.claims import Claims, Terms
from goqueue.service.routed import RoutedService, asked_verbs
from goqueue.service.routes import GATHERINGS, ROUTES
from goqueue.service.routing import MISSING
from goqueue.service.verb import RequestContext
from goqueue.wire import calls, group_calls, queue_calls
from goqueue.wire.delayed_calls import DelayedCall, ListDelayed
from goqueue.wire.http.messages import PublishMessage
from goqueue.wire.schedule_calls import CreateSchedule, ListSchedules, ScheduleCall
from tests.service.fleet import CALLER, ServiceFleet, place, run_services

NOTHING = RequestContext(memoryview(b""))


def grant(fleet: ServiceFleet, deed: Deed, *names: str) -> Grant:
    return fleet.nodes[NodeId("a")].service.gate.admit(CALLER, deed, names)


def door(fleet: ServiceFleet, node: str = "a") -> RoutedService:
    one = fleet.nodes[NodeId(node)]
    assert one.broker.forwarding is not None
    return RoutedService(one.broker, one.service, one.broker.forwarding)


def scenario(
    run: Callable[[ServiceFleet], Awaitable[None]], *, seed: int = 1, nodes: int = 3
) -> None:
    run_services(run, seed=seed, nodes=nodes)


def name_at(fleet: ServiceFleet, node: str) -> str:
    """Return a name whose coordinator is a node."""
    return next(
        name
        for name in map("name-{}".format, range(100))
        if fleet.leader(place("__consumer_offsets", partition_of_key(name.encode(), 50))) == node
    )


async def publish(there: RoutedService, fleet: ServiceFleet, *messages: PublishMessage) -> Any:
    allowed = grant(fleet, Deed.PUBLISH, "orders")
    return (await there.publishing.publish(allowed, "orders", list(messages))).results


async def read(there: RoutedService, fleet: ServiceFleet, partition: int) -> list[Any]:
    page = await there.reading.page(
        grant(fleet, Deed.FETCH, "orders"),
        calls.Fetch("orders", 1 << 20, 0, [calls.FetchPart(partition, 0)]),
        count_max=1_000,
        from_us=None,
        turns=Turns(),
    )
    return page.messages


def test_every_routed_verb_can_be_asked_of_a_peer() -> None:
    """A verb of the table is one of a noun, and its arguments and result can travel."""

    async def run(fleet: ServiceFleet) -> None:
        known = asked_verbs(fleet.nodes[NodeId("a")].service)

        assert set(ROUTES) | set(GATHERINGS) <= set(known)

    scenario(run, nodes=1)


@pytest.mark.parametrize("seed", range(1, 4))
def test_messages_go_to_the_leaders_of_their_partitions(seed: int) -> None:
    """P3, P7: in the order they came, once each, whatever the wires lose or repeat."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 6, {})
        there = door(fleet)
        fleet.loss, fleet.repeats = 0.2, 0.2
        sent: dict[int, list[bytes]] = {}
        for number in range(20):
            messages = [
                PublishMessage(value=f"{number}-{row}", key=f"k{row}", priority="high")
                for row in range(5)
            ]
            for row, result in enumerate(await publish(there, fleet, *messages)):
                assert result.error is None
                sent.setdefault(result.partition, []).append(f"{number}-{row}".encode())
        fleet.loss = fleet.repeats = 0.0
        for partition, values in sent.items():
            found = await read(there, fleet, partition)
            assert [message.value for message in found] == values
            assert {message.priority for message in found} == {1}

    scenario(run, seed=seed)


def test_headers_and_delays_travel_and_delayed_messages_are_found_anywhere() -> None:
    """What a message has beside its value is there when its leader is another node."""

    async def run(fleet: ServiceFleet) -> None:
        for partition in range(3):
            fleet.leaders[place("orders", partition)] = NodeId("b")
        # What people changed of delays is with the name of their topic here.
        home = partition_of_key(b"orders", 50)
        await fleet.move(place("__consumer_offsets", home), "b")
        fleet.create("orders", 3, {})
        there = door(fleet)
        results = await publish(
            there,
            fleet,
            *(
                PublishMessage(value="v", delay="1h", delay_id=f"d{row}", headers={"x": "y"})
                for row in range(9)
            ),
        )
        for row, result in enumerate(results):
            # Others of the same name would wait in the same partition.
            assert result.partition == partition_of_key(f"d{row}".encode(), 3)
        listing = grant(fleet, Deed.LIST_DELAYED, "orders")
        page = await there.delayed.list_all(listing, ListDelayed("orders", 2, 5))
        assert (len(page.messages), page.pending) == (5, 9)
        finding = grant(fleet, Deed.FIND_DELAYED, "orders")
        found = await there.delayed.find(finding, DelayedCall("orders", delay_id="d4"))
        (one,) = found.messages
        assert one.delay_id == "d4"
        cancelling = grant(fleet, Deed.CANCEL_DELAYED, "orders")
        await there.delayed.cancel(cancelling, DelayedCall("orders", one.partition, one.offset))
        page = await there.delayed.list_all(listing, ListDelayed("orders", 0, 100))
        assert page.pending == 8

    scenario(run)


def test_repeats_by_dedup_id_are_seen_through_any_node() -> None:
    """P3: a message without a key goes where its dedup id leads."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 3, {"dedup_window_ms": 60_000})
        message = PublishMessage(value="v", dedup_id="once")
        places = {
            (result.partition, result.offset)
            for node in "abcab"
            for result in await publish(door(fleet, node), fleet, message)
        }

        assert len(places) == 1

    scenario(run)


def test_topics_are_counted_by_the_leaders_of_their_partitions() -> None:
    """What every node leads is put together; a node that is missing is named."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 3, {})
        there = door(fleet)
        await publish(there, fleet, *(PublishMessage(value="v", key=f"{n}") for n in range(30)))
        (topic,) = (
            await there.topics.list_all(grant(fleet, Deed.LIST_TOPICS), calls.Nothing())
        ).topics
        assert (topic.messages, topic.partitions) == (30, 3)
        describing = grant(fleet, Deed.DESCRIBE_TOPIC, "orders")
        state = await there.topics.describe(describing, calls.TopicCall("orders"))
        assert sum(part.messages for part in state.partitions) == 30
        offsets = await there.topics.offsets(
            grant(fleet, Deed.FIND_OFFSETS, "orders"), calls.Offsets("orders")
        )
        assert sum(part.end_offset for part in offsets.parts) == 30
        summing = grant(fleet, Deed.SUM_UP_TOPICS)
        overview = await there.stats.overview(summing, calls.Nothing())
        assert [(one.name, sum(one.lanes)) for one in overview.topics] == [("orders", 30)]
        sizes = await there.stats.sizes(summing)
        assert sizes.topic_stats["orders"].total_messages == 30
        assert sum((await there.stats.priorities(summing)).total_by_priority) == 30
        assert MISSING.get() == ()
        fleet.nodes[NodeId("c")].is_up = False
        (topic,) = (
            await there.topics.list_all(grant(fleet, Deed.LIST_TOPICS), calls.Nothing())
        ).topics
        assert 0 < topic.messages < 30
        assert MISSING.get() == ("c",)
        fleet.nodes[NodeId("c")].is_up = True
        with pytest.raises(TopicNotFoundError):
            await there.topics.describe(describing, calls.TopicCall("none"))

    scenario(run)


def test_groups_are_asked_of_their_coordinators() -> None:
    """A group is joined, described, listed and left through any node."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 3, {})
        there = door(fleet)
        names = [name_at(fleet, node) for node in "abc"]
        for name in names:
            joining = grant(fleet, Deed.JOIN_GROUP, name)
            member = await there.groups.join(
                joining, group_calls.JoinGroup(name, "client", ["orders"])
            )
            outline = await there.groups.outline(joining, name)
            assert outline.members == [member.member_id]
            beat = group_calls.Heartbeat(name, member.member_id, 1)
            heard = await there.groups.heartbeat(grant(fleet, Deed.HEARTBEAT, name), beat)
            assert heard.generation == 1
        listed = await there.groups.list_all(grant(fleet, Deed.LIST_GROUPS), calls.Nothing())
        assert [one.name for one in listed.groups] == sorted(names)
        with pytest.raises(GroupNotFoundError):
            await there.groups.describe(
                grant(fleet, Deed.DESCRIBE_GROUP), queue_calls.GroupCall("none")
            )

    scenario(run)


def test_messages_are_leased_and_settled_at_their_leader() -> None:
    """A poll and its acks through a node that leads nothing of them."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 1, {})
        await fleet.move(place("orders", 0), "b")
        there, group = door(fleet), name_at(fleet, "b")
        await publish(there, fleet, *(PublishMessage(value=f"{n}") for n in range(10)))
        member = await there.groups.join(
            grant(fleet, Deed.JOIN_GROUP, group),
            group_calls.JoinGroup(
                group, "client", ["orders"], options={"auto_offset_reset": "earliest"}
            ),
        )
        polling = grant(fleet, Deed.POLL, group)
        call = queue_calls.Poll(group, member.member_id, 0, 4, 1 << 20, 1_000)
        assert await there.queue.lease_ready(polling, call, NOTHING) is None
        polled = await there.queue.lease(polling, call, NOTHING)
        assert [part.rows for part in polled.parts] == [4]
        assert there.queue.has_one_topic(polling, group)
        (part,) = polled.parts
        receipts = [f"orders:0:{offset}:1:{part.nonce:016x}" for offset in range(4)]
        settling = grant(fleet, Deed.SETTLE)
        done = await there.receipts.settle(settling, receipts[0], "ack", Terms())
        assert done.committed_offset == 1
        claims = Claims("receipts")
        claims.gather_alike([*receipts[1:3], receipts[1]], Terms())
        batch = await there.receipts.settle_all(settling, "ack", claims)
        assert (batch.settled, [one.index for one in batch.errors]) == (2, [2])
        # What nobody got is given back, and comes again.
        there.queue.give_back(polling, group, polled)
        ledgers = fleet.nodes[NodeId("b")].broker.consume.ledgers.of(group)
        await fleet.until(lambda: not ledgers[place("orders", 0)].ledger.leases.offsets)
        rest = Claims("ack")
        rest.gather_alike(receipts[3:], Terms())
        count, errors, polled = await there.receipts.take_next(
            grant(fleet, Deed.NEXT, group), call, {"ack": rest}, NOTHING
        )
        assert count + len(errors) == 1
        assert sum(part.rows for part in polled.parts) == 4
        progress = await there.queue.progress(
            grant(fleet, Deed.DESCRIBE_PROGRESS, group), queue_calls.GroupCall(group)
        )
        assert [(one.partition, one.end_offset) for one in progress.parts] == [(0, 10)]

    scenario(run)


def test_schedules_are_hosted_by_their_coordinators() -> None:
    """They are made, listed and ended through any node."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.create("orders", 1, {})
        there = door(fleet)
        names = [name_at(fleet, node) for node in "abc"]
        for name in names:
            await there.schedules.create(
                grant(fleet, Deed.CREATE_SCHEDULE, "orders"),
                CreateSchedule(name, "orders", b"tick", every_ms=3_600_000),
            )
        listing = grant(fleet, Deed.LIST_SCHEDULES)
        page = await there.schedules.list_all(listing, ListSchedules(1, 1))
        assert ([one.name for one in page.schedules], page.total) == (sorted(names)[1:2], 3)
        deleting = grant(fleet, Deed.DELETE_SCHEDULE, names[1])
        await there.schedules.delete(deleting, ScheduleCall(names[1]))
        assert (await there.schedules.list_all(listing, ListSchedules())).total == 2

    scenario(run)
