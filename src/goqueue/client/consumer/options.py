"""What a consumer may be told, and what is refused before anybody is asked."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError
from goqueue.base.limits import (
    DISCONNECT_GRACE_MS_MAX,
    EXTENSION_MS_MAX,
    IN_FLIGHT_MAX,
    POLL_MESSAGES_MAX,
    RETRIES_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    VISIBILITY_TIMEOUT_MS_MAX,
    VISIBILITY_TIMEOUT_MS_MIN,
)
from goqueue.base.names import group_name, topic_name
from goqueue.client.consumer.delivery import Duration, duration_ms

LINGER_MS_MAX: Final = 10_000
POLLS_MAX: Final = 2
"""Polls under way while messages flow: the broker works on one while the other travels."""
KEYED_POLLS_MAX: Final = 3
KEYED_PREFETCH_MIN: Final = 2_400
"""The same in the order of keys: smaller polls bring the next message of a key sooner. Below such a
prefetch they would be so small that they cost the broker more than they bring."""
PREFETCH_MAX: Final = 2 * POLL_MESSAGES_MAX
AUTO_ACK_INTERVAL_MS: Final = 5_000

assert VISIBILITY_TIMEOUT_MS_MAX <= EXTENSION_MS_MAX, "every lease can be renewed"


class Refusal(NamedTuple):
    """A settlement the broker did not accept: the message was, or will be, delivered again."""

    topic: str
    partition: int
    offset: int
    verb: str
    error: GoQueueError


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to consume.

    Those from ``mode`` to ``start`` belong to the group: the first member decides, None takes what
    the group has, and a group with members refuses others.
    """

    group: str
    topics: Sequence[str]
    mode: str | None = None
    """``"exclusive"`` (the default: a partition has one consumer) or ``"shared"``."""
    ordering: str | None = None
    """``"none"`` (the default) or ``"key"``: messages of a key one after the other."""
    visibility_timeout: Duration | None = None
    max_retries: int | None = None
    max_in_flight: int | None = None
    session_timeout: Duration | None = None
    disconnect_grace: Duration | None = None
    """How long a consumer whose connections ended has to come back; 0 removes it at once."""
    start: str | None = None
    """Where a new group begins: ``"earliest"`` (the default) or ``"latest"``."""
    protocol: str = "cooperative"
    assignor: str | None = None
    prefetch: int = 1_000
    """Messages to hold ready beside the one being handled."""
    auto_ack: bool = False
    """Asking for the next message acks the one before."""
    settle_linger_ms: float = 5
    """How long a settlement may wait for others to go with it."""
    client_id: str = ""
    on_refused: Callable[[Refusal], None] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        group_name(self.group)
        if isinstance(self.topics, str) or not self.topics:
            raise InvalidRequestError('topics: expected names in a list, such as ["orders"]')
        for topic in self.topics:
            topic_name(topic)
        _one_of("mode", self.mode, ("exclusive", "shared", None))
        _one_of("ordering", self.ordering, ("none", "key", None))
        _one_of("start", self.start, ("earliest", "latest", None))
        _one_of("protocol", self.protocol, ("cooperative", "eager"))
        _one_of("assignor", self.assignor, ("sticky", "range", "roundrobin", None))
        _between("prefetch", self.prefetch, 1, PREFETCH_MAX)
        _between("max_retries", self.max_retries, 0, RETRIES_MAX)
        _between("max_in_flight", self.max_in_flight, 1, IN_FLIGHT_MAX)
        if not 0 <= self.settle_linger_ms <= LINGER_MS_MAX:
            raise InvalidRequestError(f"settle_linger_ms: must be 0 to {LINGER_MS_MAX}")
        self.group_options()

    def polls_max(self, ordering: object) -> int:
        """Return how many polls may be under way in a group with this order."""
        is_wide = ordering == "key" and self.prefetch >= KEYED_PREFETCH_MIN
        return KEYED_POLLS_MAX if is_wide else POLLS_MAX

    @property
    def name(self) -> str:
        """What the consumer calls itself; the broker makes a member id of it."""
        return self.client_id or f"{socket.gethostname()[:100]}-{os.getpid()}"

    def group_options(self) -> dict[str, str | int | bool]:
        """Return what is to be said of the group."""
        stated: dict[str, str | int | bool | None] = {
            "mode": self.mode,
            "ordering": self.ordering,
            "max_retries": self.max_retries,
            "max_in_flight": self.max_in_flight,
            "auto_offset_reset": self.start,
        }
        if self.visibility_timeout is not None:
            stated["visibility_timeout_ms"] = duration_ms(
                self.visibility_timeout,
                name="visibility_timeout",
                least_ms=VISIBILITY_TIMEOUT_MS_MIN,
                most_ms=VISIBILITY_TIMEOUT_MS_MAX,
            )
        if self.session_timeout is not None:
            stated["session_timeout_ms"] = duration_ms(
                self.session_timeout,
                name="session_timeout",
                least_ms=SESSION_TIMEOUT_MS_MIN,
                most_ms=SESSION_TIMEOUT_MS_MAX,
            )
        if self.disconnect_grace is not None:
            stated["disconnect_grace_ms"] = duration_ms(
                self.disconnect_grace, name="disconnect_grace", most_ms=DISCONNECT_GRACE_MS_MAX
            )
        return {name: value for name, value in stated.items() if value is not None}


def _one_of(name: str, value: str | None, known: Sequence[str | None]) -> None:
    if value not in known:
        words = ", ".join(repr(one) for one in known if one is not None)
        raise InvalidRequestError(f"{name}: {value!r} is none of {words}")


def _between(name: str, value: int | None, least: int, most: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequestError(f"{name}: {value!r} is not a whole number from {least} to {most}")
