"""Dead letters whose topic is led by another node: moved once, whatever fails in between."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError, StaleEpochError, TopicNotFoundError
from goqueue.base.ids import NodeId, Offset
from goqueue.core.delivery.events import Doomed, Event
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.picker import Picker
from goqueue.core.delivery.runs import runs_of
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.delivery.view import View
from goqueue.core.dlq.names import origin_of
from goqueue.core.record.headers import ORIGIN
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.runtime.log.own_appends import Fence, OwnMessage
from goqueue.runtime.log.partition import Partition
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import read_all
from tests.service.fleet import ServiceFleet, place, run_services

SOURCE, TARGET = place("orders", 0), place("orders.dlq", 0)
GROUP = "billing"


class Journal:
    """A ledger that outlives its host: what is committed and durable is there for the next."""

    def __init__(self) -> None:
        self.events: list[Event] = []


class Moving:
    """Hosts the ledger of a partition at its leader."""

    group = GROUP

    def __init__(self, partition: Partition, journal: Journal) -> None:
        self.partition = partition
        self.ledger = Ledger(origin=Offset(0), by_key=False)
        self.is_closed = False
        self.journal = journal
        for event in journal.events:
            self.ledger.apply(event)

    def commit(self, events: Sequence[Event]) -> None:
        if self.is_closed:
            raise StaleEpochError("another node leads the partition")
        self.journal.events += events
        for event in events:
            self.ledger.apply(event)

    def durable(self) -> "asyncio.Future[None]":
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.001, _end, done)
        return done

    def doom(self, count: int) -> None:
        """Lease messages and let them fail for good."""
        log = self.partition.log
        lanes = [BitMap64() for _ in range(5)]
        view = View(log.start_offset, self.partition.visible_offset, lanes, BitMap64(), BitMap64())
        pick = Picker(now_ms=0).pick(self.ledger, view, count, now_ms=0)
        terms = LeaseTerms(7, "worker", 10**9, 10**9, 0)
        leased = self.ledger.lease(
            pick, pick.offsets, terms, view, gone=BitMap64(), expired=BitMap64()
        )
        self.commit(leased.events)
        runs = runs_of(BitMap64(range(count)))
        self.commit([Doomed(offsets=runs, nonce=7, reason="REJECTED", error="no", at_ms=0)])


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def publish(fleet: ServiceFleet, count: int) -> None:
    topic = fleet.nodes[fleet.leader(SOURCE)].broker.topic("orders")
    drafts = [(Draft(value=b"%d" % number), 0) for number in range(count)]
    assert not [
        one
        for one in await topic.publish_drafts(PUBLISHING, drafts)
        if isinstance(one, GoQueueError)
    ]


async def letters(fleet: ServiceFleet) -> list[bytes]:
    """Return what is among the dead letters."""
    topic = fleet.nodes[fleet.leader(TARGET)].broker.topic("orders.dlq")
    messages, _ = await read_all(topic, 0)
    return sorted(message.value or b"" for message in messages)


async def bury(fleet: ServiceFleet, hosted: Moving) -> None:
    dead = fleet.nodes[fleet.leader(SOURCE)].broker.dead_letters
    dead.take(hosted)
    await dead.wait_for(hosted)


@pytest.mark.parametrize("seed", range(1, 6))
def test_dead_letters_go_to_the_leader_of_their_topic_once(seed: int) -> None:
    """P5: the topic is made by the cluster; lost and repeated requests double nothing."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.leaders |= {SOURCE: NodeId("a"), TARGET: NodeId("b")}
        fleet.create("orders", 1, {})
        await publish(fleet, 50)
        hosted = Moving(fleet.nodes[NodeId("a")].partition(SOURCE), Journal())
        hosted.doom(50)
        fleet.loss = fleet.repeats = 0.3
        await bury(fleet, hosted)
        fleet.loss = fleet.repeats = 0.0

        assert not hosted.ledger.dooms
        assert await letters(fleet) == sorted(b"%d" % number for number in range(50))

    run_services(run, seed=seed)


@pytest.mark.parametrize("moved", ["source", "target", "both"])
@pytest.mark.parametrize("after_ms", [0, 1, 3, 5, 8, 13, 21, 34])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_move_is_cut_by_failover_at_any_step(moved: str, after_ms: int, seed: int) -> None:
    """Hard case 14: source and target led by different nodes, either or both replaced."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.leaders |= {SOURCE: NodeId("a"), TARGET: NodeId("b")}
        fleet.create("orders", 1, {})
        fleet.create("orders.dlq", 1, {})
        await publish(fleet, 20)
        journal = Journal()
        first = Moving(fleet.nodes[NodeId("a")].partition(SOURCE), journal)
        first.doom(20)
        fleet.loss = fleet.repeats = 0.1
        burial = asyncio.ensure_future(bury(fleet, first))
        await asyncio.sleep(after_ms / 1_000)
        if moved in {"target", "both"}:
            await fleet.move(TARGET, "c")
        hosted = first
        if moved in {"source", "both"}:
            # The old leader does not know yet: its requests are still on their way.
            await fleet.move(SOURCE, "c")
            first.is_closed = True
            hosted = Moving(fleet.nodes[NodeId("c")].partition(SOURCE), journal)
            await bury(fleet, hosted)
        with contextlib.suppress(GoQueueError):
            await burial
        fleet.loss = fleet.repeats = 0.0
        if moved == "target":
            await bury(fleet, hosted)

        assert not hosted.ledger.dooms
        assert await letters(fleet) == sorted(b"%d" % number for number in range(20))

    run_services(run, seed=seed, nodes=3)


def message(offset: int) -> OwnMessage:
    origin = origin_of(GROUP, SOURCE, Offset(offset))
    draft = Draft(value=b"late", headers={ORIGIN: origin}, timestamp_us=1)
    return OwnMessage(origin, encode_row(draft))


def test_a_node_that_was_replaced_appends_nothing() -> None:
    """P5: what its successor did not find does not come afterwards."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.leaders |= {SOURCE: NodeId("a"), TARGET: NodeId("b")}
        fleet.create("orders", 1, {})
        fleet.create("orders.dlq", 1, {})
        targets = fleet.nodes[NodeId("a")].broker.own_targets
        assert targets is not None
        old, new = Fence("billing/orders/0", 3), Fence("billing/orders/0", 4)
        sought = [message(1).origin]
        assert await targets.find(TARGET, new, sought, from_offset=0) == {}
        with pytest.raises(StaleEpochError):
            await targets.append(TARGET, old, [message(1)], from_offset=0)
        assert await targets.append(TARGET, new, [message(1)], from_offset=0) == {sought[0]: 0}
        assert await targets.append(TARGET, new, [message(1)], from_offset=0) == {sought[0]: 0}
        assert await targets.find(TARGET, new, sought, from_offset=0) == {sought[0]: 0}
        assert await targets.end_offset(TARGET, new) == 1
        with pytest.raises(TopicNotFoundError):
            await targets.end_offset(place("none"), new)
        assert len(await letters(fleet)) == 1

    run_services(run)
