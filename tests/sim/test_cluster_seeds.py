"""Replicated partitions of real brokers under faults, from seeds."""

import os

import pytest

from tests.sim.cluster_chaos import ClusterChaos

SEEDS = int(os.environ.get("GOQUEUE_SIM_SEEDS", "200")) // 10
FIRST_SEED = int(os.environ.get("GOQUEUE_SIM_FIRST_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_acknowledged_is_lost_or_shown_twice(seed: int) -> None:
    """Whatever happens to three nodes, and all replicas are equal in the end."""
    chaos = ClusterChaos(seed)
    try:
        chaos.run()
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}: {chaos.plan}", *chaos.faults]))
        raise

    assert chaos.history.acks > 0


def test_the_same_seed_gives_the_same_run() -> None:
    """A failure can be repeated: faults, acks and reads are the same, in number and order."""
    runs = []
    for _ in range(2):
        chaos = ClusterChaos(FIRST_SEED)
        simulation = chaos.run()
        runs.append((chaos.faults, chaos.history.acks, chaos.history.reads, simulation.loop.time()))

    assert runs[0] == runs[1]
