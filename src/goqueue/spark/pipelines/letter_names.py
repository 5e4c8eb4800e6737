"""Which topics of dead letters are meant; asked before Spark is started."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.base.errors import TopicNotFoundError
from goqueue.core.dlq.names import DLQ_SUFFIX, dlq_of, is_dlq

if TYPE_CHECKING:
    import goqueue


def dlqs_of(client: "goqueue.Client", sources: Sequence[str]) -> list[str]:
    """Return the topics of dead letters of some topics, or of all."""
    there = [one.topic for one in client.dlq_list()]
    if not sources:
        return there
    wanted = [one if is_dlq(one) else dlq_of(one) for one in sources]
    for name in wanted:
        if name not in there:
            raise TopicNotFoundError(f"{name.removesuffix(DLQ_SUFFIX)} has no dead letters")
    return wanted
