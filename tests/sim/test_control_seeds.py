"""Random schedules for whole control planes: nothing that was answered is lost or done twice."""

import os

import pytest

from tests.runtime.cluster.control_fleet import FAST, ControlFleet, run_control
from tests.sim.control_chaos import ControlChaos

SEEDS = max(1, int(os.environ.get("GOQUEUE_SIM_SEEDS", "200")) // 10)
FIRST = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_control_plane_survives_faults(seed: int) -> None:
    """Images of one version are equal on all nodes at all times; in the end all nodes serve."""

    async def scenario(fleet: ControlFleet) -> None:
        await ControlChaos(fleet).run()

    names = ("a", "b", "c") if seed % 3 else ("a", "b", "c", "d", "e")
    run_control(scenario, seed=seed, names=names, timers=FAST if seed % 2 else None)
