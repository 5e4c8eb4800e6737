"""Transactions across nodes that settle what groups consume, and that adopt others (P9)."""

import asyncio

import pytest

from goqueue.base.errors import AdoptionRefusedError, InvalidTransactionStateError
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.runtime.broker import Broker
from goqueue.runtime.state_log import STATE_TOPIC
from tests.sim.test_tx_cluster import NOTE, elsewhere, open_anywhere, run
from tests.sim.tx_clients import GROUP, Client, Reader, Teller, Worker, place
from tests.sim.tx_fleet import Fleet


async def group_with(fleet: Fleet, *values: str) -> Worker:
    """Publish messages and join the group that reads them."""
    fleet.elect(place("in", 0), fleet.leader(place(STATE_TOPIC, 0)))
    await asyncio.sleep(0.3)
    teller = Teller(fleet, "filler")
    await teller.init()
    await teller.begin()
    await teller.publish("in", 0, *values)
    await teller.end(COMMIT)
    worker = Worker(fleet, "in")
    await worker.join()
    return worker


def committed(fleet: Fleet) -> int:
    """Return up to where the group has settled everything."""
    leader = fleet.leader(place(STATE_TOPIC, 0))
    assert leader is not None
    return fleet.nodes[leader].up.consume.ledgers.of(GROUP)[place("in", 0)].ledger.committed


async def move_group(fleet: Fleet) -> None:
    """Let another node lead the input and what is known of its group."""
    old = fleet.leader(place(STATE_TOPIC, 0))
    new = next(one for one in fleet.nodes if one != old)
    fleet.elect(place(STATE_TOPIC, 0), new)
    fleet.elect(place("in", 0), new)
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("leader", ["stays", "moves"])
def test_acks_and_offsets_are_part_of_it(leader: str) -> None:
    """Consumed and produced in one step: both happen, or neither, whoever leads the input."""

    async def scenario(fleet: Fleet) -> None:
        worker = await group_with(fleet, "1", "2", "3", "4")
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        (leased,) = await worker.poll(2)
        assert await teller.hold(leased) == 0
        assert await teller.hold(leased) == 2, "what is held cannot be taken twice"
        await teller.publish("accounts", 0, "never")
        if leader == "moves":
            await move_group(fleet)
        await teller.end(ABORT)
        assert committed(fleet) == 0
        assert open_anywhere(fleet) == []
        (leased,) = await worker.poll(2)
        await teller.begin()
        assert await teller.hold(leased) == 0
        await teller.publish("accounts", 1, "out")
        if leader == "moves":
            await move_group(fleet)
        await teller.end(COMMIT)
        assert committed(fleet) == 2
        await teller.begin()
        await teller.offsets("in", 0, 4)
        await teller.publish("accounts", 2, "more")
        await elsewhere(fleet, teller)
        await teller.end(COMMIT)

        assert committed(fleet) >= 4
        assert await reader.values("accounts", 0) == []
        assert await reader.values("accounts", 1) == ["out"]
        assert await reader.values("accounts", 2) == ["more"]

    run(scenario)


def test_a_reset_is_not_undone_by_a_commit_before_it() -> None:
    """Also when the coordinator dies and another one tells of the commit again."""

    async def scenario(fleet: Fleet) -> None:
        await group_with(fleet, "1", "2", "3", "4")
        teller = Teller(fleet, "t")
        await teller.init()
        await teller.begin()
        await teller.offsets("in", 0, 3)
        await teller.end(COMMIT)
        assert committed(fleet) == 3

        async def reset(broker: Broker) -> None:
            await broker.consume.reset_offsets(GROUP, {place("in", 0): 1})  # type: ignore[dict-item]

        await Client(fleet).ask(place(STATE_TOPIC, 0), reset)
        assert committed(fleet) == 1
        for _ in range(2):
            await elsewhere(fleet, teller)

        assert committed(fleet) == 1

    run(scenario)


def test_a_job_and_its_tasks_end_together() -> None:
    """Ids of a family have one coordinator; what belongs to another one cannot be adopted."""

    async def scenario(fleet: Fleet) -> None:
        job, reader = Teller(fleet, "job"), Reader(fleet)
        await job.init()
        tasks = [Teller(fleet, f"job.task-{number}.0") for number in range(3)]
        stranger = next(
            one for one in (Teller(fleet, f"s{n}") for n in range(20)) if one.where != job.where
        )
        for number, task in enumerate([*tasks, stranger]):
            await task.init()
            await task.begin()
            await task.publish("accounts", number % 3, task.name)
            await detach(task)
        await job.begin()
        with pytest.raises(AdoptionRefusedError, match="another coordinator than job"):
            await adopt(job, tasks[0].who, stranger.who)
        await adopt(job, *(task.who for task in tasks))
        await elsewhere(fleet, job)
        with pytest.raises(InvalidTransactionStateError, match="adopted by job"):
            await tasks[0].end(ABORT)
        await job.end(COMMIT, token=NOTE)
        await stranger.end(ABORT)
        for number, task in enumerate(tasks):
            assert await reader.values("accounts", number) == [task.name]
        assert open_anywhere(fleet) == []
        late = Teller(fleet, "job.task-0.1", timeout_ms=2_000)
        await late.init()
        await late.begin()
        await late.publish("accounts", 0, "late")
        await detach(late)
        await asyncio.sleep(5)
        await job.begin()
        with pytest.raises(AdoptionRefusedError, match="CompleteAbort"):
            await adopt(job, late.who)
        await job.end(ABORT)

        assert await reader.values("accounts", 0) == [tasks[0].name]

    run(scenario)


async def detach(task: Teller) -> None:
    """Leave a transaction to its adopter."""

    async def work(broker: Broker) -> None:
        await broker.transactions.detach(task.who)

    await task.ask(task.where, work)


async def adopt(job: Teller, *children: Identity) -> None:
    """Let detached transactions end as another one."""

    async def work(broker: Broker) -> None:
        await broker.transactions.adopt(job.who, children)

    await job.ask(job.where, work)
