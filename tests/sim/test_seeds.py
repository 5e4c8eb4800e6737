"""Whole brokers with their clients under faults, from seeds; every promise is checked at the end.

``GOQUEUE_SIM_SEEDS=2000 make sim`` runs more of them. A failure names its seed and its faults.
"""

import os

import pytest

from tests.sim.dying import DyingScenario
from tests.sim.moving import MovingScenario
from tests.sim.scenario import Scenario

SEEDS = int(os.environ.get("GOQUEUE_SIM_SEEDS", "200"))
FIRST_SEED = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "1"))
AT_ONCE = 10


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, AT_ONCE))
def test_promises_hold_whatever_fails(first: int) -> None:
    """P1 to P9: nothing acked is lost, nothing comes twice, early or half, over any faults."""
    for seed in range(first, min(first + AT_ONCE, FIRST_SEED + SEEDS)):
        Scenario(seed).run()


def test_a_seed_gives_one_trace() -> None:
    """Time, chance, network and disk follow from the seed, so that a failure can be repeated."""
    traces = {Scenario(4, faults=3).run() for _ in range(2)}

    assert len(traces) == 1


@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3, 14])
def test_nothing_is_lost_where_state_comes_and_goes(seed: int, *, is_beside: bool) -> None:
    """Every state partition is unloaded and loaded several times, while all of them are in use.

    So is what lies beside partitions, where ledgers do.
    """
    MovingScenario(seed, is_beside=is_beside).run()


@pytest.mark.parametrize("grace", [0, 2, 30])
@pytest.mark.parametrize("seed", range(1, 6))
def test_nothing_is_lost_with_consumers_that_die(seed: int, grace: int) -> None:
    """P2, P4, P5, P7: whatever ends the connections of members, and however long their grace is."""
    DyingScenario(seed, grace_s=grace).run()
