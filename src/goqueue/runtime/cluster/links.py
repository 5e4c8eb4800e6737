"""The seam to the other nodes: what the runtime of a cluster sends them, and how it answers them.

``transport/cluster`` carries both. Each part of the runtime that answers peers has a method
``handlers``; ``service/peers.py`` puts their tables together, and what no table lists is refused.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from goqueue.base.ids import NodeId
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation


class PeerReply(NamedTuple):
    """What a peer is answered."""

    header: Call
    payload: tuple[Buffer, ...] = ()


Handler = Callable[[PeerIdentity, Buffer, memoryview], Awaitable[PeerReply]]
"""Answers a request, given who asks, its header and its payload, or raises a GoQueueError."""

Receiver = Callable[[PeerIdentity, Buffer], None]
"""Takes a message that is not answered, given who sent it and its body."""


class Links(Protocol):
    """Connections to all peers. They are kept up by whoever implements this, for ever."""

    def dial(self, peers: Mapping[NodeId, str]) -> None:
        """Keep a connection to each of these nodes, by their addresses, and to no others."""
        ...

    def cast(self, to: NodeId, operation: PeerOperation, body: bytes) -> None:
        """Send a message that is not answered; it may be lost."""
        ...

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        """Return a peer's reply, or raise what it raised.

        ConnectionLostError and DeadlineExceededError mean that the request may have been carried
        out.
        """
        ...
