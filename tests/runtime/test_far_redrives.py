"""Redrives and purges whose job, dead letters and target are led by different nodes."""

import asyncio
import contextlib
from collections import Counter
from random import Random

import pytest

from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    NotCoordinatorError,
    StaleEpochError,
)
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.record import REDRIVES
from goqueue.core.dlq.redrive import Kind, Order, RedriveState
from goqueue.core.record.message import Draft, Message
from goqueue.runtime.dlq.redrive import Redrives
from goqueue.runtime.dlq.reports import RedriveProgress
from goqueue.runtime.dlq.shelf_steps import StepAsk
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.service.routed import RoutedService
from goqueue.wire.calls import Nothing
from goqueue.wire.dlq_calls import PeekLetters
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import read_all
from tests.service.fleet import CALLER, ServiceFleet, place, run_services

DLQ = "orders.dlq"
PARTITIONS = 3
LETTERS = 60


def order(kind: Kind = Kind.REDRIVE, **fields: object) -> Order:
    return Order(kind=kind, max_redrives=3, **fields)  # type: ignore[arg-type]


def home(fleet: ServiceFleet) -> TopicPartition:
    """Return the state partition of the jobs."""
    state = fleet.nodes[NodeId("a")].broker.state
    return TopicPartition(TopicName(STATE_TOPIC), PartitionId(state.partition_of(DLQ)))


def jobs(fleet: ServiceFleet) -> Redrives:
    """Return the node that has the jobs now."""
    return fleet.nodes[fleet.leader(home(fleet))].broker.redrives


