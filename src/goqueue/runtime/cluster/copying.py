"""How this node copies partitions that move: at their throttle, and not while they are paused."""

from collections.abc import Callable, Mapping

from goqueue.base.ids import NodeId, TopicPartition
from goqueue.core.cluster.move_rates import NOTHING, Copies, copies_of
from goqueue.core.replication.replica import LogKey
from goqueue.runtime.cluster.feeder import Feeds
from goqueue.runtime.cluster.image_source import ImageSource
from goqueue.runtime.cluster.replica_group import ReplicaGroup


class Copying:
    """Follows the moves of the image."""

    def __init__(
        self,
        source: ImageSource,
        node: NodeId,
        feeds: Feeds,
        groups: Mapping[TopicPartition, ReplicaGroup],
        fetch_from: Callable[[NodeId | None, LogKey], None],
    ) -> None:
        self._source = source
        self._node = node
        self._feeds = feeds
        self._groups = groups
        self._fetch_from = fetch_from
        self._copies: Copies = NOTHING

    def __repr__(self) -> str:
        return f"<Copying at {self._node}: {len(self._copies.sent)} partitions>"

    def is_paused(self, place: TopicPartition) -> bool:
        """Return True if nothing of a partition is to be copied here for now."""
        return place in self._copies.paused

    def look(self) -> None:
        """Copy as the moves of the image say now."""
        image, before = self._source.image, self._copies
        if not image.moving and before is NOTHING:
            return
        self._copies = copies_of(image, self._node) if image.moving else NOTHING
        self._feeds.follow(self._copies)
        for place in before.paused ^ self._copies.paused:
            group = self._groups.get(place)
            follower = None if group is None or group.is_closed else group.follower
            if group is None or follower is None:
                continue
            leader = None if self.is_paused(place) else follower.leader
            for one in group.logs.values():
                self._fetch_from(leader, one.key)
