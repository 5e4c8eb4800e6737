"""What the port between nodes needs of the node it belongs to."""

from typing import Protocol

from goqueue.service.verb import Reply
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation


class ClusterNode(Protocol):
    """Decides which peers are let in, and answers them."""

    @property
    def identity(self) -> PeerIdentity:
        """Which node this is."""
        ...

    @property
    def key(self) -> bytes:
        """The key of the cluster; empty where the port listens on loopback only."""
        ...

    def check_peer(self, peer: PeerIdentity) -> None:
        """Raise unless a node that knows the key may connect: another cluster's may not."""
        ...

    def receive(self, peer: PeerIdentity, operation: PeerOperation, body: Buffer) -> None:
        """Take a message that is not answered."""
        ...

    async def answer(
        self, peer: PeerIdentity, operation: PeerOperation, header: Buffer, payload: memoryview
    ) -> Reply:
        """Answer a request, or raise a GoQueueError."""
        ...
