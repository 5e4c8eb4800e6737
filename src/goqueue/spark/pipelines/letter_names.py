"""Which topics of dead letters are meant; asked before Spark is started."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.base.errors import TopicNotFoundError
from goqueue.core.dlq.names import dlq_name

if TYPE_CHECKING:
    import goqueue


def dlqs_of(client: "goqueue.Client", sources: Sequence[str]) -> list[str]:
    """Return the topics of dead letters of some topics, or of all; a topic may have none."""
    there = [one.topic for one in client.dlq_list()]
    if not sources:
        return there
    missing = [name for name in sources if dlq_name(name) not in there]
    if missing:
        known = {topic.name for topic in client.list_topics()}
        for name in missing:
            if name not in known:
                raise TopicNotFoundError(f"topic not found: {name}")
    return [dlq_name(name) for name in sources if name not in missing]
