"""What the topic of dead letters is called, and which message a moved one was.

Shape: codec.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from goqueue.base.ids import Offset, TopicName, TopicPartition
from goqueue.base.limits import NAME_CHARACTERS_MAX
from goqueue.base.names import is_internal

DLQ_SUFFIX: Final = ".dlq"
DLQ_GROUP: Final = "__dlq"
"""The group whose ledgers tell what is still among the dead letters."""

ORIGIN_BYTES: Final = 16
_DIGEST_BYTES: Final = 8


def is_dlq(topic: str) -> bool:
    """Return True if a topic holds dead letters. It has no dead letters of its own."""
    return topic.endswith(DLQ_SUFFIX)


def dlq_of(topic: str) -> TopicName:
    """Return where the dead letters of a topic go; a name too long is cut and told apart."""
    if len(topic) + len(DLQ_SUFFIX) <= NAME_CHARACTERS_MAX:
        return TopicName(topic + DLQ_SUFFIX)
    digest = blake2b(topic.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    kept = NAME_CHARACTERS_MAX - len(DLQ_SUFFIX) - len(digest) - 1
    return TopicName(f"{topic[:kept]}-{digest}{DLQ_SUFFIX}")


def dlq_name(topic: str) -> TopicName:
    """Return the topic of dead letters that a topic, or that topic itself, names."""
    return TopicName(topic) if is_dlq(topic) else dlq_of(topic)


def source_of(dlq: str, topics: Iterable[str]) -> TopicName:
    """Return whose dead letters a topic holds; a source that is gone is known by name alone."""
    plain = dlq.removesuffix(DLQ_SUFFIX)
    if len(dlq) == NAME_CHARACTERS_MAX:
        for topic in topics:
            if not is_internal(topic) and topic != plain and dlq_of(topic) == dlq:
                return TopicName(topic)
    return TopicName(plain)


def origin_of(group: str, name: TopicPartition, offset: Offset) -> bytes:
    """Return the identity of a moved message: the same whenever the same one is moved."""
    text = f"{group}/{name.topic}/{name.partition}/{offset}"
    return blake2b(text.encode(), digest_size=ORIGIN_BYTES).digest()
