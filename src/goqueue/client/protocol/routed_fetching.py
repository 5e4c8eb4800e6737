"""Reading a topic of a cluster: what to ask of each leader next. No I/O.

Positions are those of one ``Fetching`` whoever leads: a partition whose leader is gone waits where
it is, and the next leader is asked from there on.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from goqueue.base.errors import GoQueueError, LeaderNotAvailableError
from goqueue.client.protocol.chunk import Chunk
from goqueue.client.protocol.cluster_view import LOST, MOVED, ClusterView
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, Answer
from goqueue.client.protocol.fetching import Fetching
from goqueue.wire import calls

PAUSE_SECONDS_MAX: Final = 0.25
"""The longest pause before a partition is asked for again: its leader is there any moment."""


class _Trouble(NamedTuple):
    """Why a partition is not read at present, since when, and when it is tried again."""

    error: GoQueueError
    since_s: float
    pause_s: float
    again_s: float


class NodeFetch(NamedTuple):
    """A request for one node."""

    node: str
    header: calls.Fetch


class RoutedFetching:
    """One request under way for each leader. Times are those of one steady clock."""

    def __init__(
        self, topic: str, fetching: Fetching, view: ClusterView, *, timeout_s: float
    ) -> None:
        self._topic = topic
        self._fetching = fetching
        fetching.follows_leaders = True
        self._view = view
        self._timeout_s = timeout_s
        self._asked: dict[str, frozenset[int]] = {}
        """What is under way, by node."""
        self._troubles: dict[int, _Trouble] = {}

    def __repr__(self) -> str:
        return f"<RoutedFetching of {self._topic}: {len(self._asked)} leaders asked>"

    @property
    def is_over(self) -> bool:
        """Return True if every partition was read to its end."""
        return self._fetching.is_over

    def requests(self, now_s: float) -> list[NodeFetch]:
        """Return what to ask now: of each leader that owes no answer, what it leads."""
        by_leader: dict[str, list[int]] = {}
        busy = frozenset().union(*self._asked.values())
        for partition in self._fetching.open_partitions:
            trouble = self._troubles.get(partition)
            if partition in busy or (trouble is not None and now_s < trouble.again_s):
                continue
            leader = self._view.leader_of(self._topic, partition)
            if leader is None:
                place = f"{self._topic}/{partition}"
                reason = f"{place} has no leader at present{self._view.trouble()}"
                self._hold_up([partition], LeaderNotAvailableError(reason), now_s)
            elif leader not in self._asked:
                by_leader.setdefault(leader, []).append(partition)
        found: list[NodeFetch] = []
        for node, partitions in by_leader.items():
            self._asked[node] = frozenset(partitions)
            found.append(NodeFetch(node, self._fetching.request_of(partitions)))
        return found

    def wakes_s(self, now_s: float) -> float | None:
        """Return in how many seconds a partition is tried again; None if none waits for that."""
        times = [trouble.again_s for trouble in self._troubles.values()]
        return max(min(times) - now_s, 0.001) if times else None

    def taken(self, node: str, answer: Answer, now_s: float) -> list[Chunk]:
        """Take the reply of a node; return its chunks."""
        asked = self._asked.pop(node)
        moved = self._fetching.moved
        moved.clear()
        chunks = self._fetching.take(answer)
        for partition in asked - moved.keys():
            self._troubles.pop(partition, None)
        for partition, error in moved.items():
            self._hold_up([partition], error, now_s)
        return chunks

    def failed(self, node: str, error: GoQueueError, now_s: float) -> None:
        """Take note that a node refused, or did not answer; raise what cannot pass."""
        asked = self._asked.pop(node)
        if isinstance(error, LOST):
            self._view.suspect(node, now_s)
            error = type(error)(f"{self._view.name_of(node)}: {error.message}")
        elif not isinstance(error, MOVED):
            raise error
        self._hold_up(asked, error, now_s)

    def _hold_up(self, partitions: Collection[int], error: GoQueueError, now_s: float) -> None:
        """Let partitions wait for their next leader, or raise if they did for too long."""
        self._view.mark_stale()
        for partition in partitions:
            known = self._troubles.get(partition)
            since_s, pause_s = now_s, BACKOFF_SECONDS
            if known is not None:
                since_s = known.since_s
                pause_s = min(2 * known.pause_s, PAUSE_SECONDS_MAX)
            if now_s - since_s > self._timeout_s:
                place = f"{self._topic}/{partition}"
                reason = f"{place} was not read for {self._timeout_s:g} s: {error.message}"
                raise type(error)(reason)
            self._troubles[partition] = _Trouble(error, since_s, pause_s, now_s + pause_s)
