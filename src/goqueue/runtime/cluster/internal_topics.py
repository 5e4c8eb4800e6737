"""The topics that brokers of a cluster keep their own state in."""

from collections.abc import Iterator, Mapping
from typing import Final

from goqueue.base.ids import TopicName
from goqueue.core.cluster.commands import CreateTopic, Setting
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replication_settings import REPLICATION_FACTOR
from goqueue.core.topics.settings import COMPACT
from goqueue.runtime.log.catalogue import STATE_SEGMENT_BYTES

INTERNAL_TOPICS: Final[Mapping[str, int]] = {
    "__consumer_offsets": 50,
    "__transactions": 8,
    "__schemas": 1,
}
"""Their partitions, for good: names are hashed to them."""

_SETTINGS: Final[Mapping[str, Setting]] = {
    "segment_bytes": STATE_SEGMENT_BYTES,
    "retention_ms": 0,
    "cleanup_policy": COMPACT,
}


def with_factor(settings: Mapping[str, Setting], factor: int) -> dict[str, Setting]:
    """Return the settings of a new topic with a number of replicas, unless they say one."""
    return {REPLICATION_FACTOR: factor, **settings} if factor else dict(settings)


def missing_topics(image: ClusterImage, *, factor: int = 0) -> Iterator[CreateTopic]:
    """Yield the commands that make the topics which do not exist."""
    for name, partitions in INTERNAL_TOPICS.items():
        if TopicName(name) not in image.catalog.topics:
            yield CreateTopic(
                name=name,
                partitions=partitions,
                settings=with_factor(_SETTINGS, factor),
                by_broker=True,
            )
