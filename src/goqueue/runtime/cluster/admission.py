"""Which nodes may connect: those of this cluster, and one process for each name."""

from collections.abc import Container
from typing import Final

from goqueue.base.errors import GoQueueError, NodeRefusedError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.node_verbs import REMOVED
from goqueue.core.cluster.records import NodeRecord
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.wire.peer_calls import PeerIdentity

OLD_COPY: Final = "an old copy of it"
"""Words of every refusal of a directory that others know in a later state."""
TWO_NODES: Final = "two nodes cannot have one id"
"""Words of every refusal of a second process under one name; the first one may be dead."""


class Denials:
    """Which peers do not let this node in, and since when; enough of them end its start."""

    def __init__(self, *, founders: int, patience_s: float) -> None:
        self._spare = founders - (founders // 2 + 1)
        """So many peers may deny it, and there is still a majority."""
        self._patience_s = patience_s
        self._since: dict[NodeId, float] = {}

    def accepted(self, node: NodeId) -> None:
        """Note that a peer let this node in."""
        self._since.pop(node, None)

    def denied(self, node: NodeId, error: GoQueueError, *, by_peer: bool, now_s: float) -> bool:
        """Return True if this node has no place in its cluster, and should say so and stop."""
        is_old, is_second = OLD_COPY in error.message, TWO_NODES in error.message
        is_removed = REMOVED in error.message
        is_final = is_old or is_removed
        if not isinstance(error, NodeRefusedError) or (not by_peer and (is_final or is_second)):
            return False
        if is_final:
            return True
        patience_s = self._patience_s if is_second else 0.0
        since_s = self._since.setdefault(node, now_s)
        return len(self._since) > self._spare and now_s - since_s >= patience_s


def check_peer(
    peer: PeerIdentity, own: PeerIdentity, metadata: Metadata, *, peers: Container[NodeId]
) -> None:
    """Raise NodeRefusedError unless a node that knows the key may connect to this one."""
    if peer.cluster_id and own.cluster_id and peer.cluster_id != own.cluster_id:
        raise NodeRefusedError(
            f"the node {peer.node_id} belongs to the cluster {peer.cluster_id},"
            f" the node {own.node_id} to {own.cluster_id}"
        )
    if peer.node == own.node:
        raise NodeRefusedError(f"{TWO_NODES}: both are called {own.node_id}")
    check_not_removed(peer, metadata)
    # A node that joins is no peer yet; one that joined may be unknown to a node that was away.
    if not (own.cluster_id or peer.cluster_id) and peer.node not in peers:
        raise NodeRefusedError(
            f"the node {peer.node_id} is no peer of {own.node_id};"
            " cluster.peers must name the same nodes everywhere"
        )
    known = metadata.image.nodes.get(peer.node)
    if known is not None:
        _check_known(peer, known)


def check_not_removed(peer: PeerIdentity, metadata: Metadata) -> None:
    """Raise NodeRefusedError if the data directory is that of a node that was removed."""
    if peer.directory in metadata.image.removed:
        raise NodeRefusedError(f"the node {peer.node_id} {REMOVED}")


def _check_known(peer: PeerIdentity, known: NodeRecord) -> None:
    if known.directory != peer.directory and not known.is_fenced:
        raise NodeRefusedError(
            f"a node {known.id} with another data directory is {known.status}; {TWO_NODES}"
        )
    if known.directory != peer.directory or peer.incarnation > known.incarnation:
        return
    if (peer.incarnation, peer.process) != (known.incarnation, known.process):
        raise NodeRefusedError(
            f"the data directory of {known.id} was last started for the time"
            f" {known.incarnation}, this is {peer.incarnation}: {OLD_COPY}?"
            " Empty it to let the node start again"
        )
