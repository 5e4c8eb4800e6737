"""Recurring schedules whose topic is led by another node: one message for each tick."""

import asyncio

import pytest

from goqueue.base.ids import NodeId
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.recurring.spec import HEADER_TICK, ScheduleSpec
from tests.runtime.rig import read_all
from tests.service.fleet import ServiceFleet, place, run_services

ORDERS = place("orders", 0)
HOME = place("__consumer_offsets", partition_of_key(b"nightly", 50))


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_tick_has_one_message_over_failovers_of_both(seed: int) -> None:
    """P3: of the schedule's coordinator and of its topic's leader, with requests lost or twice."""

    async def run(fleet: ServiceFleet) -> None:
        fleet.leaders |= {ORDERS: NodeId("b")}
        fleet.create("orders", 1, {})
        await fleet.move(HOME, "a")
        spec = ScheduleSpec(topic="orders", value=b"tick", every_ms=1_000)
        await fleet.nodes[NodeId("a")].broker.schedules.create("nightly", spec)
        fleet.loss, fleet.repeats, fleet.delay_s = 0.2, 0.2, 0.05
        for _ in range(24):
            await asyncio.sleep(fleet.random.uniform(0.3, 3))
            where = fleet.random.choice([HOME, ORDERS])
            await fleet.move(where, fleet.random.choice("abc"))
        fleet.loss = fleet.repeats = 0.0
        schedules = fleet.nodes[fleet.leader(HOME)].broker.schedules
        await fleet.until(lambda: schedules.get("nightly").state.published > 30)
        await schedules.pause("nightly")
        await fleet.until(lambda: schedules.get("nightly").state.begun is None)
        await schedules.settled()
        state = schedules.get("nightly").state
        messages, _ = await read_all(fleet.nodes[fleet.leader(ORDERS)].broker.topic("orders"), 0)
        ticks = [(message.headers or {})[HEADER_TICK] for message in messages]

        assert len(set(ticks)) == len(ticks)
        assert state.published == len(ticks)
        assert len(ticks) > 20
        assert state.begun is None

    run_services(run, seed=seed, nodes=3)
