"""Where things are in a cluster, as far as a client knows. No I/O.

One view serves every connection of a client, in its event loop and in the threads that receive by
themselves. Who finds that it is outdated marks it and asks a node for the metadata, at most every
100 ms; an answer replaces what is known in one assignment, so readers need no lock.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NodeFencedError,
    NotCoordinatorError,
    NotLeaderError,
    ShuttingDownError,
    StaleEpochError,
    StaleMetadataError,
)
from goqueue.wire.metadata_calls import ClusterMetadata, Metadata

REFRESH_SECONDS_MIN: Final = 0.1
"""The metadata is not asked for more often than this."""
REFRESH_SECONDS_MAX: Final = 300.0
"""After this time it is asked for anew, whatever is known."""
ASK_SECONDS_MAX: Final = 1.0
"""How long one node may take to answer with the metadata; then the next one is asked."""
SUSPECT_SECONDS: Final = 10.0
"""For so long a node that did not answer is asked after all others."""
COORDINATORS_MAX: Final = 10_000
"""Coordinators that are remembered; more are asked for again."""

MOVED: Final = (
    NotLeaderError,
    NotCoordinatorError,
    LeaderNotAvailableError,
    StaleMetadataError,
    StaleEpochError,
    NodeFencedError,
    ShuttingDownError,
)
"""What another node, or the same a little later, may answer better."""

LOST: Final = (ConnectionLostError, DeadlineExceededError)
"""What says that a node may be gone."""


class _Known(NamedTuple):
    """One answer of a node, and where leaders are in it."""

    version: int
    cluster_id: str
    names: Mapping[str, str]
    """The name of the node at an address."""
    leaders: Mapping[str, Sequence[str | None]]
    """By topic, the address of the leader of each partition."""


_NOTHING: Final = _Known(0, "", {}, {})


class ClusterView:
    """Nodes, leaders and coordinators. Times are those of one steady clock, in seconds."""

    def __init__(self, seeds: Sequence[str]) -> None:
        self.seeds = tuple(seeds)
        """The addresses the client was given."""
        self.changes = 0
        """How often something else was learnt than was known."""
        self._known = _NOTHING
        self._coordinators: dict[tuple[str, str], str] = {}
        self._suspects: dict[str, float] = {}
        self._is_stale = True
        self._asked_s = -math.inf
        self._taken_s = -math.inf
        self._turn = 0

    def __repr__(self) -> str:
        known = self._known
        return f"<ClusterView version {known.version}: {len(known.names)} nodes>"

    # Looking.

    @property
    def nodes(self) -> list[str]:
        """The addresses of the nodes that are alive, as far as is known."""
        return list(self._known.names)

    def name_of(self, node: str) -> str:
        """Return what to call the node at an address."""
        name = self._known.names.get(node)
        return node if name is None else f"{name} ({node})"

    def leader_of(self, topic: str, partition: int) -> str | None:
        """Return the address of a partition's leader, None where none is known."""
        leaders = self._known.leaders.get(topic, ())
        return leaders[partition] if partition < len(leaders) else None

    def need_leader(self, topic: str, partition: int) -> str:
        """Return the address of a partition's leader, or raise."""
        leader = self.leader_of(topic, partition)
        if leader is None:
            raise LeaderNotAvailableError(f"{topic}/{partition} has no leader at present")
        return leader

    def leaders_of(self, topic: str) -> dict[str, list[int]]:
        """Return the partitions of a topic by the address of their leader, or raise."""
        count = len(self._known.leaders.get(topic, ()))
        found: dict[str, list[int]] = {}
        for partition in range(count):
            found.setdefault(self.need_leader(topic, partition), []).append(partition)
        return found

    def candidates(self, now_s: float) -> list[str]:
        """Return every address to ask, those first that are not suspected of being gone."""
        known = list(self._known.names)
        turn = self._turn % len(known) if known else 0
        every = [*known[turn:], *known[:turn]]
        every += [seed for seed in self.seeds if seed not in self._known.names]
        return sorted(every, key=lambda one: self._suspects.get(one, -math.inf) > now_s)

    def coordinator_of(self, kind: str, key: str) -> str | None:
        """Return the address of a coordinator that was found before."""
        return self._coordinators.get((kind, key))

    # Learning.

    @property
    def is_empty(self) -> bool:
        """Return True if no node has answered yet."""
        return self._known is _NOTHING

    def is_due(self, now_s: float) -> bool:
        """Return True if the metadata should be asked for."""
        return self._is_stale or now_s - self._taken_s > REFRESH_SECONDS_MAX

    def begins_s(self, now_s: float) -> float:
        """Return when the metadata may be asked for next."""
        return max(now_s, self._asked_s + REFRESH_SECONDS_MIN)

    def request(self, now_s: float) -> Metadata:
        """Return the request for the metadata, which is sent now."""
        self._asked_s = now_s
        self._turn += 1
        return Metadata(None, self._known.version)

    def take(self, reply: ClusterMetadata, now_s: float, *, of: str) -> None:
        """Take the answer of a node; one that knows less than we do changes nothing."""
        known = self._known
        self._suspects = {one: until for one, until in self._suspects.items() if one != of}
        if not reply.cluster_id:
            raise InvalidRequestError(f"{of} is a broker by itself, not a node of a cluster")
        if known.cluster_id and known.cluster_id != reply.cluster_id:
            self.suspect(of, now_s)
            raise InvalidRequestError(f"{of} is a node of another cluster, {reply.cluster_id}")
        self._taken_s = now_s
        if reply.version < known.version:
            return
        self._is_stale = False
        if reply.is_known:
            return
        places = [node.native for node in reply.nodes]
        self._known = _Known(
            reply.version,
            reply.cluster_id,
            {node.native: node.id for node in reply.nodes},
            {
                topic.name: [places[one] if one >= 0 else None for one in topic.leaders]
                for topic in reply.topics
            },
        )
        self.changes += 1

    def found(self, kind: str, key: str, node: str) -> None:
        """Remember a coordinator."""
        if len(self._coordinators) >= COORDINATORS_MAX:
            self._coordinators.clear()
        self._coordinators[kind, key] = node

    def mark_stale(self) -> None:
        """Take note that something was not where it should be."""
        self._is_stale = True

    def forget_coordinator(self, kind: str, key: str) -> None:
        """Take note that a coordinator is another one by now."""
        self._coordinators.pop((kind, key), None)

    def suspect(self, node: str, now_s: float) -> None:
        """Take note that a node does not answer: it may be gone, and others know."""
        # A new dict: other threads may be looking at the old one.
        self._suspects = {**self._suspects, node: now_s + SUSPECT_SECONDS}
        self._is_stale = True
        for asked, coordinator in list(self._coordinators.items()):
            if coordinator == node:
                self._coordinators.pop(asked, None)

    def trouble(self) -> str:
        """Say which nodes do not answer, for the error of somebody who waited; or nothing."""
        if not self._suspects:
            return ""
        return f"; no answer from {', '.join(map(self.name_of, sorted(self._suspects)))}"
