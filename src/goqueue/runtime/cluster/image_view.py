"""What clients are told of the cluster, read off the image of this node."""

from collections.abc import Collection, Sequence

from goqueue.base.ids import NodeId, TopicName
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.states import NodeStatus
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.runtime.topology import NodePlace, PartitionLeader


class ImageView:
    """The ``ClusterView`` of a node of a cluster."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def __repr__(self) -> str:
        return f"<ImageView of {self._metadata!r}>"

    @property
    def _image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def cluster_id(self) -> str:
        """The identity of the cluster; empty before it is founded."""
        return self._image.cluster_id

    @property
    def version(self) -> int:
        """How many events were applied: equal versions are equal images, on every node."""
        return self._image.version

    @property
    def controller(self) -> NodeId | None:
        """The node that decides about the metadata, as far as it is known."""
        return self._metadata.controller

    @property
    def nodes(self) -> Sequence[NodePlace]:
        """The nodes clients may ask, in one order: all that are registered and not fenced."""
        return [
            NodePlace(node.id, node.addresses.native, node.addresses.http, node.rack)
            for _, node in sorted(self._image.nodes.items())
            if node.status is not NodeStatus.FENCED
        ]

    @property
    def topics(self) -> Collection[TopicName]:
        """The topics as of the version; this node may not have opened, or closed, all of them."""
        return self._image.catalog.topics.keys()

    def leaders_of(self, topic: TopicName) -> Sequence[PartitionLeader]:
        """Return who leads each partition of a topic, in order; none for an unknown topic."""
        if topic not in self._image.catalog.topics:
            return ()
        records = self._image.topic(topic).partitions
        return [PartitionLeader(one.leader_id, one.leader_epoch) for one in records]
