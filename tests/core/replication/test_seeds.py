"""Replication under faults, from seeds: nothing committed is lost, and what is mended works again.

``GOQUEUE_SIM_SEEDS=20000`` runs more of them, from ``GOQUEUE_SIM_FIRST_SEED`` on. A failure names
its seed, its cluster and its faults; ``Chaos(seed).run()`` repeats it.
"""

import os

import pytest

from tests.core.replication.chaos import PLANS, Chaos
from tests.core.replication.checks import BrokenPromiseError

SEEDS = int(os.environ.get("GOQUEUE_SIM_SEEDS", "250"))
FIRST_SEED = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "1"))
LOTS = 10


@pytest.mark.parametrize("lot", range(LOTS))
def test_the_promises_hold_in_every_run(lot: int) -> None:
    """Whatever happens to nodes, disks, the network and the controller."""
    for seed in range(FIRST_SEED + lot, FIRST_SEED + SEEDS, LOTS):
        chaos = Chaos(seed)
        try:
            chaos.run()
        except BrokenPromiseError as error:
            plan = chaos.cluster.plan
            raise AssertionError(f"seed {seed}: {error}\n{plan}\n{chaos.faults}") from error


@pytest.mark.parametrize("seed", range(1, len(PLANS) + 1))
def test_a_seed_is_one_run(seed: int) -> None:
    """The same events at the same times, and the same messages in the logs."""
    runs = []
    for _ in range(2):
        chaos = Chaos(seed)
        chaos.run()
        logs = [str(node.disk.logs) for node in chaos.cluster.nodes.values()]
        runs.append((chaos.cluster.world.trace, logs, chaos.faults))

    assert runs[0] == runs[1]
