"""The topics that brokers of a cluster keep their own state in."""

from collections.abc import Iterator, Mapping
from typing import Final

from goqueue.base.ids import TopicName
from goqueue.core.cluster.commands import CreateTopic
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.topics.settings import COMPACT
from goqueue.runtime.log.catalogue import STATE_SEGMENT_BYTES

INTERNAL_TOPICS: Final[Mapping[str, int]] = {
    "__consumer_offsets": 50,
    "__transactions": 8,
    "__schemas": 1,
}
"""Their partitions, for good: names are hashed to them."""


def missing_topics(image: ClusterImage) -> Iterator[CreateTopic]:
    """Yield the commands that make the topics which do not exist."""
    for name, partitions in INTERNAL_TOPICS.items():
        if TopicName(name) not in image.catalog.topics:
            yield CreateTopic(
                name=name,
                partitions=partitions,
                settings={
                    "segment_bytes": STATE_SEGMENT_BYTES,
                    "retention_ms": 0,
                    "cleanup_policy": COMPACT,
                },
                by_broker=True,
            )
