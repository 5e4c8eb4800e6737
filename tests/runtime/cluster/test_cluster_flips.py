"""Bits flip anywhere on one node of three: nothing wrong is served, and the cluster heals."""

from random import Random

import pytest

from goqueue.runtime.cluster.scrub import Scrub
from goqueue.runtime.log.own_rows import append_own
from goqueue.runtime.state_records import change_row
from goqueue.testing.disk import MemoryDisk
from tests.runtime.cluster.replica_steps import (
    end_at,
    followers_of,
    publish_once,
    values_at,
    whole,
)
from tests.sim.cluster_clients import log_bytes, place_of
from tests.sim.cluster_nodes import SimCluster, SimNode, run_cluster

PLACE = place_of("orders")
COUNT = 12
FOLDERS = ("logs/orders/0", "state/orders/0")


def files_of(disk: MemoryDisk) -> list[tuple[str, int]]:
    """Return the files of a node that may be damaged, with their sizes."""
    found: list[tuple[str, int]] = []
    for folder in FOLDERS:
        for name in disk.list_directory(folder):
            file = disk.open(f"{folder}/{name}")
            found.append((f"{folder}/{name}", file.size()))
            file.close()
    return [(path, size) for path, size in found if size]


async def filled(cluster: SimCluster) -> tuple[SimNode, list[bytes]]:
    """Publish messages, and state beside them, that all replicas have."""
    leader = await whole(cluster, segment_bytes=1_048_576)
    values = [b"value-%d" % number for number in range(COUNT)]
    for value in values:
        await publish_once(cluster, value)

    async def write() -> None:
        state = leader.broker.topic("orders").make_state(PLACE.partition)
        for number in range(6):
            append_own(state, [change_row("test/machine", number, b"\x90")], timestamp_ns=1)
        await state.committed()

    await leader.run(write())
    nodes = cluster.nodes.values()
    await cluster.until(lambda: all(end_at(cluster, node, COUNT) for node in nodes))
    return leader, values


async def is_whole_again(cluster: SimCluster, values: list[bytes]) -> None:
    await cluster.until(cluster.is_whole)
    nodes = cluster.nodes.values()
    await publish_once(cluster, b"last")
    await cluster.until(lambda: all(end_at(cluster, node, len(values) + 1) for node in nodes))
    assert await values_at(cluster.leader("orders")) == [*values, b"last"]
    for node in nodes:
        scrub = Scrub(node.replicas, node.disk, bytes_per_second=0)
        await node.run(scrub.round())
    groups = [group for node in nodes for group in node.replicas.groups.values()]
    logs = [one for group in groups for one in group.logs.values()]
    await cluster.until(
        lambda: not any(one.partition and one.partition.log.recovery.gaps for one in logs)
    )
    assert len({log_bytes(cluster, node, PLACE) for node in nodes}) == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_node_that_is_started_with_flipped_bits(seed: int) -> None:
    """In logs, state logs, indexes and snapshots (hard case 7)."""

    async def scenario(cluster: SimCluster) -> None:
        random = Random(seed)
        leader, values = await filled(cluster)
        hurt = leader if seed % 2 else followers_of(cluster, leader)[0]
        hurt.kill()
        for _ in range(2):
            path, size = random.choice(files_of(hurt.disk))
            hurt.disk.flip_bits(path, [random.randrange(size)], mask=1 << random.randrange(8))
        hurt.begin()
        await is_whole_again(cluster, values)

    run_cluster(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_bits_that_flip_while_a_node_runs(seed: int) -> None:
    """Readers never see anything else; the scrub finds what they do not read."""

    async def scenario(cluster: SimCluster) -> None:
        random = Random(seed)
        leader, values = await filled(cluster)
        hurt = leader if seed % 2 else followers_of(cluster, leader)[0]
        logs = [one for one in files_of(hurt.disk) if one[0].endswith(".log")]
        for _ in range(3):
            path, size = random.choice(logs)
            hurt.disk.flip_bits(path, [random.randrange(size)], mask=1 << random.randrange(8))
        assert await values_at(leader) == values
        await is_whole_again(cluster, values)

    run_cluster(scenario, seed=seed)
