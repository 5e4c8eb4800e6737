"""What both kinds of consumer do alike: what to ask for, what to make of it, when to try again."""

import math
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from goqueue.base.errors import GoQueueError, UnsupportedError
from goqueue.client.consumer.delivery import Order
from goqueue.client.consumer.hold import Place, settlements
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.targets import NOT_A_MEMBER, ONE_BROKER
from goqueue.client.consumer.upkeep import Upkeep
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Answer
from goqueue.client.protocol.fetching import FETCH_BYTES
from goqueue.wire.calls import Call
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Next, Poll

WAIT_MS: Final = 1_000
IN_TURN_WAIT_MS: Final = 100
"""How long a poll waits at one of several leaders that are polled one after the other."""
NEXT_PREFETCH_MAX: Final = 64
"""Up to this, settlements and the poll behind them are one request, answered together. Where more
is fetched ahead, the poll is under way long before there is something to settle."""


class Asked(NamedTuple):
    """A request of a consumer, and the settlements in it."""

    operation: Operation
    header: Call
    orders: list[Order]
    is_poll: bool
    node: str = ONE_BROKER


class Polling:
    """A member of a group that polls. Does no I/O of its own."""

    def __init__(self, upkeep: Upkeep, options: ConsumerOptions, *, timeout_s: float) -> None:
        self._upkeep = upkeep
        self._targets = upkeep.targets
        self._hold = upkeep.hold
        self._options = options
        self._timeout_s = timeout_s
        self._rejoined_s = -math.inf
        self._lost_s: float | None = None
        self._backoff_s = BACKOFF_SECONDS
        self._is_closed = False
        self._has_next = True
        """Whether the broker takes settlements and a poll in one request."""

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

    def _requests(self, *, polls: bool) -> list[Asked]:
        """Return what is to be sent now: settlements, and a poll behind them or with them."""
        found: list[Asked] = []
        if orders := self._hold.collect():
            homes, homeless = self._targets.homes_of(orders)
            if homeless:
                self._hold.failed(homeless)
            found = [
                Asked(Operation.SETTLE, header, batch, is_poll=False, node=node)
                for node, own in homes.items()
                for header, batch in settlements(self._options.group, self.member_id, own)
            ]
        node = self._targets.pick(time.monotonic()) if polls else None
        if node is None:
            return found
        # A lease begins when the broker finds something: the wait must be a small part of it.
        wait_ms = min(self._wait_ms(), max(self._hold.lease_ms // 4, 1))
        limit = self._hold.poll_limit(self._options)
        about = self._options.group, self.member_id, self._upkeep.membership.generation
        if self._has_next and self._options.prefetch <= NEXT_PREFETCH_MAX:
            with_it = [one for one in found if one.node == node]
            if len(with_it) == 1:
                orders = with_it[0].orders
                parts = [order.part for order in orders]
                header = Next(*about, limit, FETCH_BYTES, wait_ms, parts)
                others = [one for one in found if one.node != node]
                return [*others, Asked(Operation.NEXT, header, orders, is_poll=True, node=node)]
        poll = Poll(*about, limit, FETCH_BYTES, wait_ms)
        return [*found, Asked(Operation.POLL, poll, [], is_poll=True, node=node)]

    def _wait_ms(self) -> int:
        """Return how long a poll waits: briefly where leaders can only be polled in turn."""
        nodes = self._hold.nodes
        if nodes == 1:
            return WAIT_MS
        is_parallel = not (self._hold.is_auto_commit or self._hold.is_by_key)
        return WAIT_MS if is_parallel and self._options.prefetch >= nodes else IN_TURN_WAIT_MS

    def _has_room(self, polls: int) -> bool:
        """Return True if there is room for what one more poll brings."""
        self._hold.nodes = self._targets.look(self._upkeep.membership.assigned)
        return self._hold.has_room(self._options, polls=polls)

    def _take_polled(self, answer: Answer, asked_s: float, orders: Sequence[Order]) -> bool:
        """Take what a poll brought, and what became of what was settled with it.

        Returns True if the group has changed meanwhile.
        """
        limit = self._hold.poll_limit(self._options)
        polled = self._hold.take(answer, asked_s=asked_s, limit=limit)
        if orders:
            self._hold.answered(orders, polled.settled)
        if self._targets.is_routed:
            # A leader may not have heard of a change yet that we have.
            return polled.generation > self._upkeep.membership.generation
        return polled.generation != self._upkeep.membership.generation

    def _not_settled(self, orders: Sequence[Order], error: GoQueueError) -> None:
        """Take note that the broker refused a request that settles."""
        if isinstance(error, UnsupportedError):
            # An earlier broker: each is said in a request of its own from now on.
            self._has_next = False
            self._hold.failed(orders)
            return
        is_hopeless = not (error.retryable or isinstance(error, NOT_A_MEMBER))
        self._hold.failed(orders, error if is_hopeless else None)

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
