"""A plan for moving replicas: away from nodes that are to go, and evenly over the others.

Shape: calculator. A plan changes nothing; it is shown first and then proposed as a reassignment.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from goqueue.base.cluster_limits import MOVES_MAX, THROTTLE_BYTES
from goqueue.base.errors import LeaderNotAvailableError
from goqueue.base.ids import NodeId, TopicName
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.commands import PartMove
from goqueue.core.cluster.elections import partitions_of
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.records import Replicas


class Skew(NamedTuple):
    """How uneven nodes are loaded: the most that one has beyond the one with the least."""

    replicas: int
    leaders: int


class PlannedMove(NamedTuple):
    """A partition whose replicas should be elsewhere, and what that copies."""

    topic: TopicName
    partition: int
    old: Replicas
    new: Replicas
    copied_bytes: int

    def command(self) -> PartMove:
        """Return the move as it is proposed."""
        return PartMove(
            topic=self.topic, partition=self.partition, old=list(self.old), new=list(self.new)
        )


class RebalancePlan(NamedTuple):
    """Moves, what they copy, how long that takes, and what is gained."""

    moves: tuple[PlannedMove, ...]
    copied_bytes: int
    duration_ms: int
    before: Skew
    after: Skew
    is_whole: bool
    """False if there would be more moves than one reassignment may have."""
    stuck: int = 0
    """Replicas that stay on nodes which are to be emptied: no other node can take them."""


class Loads:
    """How many replicas each node holds or would hold, and in which racks the nodes are."""

    def __init__(self, image: ClusterImage, drained: Collection[NodeId]) -> None:
        self.racks = {one.id: one.rack for one in image.nodes.values()}
        self.targets = sorted(
            one.id
            for one in image.nodes.values()
            if one.may_lead and not one.is_retiring and one.id not in drained
        )
        if not self.targets:
            raise LeaderNotAvailableError("no node is alive that could take replicas")
        self.replicas = dict.fromkeys(self.racks, 0)
        self.leaders = dict.fromkeys(self.racks, 0)
        for replicas, count in image.replica_sets.items():
            self.add(replicas, count)

    def add(self, replicas: Replicas, count: int) -> None:
        """Count a set of replicas in or out."""
        for node in replicas:
            self.replicas[node] += count
        self.leaders[replicas[0]] += count

    def skew(self) -> Skew:
        """Return how uneven the nodes that stay are loaded."""
        replicas = [self.replicas[node] for node in self.targets]
        leaders = [self.leaders[node] for node in self.targets]
        return Skew(max(replicas) - min(replicas), max(leaders) - min(leaders))

    def best(self, replicas: Replicas, place: int) -> NodeId | None:
        """Return the node that should hold a replica instead, if any can."""
        others = {self.racks[node] for at, node in enumerate(replicas) if at != place} - {""}
        return min(
            (node for node in self.targets if node not in replicas),
            key=lambda node: (self.racks[node] in others, self.replicas[node], node),
            default=None,
        )

    def is_better(self, replicas: Replicas, place: int, node: NodeId) -> bool:
        """Return True if a replica is better placed at a node than where it is."""
        others = {self.racks[one] for at, one in enumerate(replicas) if at != place} - {""}
        old = replicas[place]
        worse_rack = self.racks[node] in others and self.racks[old] not in others
        return not worse_rack and self.replicas[node] + 1 < self.replicas[old]


def plan(
    image: ClusterImage,
    *,
    sizes: Mapping[tuple[TopicName, int], int],
    drained: Collection[NodeId] = (),
    throttle_bytes: int = THROTTLE_BYTES,
    moves_max: int = MOVES_MAX,
    is_even: bool = True,
) -> RebalancePlan:
    """Return the moves that empty some nodes and, if asked for, even out the rest.

    Partitions that are moving already stay as they are.
    """
    loads = Loads(image, drained)
    before = loads.skew()
    moves: list[PlannedMove] = []
    received: dict[NodeId, int] = {}
    is_whole = True
    for topic, number, old, new in _wanted(image, loads, frozenset(drained), is_even=is_even):
        if len(moves) >= moves_max:
            loads.add(new, -1)
            loads.add(old, 1)
            is_whole = False
            break
        size = sizes.get((topic, number), 0)
        arriving = [node for node in new if node not in old]
        for node in arriving:
            received[node] = received.get(node, 0) + size
        moves.append(PlannedMove(topic, number, old, new, size * len(arriving)))
    return RebalancePlan(
        moves=tuple(moves),
        copied_bytes=sum(one.copied_bytes for one in moves),
        duration_ms=max(received.values(), default=0) * SECOND_MS // throttle_bytes,
        before=before,
        after=loads.skew(),
        is_whole=is_whole,
        stuck=sum(loads.replicas.get(node, 0) for node in drained) if is_whole else 0,
    )


def evacuate(
    image: ClusterImage,
    node: NodeId,
    *,
    sizes: Mapping[tuple[TopicName, int], int] | None = None,
    throttle_bytes: int = THROTTLE_BYTES,
    moves_max: int = MOVES_MAX,
) -> RebalancePlan:
    """Return the moves that leave a node without replicas, and touch nothing else.

    Where there would be more moves than ``moves_max``, another plan follows when these are done.
    """
    image.node(node)
    return plan(
        image,
        sizes=sizes or {},
        drained=(node,),
        throttle_bytes=throttle_bytes,
        moves_max=moves_max,
        is_even=False,
    )


def _wanted(
    image: ClusterImage, loads: Loads, drained: frozenset[NodeId], *, is_even: bool
) -> Iterator[tuple[TopicName, int, Replicas, Replicas]]:
    """Yield partitions that should be elsewhere, and count them there already.

    Nodes are emptied first, so that evening out sees where their replicas went.
    """
    found: dict[tuple[TopicName, int], tuple[Replicas, Replicas]] = {}
    for is_draining in (True, False) if is_even else (True,):
        for topic, number, record in partitions_of(image):
            if (topic.id, number) in image.moving or (topic.name, number) in found:
                continue
            new = _replaced(loads, record.replicas, drained, is_draining=is_draining)
            if new == record.replicas:
                continue
            found[topic.name, number] = (record.replicas, new)
            yield topic.name, number, record.replicas, new


def _replaced(
    loads: Loads, replicas: Replicas, drained: frozenset[NodeId], *, is_draining: bool
) -> Replicas:
    """Return where the replicas of one partition should be; the leader moves last."""
    current = replicas
    for place in reversed(range(len(replicas))):
        node = loads.best(current, place)
        if node is None or (current[place] in drained) is not is_draining:
            continue
        if not is_draining and not loads.is_better(current, place, node):
            continue
        after = (*current[:place], node, *current[place + 1 :])
        loads.add(current, -1)
        loads.add(after, 1)
        current = after
    return current