async def prepare(fleet: ServiceFleet, *, job_at: str = "a") -> None:
    """Make a topic with dead letters on three nodes, and another one."""
    for number, (source, letters) in enumerate([("b", "c"), ("c", "a"), ("a", "b")]):
        fleet.leaders[place("orders", number)] = NodeId(source)
        fleet.leaders[place(DLQ, number)] = NodeId(letters)
    for name in ("orders", DLQ, "repairs"):
        fleet.create(name, PARTITIONS, {})
    await fleet.move(home(fleet), job_at)
    for number in range(PARTITIONS):
        topic = fleet.nodes[fleet.leader(place(DLQ, number))].broker.topic(DLQ)
        drafts = [
            (Draft(value=b"%d-%d" % (number, one), key=b"%d" % (one % 7)), number)
            for one in range(LETTERS // PARTITIONS)
        ]
        outcomes = await topic.publish_drafts(PUBLISHING, drafts)
        assert not [one for one in outcomes if isinstance(one, GoQueueError)]


async def there(fleet: ServiceFleet, topic: str) -> list[Message]:
    """Return every message of a topic, each from its leader."""
    found: list[Message] = []
    for number in range(PARTITIONS):
        node = fleet.nodes[fleet.leader(place(topic, number))]
        found += (await read_all(node.broker.topic(topic), number))[0]
    return found


async def left(fleet: ServiceFleet) -> int:
    """Return how many dead letters there are, by their leaders."""
    depth = 0
    for number in range(PARTITIONS):
        broker = fleet.nodes[fleet.leader(place(DLQ, number))].broker
        topic = broker.topic(DLQ)
        depth += broker.redrives.shelves.at(topic, topic.partition(number)).depth
    return depth


async def ended(fleet: ServiceFleet, job_id: int) -> RedriveProgress:
    """Return how a job ended, wherever it did."""

    def is_over() -> bool:
        with contextlib.suppress(NotCoordinatorError):
            return not jobs(fleet).progress("orders", job_id).job.is_running
        return False

    await fleet.until(is_over)
    return jobs(fleet).progress("orders", job_id)


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("kind", [Kind.REDRIVE, Kind.PURGE])
def test_a_job_works_on_letters_of_all_leaders(seed: int, kind: Kind) -> None:
    """P5: no node leads all of it; lost and repeated requests double nothing."""

    async def run(fleet: ServiceFleet) -> None:
        await prepare(fleet)
        fleet.loss = fleet.repeats = 0.15
        wanted = order(kind, target="repairs" if seed % 2 else "")
        trial = await jobs(fleet).try_out("orders", wanted)
        started = await jobs(fleet).start("orders", wanted)
        told = await ended(fleet, started.job.id)
        fleet.loss = fleet.repeats = 0.0
        moved = await there(fleet, "repairs" if seed % 2 else "orders")

        assert (trial.matched, len(trial.sample)) == (LETTERS, 10)
        assert (started.job.total, told.moved) == (LETTERS, LETTERS)
        assert told.job.state is RedriveState.DONE
        assert await left(fleet) == 0
        assert Counter(one.value for one in moved) == (
            {} if kind is Kind.PURGE else Counter(one.value for one in await there(fleet, DLQ))
        )
        assert all((one.headers or {})[REDRIVES] == b"1" for one in moved)

    run_services(run, seed=seed, nodes=3)


@pytest.mark.parametrize("moved", ["job", "letters", "target", "all"])
@pytest.mark.parametrize("after_ms", [0, 3, 9, 20, 45, 90])
def test_a_job_is_cut_by_failover_anywhere(moved: str, after_ms: int) -> None:
    """Hard case 14: whoever leads what next goes on, and every message goes once."""

    async def run(fleet: ServiceFleet) -> None:
        await prepare(fleet)
        fleet.loss = fleet.repeats = 0.1
        started = await jobs(fleet).start("orders", order(rate=400))
        await asyncio.sleep(after_ms / 1_000)
        if moved in {"job", "all"}:
            await fleet.move(home(fleet), "b")
        if moved in {"letters", "all"}:
            for number, node in enumerate("abc"):
                await fleet.move(place(DLQ, number), node)
        if moved in {"target", "all"}:
            for number, node in enumerate("abc"):
                await fleet.move(place("orders", number), node)
        told = await ended(fleet, started.job.id)
        fleet.loss = fleet.repeats = 0.0
        back = await there(fleet, "orders")

        assert (told.job.state, told.moved) == (RedriveState.DONE, LETTERS)
        assert Counter(one.value for one in back) == Counter(
            one.value for one in await there(fleet, DLQ)
        )
        assert await left(fleet) == 0

    run_services(run, seed=after_ms + 1, nodes=3)


@pytest.mark.parametrize("seed", range(1, 7))
def test_jobs_over_leaders_that_keep_moving(seed: int) -> None:
    """What went back and what is left are all there is, cancelled or not."""

    async def run(fleet: ServiceFleet) -> None:
        await prepare(fleet, job_at="b")
        chance = Random(seed)
        fleet.loss = fleet.repeats = 0.1
        started = await jobs(fleet).start("orders", order(rate=200, target="repairs"))
        for _ in range(6):
            await asyncio.sleep(chance.uniform(0, 0.15))
            places = [home(fleet), *(place(DLQ, n) for n in range(PARTITIONS))]
            await fleet.move(chance.choice(places), chance.choice("abc"))
        if seed % 2:
            await jobs(fleet).cancel("orders", started.job.id)
        told = await ended(fleet, started.job.id)
        fleet.loss = fleet.repeats = 0.0
        went = Counter(one.value for one in await there(fleet, "repairs"))

        assert max(went.values(), default=0) <= 1
        assert went.total() + await left(fleet) == LETTERS
        assert told.moved == went.total()
        if not seed % 2:
            assert told.moved == LETTERS

    run_services(run, seed=seed, nodes=3)


def test_a_node_that_was_replaced_works_on_nothing() -> None:
    """A step of an earlier epoch is refused, and a node without the jobs begins none."""

    async def run(fleet: ServiceFleet) -> None:
        await prepare(fleet)
        old = jobs(fleet)
        topic = fleet.nodes[NodeId("a")].broker.topic(DLQ)
        epoch = old.shelving.epoch(topic)
        await fleet.move(home(fleet), "c")
        with pytest.raises(NotCoordinatorError):
            old.shelving.epoch(topic)
        with pytest.raises(StaleEpochError):
            await old.shelving.step(topic, 0, StepAsk((epoch, 1), order(target="orders"), 0, 9, 9))

        assert await left(fleet) == LETTERS

    run_services(run, nodes=3)


def test_a_job_takes_just_the_places_that_are_named() -> None:
    """Each leader is told of its own, and the pace is that of the whole job."""

    async def run(fleet: ServiceFleet) -> None:
        await prepare(fleet)
        wanted = order(target="repairs", rate=50, filter=Filter(places={0: [2, 5], 2: [0, 1]}))
        trial = await jobs(fleet).try_out("orders", wanted)
        began = fleet.simulation.loop.time()
        started = await jobs(fleet).start("orders", wanted)
        told = await ended(fleet, started.job.id)
        went = sorted(one.value or b"" for one in await there(fleet, "repairs"))

        assert trial.matched == told.moved == 4
        assert told.job.unmatched == LETTERS - 4
        assert went == [b"0-2", b"0-3", b"0-4", b"2-0"]
        assert fleet.simulation.loop.time() - began < 5

    run_services(run, nodes=3)


def test_any_node_shows_letters_of_all_leaders() -> None:
    """Page by page in the order of partitions, with the depth of all, over HTTP on any node."""

    async def run(fleet: ServiceFleet) -> None:
        await prepare(fleet)
        node = fleet.nodes[NodeId("b")]
        assert node.broker.forwarding is not None
        there = RoutedService(node.broker, node.service, node.broker.forwarding)
        allowed = node.service.gate.admit(CALLER, Deed.PEEK_DLQ, (DLQ,))
        seen: list[tuple[int, int]] = []
        while True:
            peek = PeekLetters("orders", limit=7, skip=len(seen))
            topic, source, page = await there.dlq.read(allowed, peek)
            assert (topic, source, page.depth) == (DLQ, "orders", LETTERS)
            seen += [(one.message.partition, one.message.offset) for one in page.letters]
            if not page.is_cut:
                break
        one = await there.dlq.read(allowed, PeekLetters("orders", partition=2, offset=18))
        with pytest.raises(InvalidRequestError):
            await there.dlq.read(allowed, PeekLetters("orders", offset=1))
        listing = node.service.gate.admit(CALLER, Deed.LIST_DLQ, ())
        (listed,) = (await there.dlq.list_all(listing, Nothing())).topics

        assert seen == [(number, at) for number in range(PARTITIONS) for at in range(20)]
        assert [letter.message.offset for letter in one.page.letters] == [18, 19]
        assert listed.depth == LETTERS

    run_services(run, nodes=3)
