"""How many messages a member may hold at this node, where its partitions have several leaders.

No leader knows what the others have leased. ``max_in_flight`` is shared out among them by the
partitions that each leads for the member, so that all together never exceed it.
"""

from typing import Final, NamedTuple

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import NodeId, TopicPartition
from goqueue.core.delivery.shares import share_of
from goqueue.runtime.groups.at_work import GroupAtWork
from goqueue.runtime.topology import Topology

KNOWN_MAX: Final = 10_000
"""Members whose shares are remembered; then all are forgotten, and memory stays bounded."""


class _KnownBound(NamedTuple):
    """A share, and what it was worked out from."""

    version: int
    own: list[TopicPartition]
    most: int
    bound: int


class InFlightShares:
    """The shares of this node. Runs in the event loop."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[tuple[str, str], _KnownBound] = {}

    def __repr__(self) -> str:
        return f"<InFlightShares of {len(self._known)} members>"

    def clear(self) -> None:
        """Work all of them out again: partitions have other leaders than before."""
        self._known.clear()

    def bound(self, group: GroupAtWork, member: str) -> int:
        """Return how many messages a member of a group may hold at this node."""
        most, own = group.options.max_in_flight, group.partitions_of(member)
        version, place = self._topology.view.version, (group.name, member)
        known = self._known.get(place)
        if known is not None and known.own is own and known[::2] == (version, most):
            return known.bound
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        led: dict[NodeId, int] = {}
        for partition in own:
            node = self._leader(partition)
            if node is not None:
                led[node] = led.get(node, 0) + 1
        bound = share_of(most, led, self._topology.node)
        self._known[place] = _KnownBound(version, own, most, bound)
        return bound

    def _leader(self, partition: TopicPartition) -> NodeId | None:
        try:
            return self._topology.leader_of(partition).node
        except GoQueueError:
            return None
