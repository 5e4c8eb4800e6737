"""Quorums under faults, from seeds; the invariants of Raft are checked after every step.

``GOQUEUE_SIM_SEEDS=2000 make sim`` runs more of them. A failure names its seed.
"""

import os

import pytest

from tests.core.raft.world import World

SEEDS = int(os.environ.get("GOQUEUE_SIM_SEEDS", "200"))
FIRST_SEED = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "1"))
PER_SEED = 3
"""Seeds of a quorum for each seed of the others: they take hundredths of a second."""
AT_ONCE = 30
STEPS = 1_500


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + PER_SEED * SEEDS, AT_ONCE))
def test_a_quorum_keeps_its_promises(first: int) -> None:
    """One leader a term, one entry an index, reads that are current; and it recovers."""
    for seed in range(first, min(first + AT_ONCE, FIRST_SEED + PER_SEED * SEEDS)):
        world = World(seed, voters=(3, 4, 5)[seed % 3])
        try:
            world.run(STEPS)
            world.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_seed_of_a_quorum_gives_one_run() -> None:
    """So that a failure can be repeated."""
    worlds = [World(7), World(7)]
    for world in worlds:
        world.run(STEPS)

    assert [str(member.raft) for member in worlds[0].members.values()] == [
        str(member.raft) for member in worlds[1].members.values()
    ]
    assert worlds[0].invariants.chosen == worlds[1].invariants.chosen
