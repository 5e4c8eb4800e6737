"""Transactions across nodes under faults, from seeds: all or nothing, and nothing open for ever.

``GOQUEUE_SIM_SEEDS=2000 make sim`` runs more of them. A failure names its seed and its faults.
"""

import os

import pytest

from tests.sim.tx_chaos import Chaos

SEEDS = max(int(os.environ.get("GOQUEUE_SIM_SEEDS", "200")) // 20, 1)
FIRST_SEED = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "1"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_transactions_are_all_or_nothing_whatever_fails(seed: int) -> None:
    """P9, and P1 to P4 with it: coordinators and leaders die, move and are cut off."""
    Chaos(seed).run()


def test_a_seed_gives_one_run() -> None:
    """So that a failure can be repeated."""
    runs = [Chaos(3, faults=3) for _ in range(2)]
    for one in runs:
        one.run()

    assert runs[0].history.outcomes == runs[1].history.outcomes
    assert runs[0].history.errors == runs[1].history.errors
