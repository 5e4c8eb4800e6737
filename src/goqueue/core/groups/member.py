"""One member of a group, and a request to become one.

Shape: codec.
"""

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.base.errors import InvalidNameError, InvalidRequestError, TopicNotFoundError
from goqueue.base.ids import Generation, MemberId, TopicName
from goqueue.base.limits import CLIENT_ID_CHARACTERS_MAX, GROUP_TOPICS_MAX
from goqueue.base.names import is_internal, topic_name


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the group knows it."""

    id: MemberId
    client_id: str
    topics: tuple[TopicName, ...]
    joined_ms: int
    generation: Generation
    """The first one this member may speak of."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a join asks for; None leaves it to the group."""

    client_id: str
    topics: tuple[str, ...]
    protocol: str | None = None
    assignor: str | None = None
    member_id: str | None = None
    """The id of an earlier join, to come back as the same member."""
    options: Mapping[str, object] = {}


def check_client_id(client_id: object) -> str:
    """Return the name a client gives itself, or raise."""
    if not isinstance(client_id, str) or not client_id:
        raise InvalidRequestError("client_id is required")
    if len(client_id) > CLIENT_ID_CHARACTERS_MAX or not client_id.isprintable():
        raise InvalidRequestError(
            f"client_id: must be 1 to {CLIENT_ID_CHARACTERS_MAX} printable characters"
        )
    return client_id


def check_topics(
    topics: Sequence[object], partitions: Mapping[TopicName, int], *, known: Sequence[TopicName]
) -> tuple[TopicName, ...]:
    """Return the topics of a subscription, each once, or raise.

    All must exist but those the member reads already: one of them may have been deleted.
    """
    if not topics:
        raise InvalidRequestError("at least one topic is required")
    if len(topics) > GROUP_TOPICS_MAX:
        raise InvalidRequestError(f"topics: {len(topics)} are more than {GROUP_TOPICS_MAX}")
    checked = tuple(dict.fromkeys(topic_name(topic) for topic in topics))
    for topic in checked:
        if is_internal(topic):
            raise InvalidNameError("topic names beginning with '__' belong to the broker")
        if topic not in partitions and topic not in known:
            raise TopicNotFoundError(f"topic not found: {topic}")
    return checked
