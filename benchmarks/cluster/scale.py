"""Many partitions: how long a topic takes to serve, and what a cluster costs that does nothing."""

import time

import goqueue
from benchmarks.cluster.fleet import Fleet, publish_everywhere

IDLE_SECONDS = 10.0
SETTLE_SECONDS = 6.0

Found = dict[str, object]


def topics(client: goqueue.Client, *, partitions: int) -> Found:
    """Make a topic and publish to every partition of it."""
    name = f"wide-{partitions}"
    began = time.monotonic()
    client.create_topic(name, partitions=partitions)
    created = time.monotonic() - began
    publish_everywhere(client, name, partitions)
    return {
        "partitions": partitions,
        "created, s": round(created, 2),
        "first publish everywhere, s": round(time.monotonic() - began, 2),
    }


def idle(fleet: Fleet) -> Found:
    """Look at nodes that have nothing to do."""
    time.sleep(SETTLE_SECONDS)
    seconds, sent, began = fleet.processor_seconds(), fleet.bytes_sent(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    took = time.monotonic() - began
    return {
        "processor, % of a core": [
            round(100 * (now - then) / took, 2)
            for then, now in zip(seconds, fleet.processor_seconds(), strict=True)
        ],
        "sent, KB/s": [
            round((now - then) / took / 1_000, 2)
            for then, now in zip(sent, fleet.bytes_sent(), strict=True)
        ],
        "resident, MB": [round(child.rss_bytes() / 1_000_000) for child in fleet.children.values()],
    }
