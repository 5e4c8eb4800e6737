"""Which nodes a consumer polls, and where it settles what it got. No I/O.

With one broker there is one target. In a cluster every leader of a partition that the member owns
is polled; a leader that cannot be asked rests for a while, and the others go on.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from goqueue.base.errors import (
    GoQueueError,
    GroupNotFoundError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.client.consumer.delivery import Order
from goqueue.client.protocol.cluster_view import LOST, MOVED, ClusterView
from goqueue.client.protocol.exchange import BACKOFF_SECONDS

Place = tuple[str, int]
"""A topic and a partition."""

REST_SECONDS_MAX: Final = 0.25
"""How long a leader rests at most: it, or another in its place, is there again any moment."""
LOOK_SECONDS: Final = 0.05
"""How often it is looked for leaders while none can be polled."""
NOT_A_MEMBER: Final = (UnknownMemberError, GroupNotFoundError, StaleGenerationError)
"""After these a consumer joins again, if its coordinator says so."""
ONE_BROKER: Final = ""
"""The only target where there is no cluster."""


class PollTargets:
    """The leaders of a member's partitions. Times are those of one steady clock."""

    def __init__(self, cluster: ClusterView | None, group: str, *, timeout_s: float) -> None:
        self.cluster = cluster
        self._group = group
        self._timeout_s = timeout_s
        self._leaders: list[str] = [ONE_BROKER]
        self._under_way: Counter[str] = Counter()
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._rests: dict[str, tuple[float, float]] = {}
        """Until when a leader rests, and for how long it does."""
        self._failing_s: float | None = None

    def __repr__(self) -> str:
        return f"<PollTargets of {self._group}: {len(self._leaders)}>"

    @property
    def is_routed(self) -> bool:
        """Return True if there is a cluster."""
        return self.cluster is not None

    def look(self, assigned: Iterable[Place]) -> int:
        """Find the leaders of the member's partitions; return how many nodes there are to poll.

        A member without partitions asks the coordinator, which says when it has some.
        """
        if self.cluster is None:
            return 1
        found = dict.fromkeys(self.cluster.leader_of(*place) for place in assigned)
        leaders = [node for node in found if node is not None]
        if not found:
            coordinator = self.cluster.coordinator_of("group", self._group)
            leaders = [coordinator] if coordinator is not None else []
        if None in found:
            self.cluster.mark_stale()
        self._leaders = leaders
        return max(len(leaders), 1)

    def pick(self, now_s: float) -> str | None:
        """Return the node to poll next: with the fewest polls, not asked for longest."""
        if self.cluster is None:
            return ONE_BROKER
        rests = self._rests
        able = [one for one in self._leaders if one not in rests or rests[one][0] <= now_s]
        if not able:
            return None
        return min(able, key=lambda one: (self._under_way[one], self._turns.get(one, 0)))

    def begun(self, node: str) -> None:
        """Take note that a poll was sent."""
        if self.cluster is None:
            return
        self._turn += 1
        self._turns[node] = self._turn
        self._under_way[node] += 1

    def ended(self, node: str) -> None:
        """Take note that a poll was answered, or never will be."""
        if self.cluster is None:
            return
        self._under_way[node] -= 1
        if self._under_way[node] <= 0:
            del self._under_way[node]

    def forget(self) -> None:
        """Take note that no poll is under way any more."""
        self._under_way.clear()

    def went_well(self, node: str) -> None:
        """Take note that a node has answered with messages or without."""
        if self.cluster is not None:
            self._failing_s = None
            self._rests.pop(node, None)

    def takes(self, node: str, error: GoQueueError, now_s: float) -> bool:
        """Take the error of a poll if another node may do better; raise if none did for long."""
        is_elsewhere = self.note(node, error, now_s)
        # A leader may not have heard of the member yet: its coordinator knows.
        is_unheard = self.is_routed and isinstance(error, NOT_A_MEMBER)
        if not (is_elsewhere or is_unheard):
            return False
        if self._failing_s is None:
            self._failing_s = now_s
        if now_s - self._failing_s > self._timeout_s:
            self._failing_s = None
            raise type(error)(f"no leader was polled for {self._timeout_s:g} s: {error.message}")
        _, before_s = self._rests.get(node, (0.0, BACKOFF_SECONDS / 2))
        rest_s = min(2 * before_s, REST_SECONDS_MAX)
        self._rests[node] = now_s + rest_s, rest_s
        return True

    def note(self, node: str, error: GoQueueError, now_s: float) -> bool:
        """Take note of an error if it says that something is elsewhere; return True if so."""
        if self.cluster is None or not isinstance(error, (*MOVED, *LOST)):
            return False
        if isinstance(error, LOST):
            self.cluster.suspect(node, now_s)
        self.cluster.mark_stale()
        return True

    def homes_of(self, orders: list[Order]) -> tuple[dict[str, list[Order]], list[Order]]:
        """Return settlements by the node that takes them, and those no node takes at present."""
        if self.cluster is None:
            return {ONE_BROKER: orders} if orders else {}, []
        homes: dict[str, list[Order]] = {}
        homeless: list[Order] = []
        for order in orders:
            leader = self.cluster.leader_of(order.part.topic, order.part.partition)
            (homeless if leader is None else homes.setdefault(leader, [])).append(order)
        if homeless:
            self.cluster.mark_stale()
        return homes, homeless
