"""What both kinds of consumer do alike: what to ask for, what to make of it, when to try again."""

import math
import time
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.client.consumer.hold import Place
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.upkeep import Upkeep
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Answer
from goqueue.client.protocol.fetching import FETCH_BYTES
from goqueue.wire.queue_calls import Poll

WAIT_MS: Final = 1_000


class Polling:
    """A member of a group that polls. Does no I/O of its own."""

    def __init__(self, upkeep: Upkeep, options: ConsumerOptions, *, timeout_s: float) -> None:
        self._upkeep = upkeep
        self._hold = upkeep.hold
        self._options = options
        self._timeout_s = timeout_s
        self._rejoined_s = -math.inf
        self._lost_s: float | None = None
        self._backoff_s = BACKOFF_SECONDS
        self._is_closed = False

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<{kind} {self.member_id} of {self._options.group}: {self._hold!r}>"

    @property
    def member_id(self) -> str:
        """What the group calls this consumer; empty before it has joined."""
        return self._upkeep.membership.member_id

    @property
    def assignment(self) -> list[Place]:
        """The partitions this consumer reads, as far as it was told."""
        return list(self._upkeep.membership.assigned)

    def _poll_request(self) -> Poll:
        # A lease begins when the broker finds something: the wait must be a small part of it.
        return Poll(
            self._options.group,
            self.member_id,
            self._upkeep.membership.generation,
            self._hold.poll_limit(self._options),
            FETCH_BYTES,
            min(WAIT_MS, max(self._hold.lease_ms // 4, 1)),
        )

    def _take_polled(self, answer: Answer, asked_s: float) -> bool:
        """Take what a poll brought; return True if the group has changed meanwhile."""
        limit = self._hold.poll_limit(self._options)
        polled = self._hold.take(answer, asked_s=asked_s, limit=limit)
        return polled.generation != self._upkeep.membership.generation

    def _went_well(self) -> None:
        self._lost_s = None
        self._backoff_s = BACKOFF_SECONDS

    def _pause_s(self, error: GoQueueError) -> float:
        """Return how long to wait before the next try; give up when the time for tries is over."""
        now_s = time.monotonic()
        if self._lost_s is None:
            self._lost_s = now_s
        if now_s - self._lost_s > self._timeout_s:
            self._lost_s = None
            raise error
        pause_s = self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_SECONDS_MAX)
        return pause_s
