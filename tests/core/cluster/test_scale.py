"""The size of the metadata of many partitions, and the time a failover takes to decide."""

import time

from goqueue.base.cluster_limits import CHANGES_PER_EVENT_MAX
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.verbs import decide
from tests.core.cluster.world import rebuilt, state_of

SLACK = 10
"""Machines are slow at times; what is compared is the processor's time."""


def large(*, topics: int, partitions: int, nodes: int) -> ClusterImage:
    image = ClusterImage()

    def do(command: commands.Command) -> None:
        decision = decide(image, commands.Proposal(command=command), now_ms=1_700_000_000_000)
        for event in decision.events:
            image.apply(event)

    do(commands.FoundCluster(cluster_id="blue"))
    for number in range(nodes):
        name = f"node-{number}"
        do(
            commands.RegisterNode(
                cluster_id="blue", node=name, directory=f"disk-{number}", incarnation=1
            )
        )
        do(commands.UnfenceNode(node=name, epoch=image.node(name).epoch))
    for number in range(topics):
        do(commands.CreateTopic(name=f"topic-{number}", partitions=partitions))
    return image


def test_ten_thousand_partitions_are_small_and_load_quickly() -> None:
    """A snapshot of 0.5 MB and 0.1 s at most."""
    image = large(topics=100, partitions=100, nodes=9)
    state = state_of(image)
    begun = time.process_time()
    loaded = rebuilt(state)
    seconds = time.process_time() - begun

    assert sum(map(len, state)) <= 500_000
    assert seconds <= 0.1 * SLACK
    assert state_of(loaded) == state


def test_the_failover_of_a_node_is_one_decision() -> None:
    """33,334 partitions of 100,000: 0.1 s, in entries of 5,000 that are small and can be cut."""
    image = large(topics=100, partitions=1_000, nodes=9)
    fence = commands.FenceNode(node="node-1", epoch=image.node("node-1").epoch)
    begun = time.process_time()
    decision = decide(image, commands.Proposal(command=fence), now_ms=1)
    seconds = time.process_time() - begun
    rows = [
        len(one.changes) for one in decision.events if isinstance(one, events.PartitionsChanged)
    ]

    assert seconds <= 0.1 * SLACK
    assert sum(rows) >= 33_000
    assert max(rows) == CHANGES_PER_EVENT_MAX
    found = events.entries(decision.events)
    assert len(found) == len(rows) + 1
    assert max(len(events.encode(event)) for entry in found for event in entry) < 80_000
