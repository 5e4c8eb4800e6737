"""Clusters on an etcd that does everything an etcd and a network may do, from seeds.

``GOQUEUE_SIM_SEEDS=2000 make sim`` runs more of them. A failure names its seed.
"""

import asyncio
import os

import pytest

from goqueue.runtime.cluster.etcd.records import EtcdKeys
from goqueue.testing.sim.etcd import EtcdFaults
from tests.runtime.cluster.etcd.fleet import EtcdFleet, run_etcd_fleet
from tests.runtime.cluster.etcd.history import ProposalHistory, check_writes

SEEDS = int(os.environ.get("GOQUEUE_SIM_SEEDS", "200")) // 20
FIRST_SEED = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "1"))
SECONDS = 25


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_is_lost_or_done_twice_whatever_etcd_does(seed: int) -> None:
    """Slow, unreachable, compacted, leases lost, outcomes unknown, requests late, nodes killed."""

    async def scenario(fleet: EtcdFleet) -> None:
        await fleet.leader()
        history = ProposalHistory(fleet)
        proposing = asyncio.create_task(history.propose_for(SECONDS, workers=4))
        while not proposing.done():
            await disturb(fleet)
            await asyncio.sleep(fleet.random.uniform(0.05, 1.5))
        await proposing
        await settle(fleet)
        await fleet.propose(b"end")
        words = await fleet.agree()

        entries = fleet.places[fleet.founders[0]].machine.entries
        assert words[-1] == b"end"
        history.check([entry for entry in entries if entry[1] != b"end"])
        fleet.etcd.model.compacted = 0
        assert check_writes(fleet.etcd.model, EtcdKeys("goqueue")) > 0

    run_etcd_fleet(scenario, seed=seed, compact_batches=20)


async def disturb(fleet: EtcdFleet) -> None:
    """Do one thing that happens to an etcd or to its clients."""
    chance, model = fleet.random, fleet.etcd.model
    match chance.randrange(8):
        case 0:
            fleet.cut_off = set(chance.sample(fleet.founders, chance.choice((1, 1, 2))))
        case 1 | 2:
            fleet.cut_off = set()
            fleet.etcd.faults = EtcdFaults()
        case 3:
            model.compact(chance.randint(model.compacted, model.revision))
        case 4 if model.leases:
            lease = chance.choice(model.leases)
            fleet.etcd.do(lambda: model.revoke(lease))
        case 5:
            peer = chance.choice(fleet.running)
            await fleet.crash(peer)
            await asyncio.sleep(chance.choice((0.0, 0.5, 5.0)))
            await fleet.start(peer)
        case _:
            fleet.etcd.faults = EtcdFaults(
                delay=chance.choice(((0.0002, 0.003), (0.01, 0.3))),
                lost=chance.choice((0.0, 0.1)),
                unanswered=chance.choice((0.0, 0.3)),
                late=chance.choice((0.0, 0.2)),
                watch_broken=chance.choice((0.0, 0.3)),
                watch_stalled=chance.choice((0.0, 0.1)),
            )


async def settle(fleet: EtcdFleet) -> None:
    """Let all be well again, and what is late arrive."""
    fleet.cut_off = set()
    fleet.etcd.faults = EtcdFaults()
    await asyncio.sleep(10)
    await fleet.leader()
