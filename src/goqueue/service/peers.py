"""The door for the other nodes of a cluster: which of them come in, and what answers them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from goqueue.base.errors import UnsupportedError
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.links import Receiver
from goqueue.runtime.cluster.node import Node
from goqueue.service.verb import Reply
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

log = get_logger("goqueue.cluster")


class Answered(Protocol):
    """What a part of the node says to a peer: a header, and bytes behind it."""

    @property
    def header(self) -> Call:
        """The header of the reply."""
        ...

    @property
    def payload(self) -> Sequence[Buffer]:
        """What follows it."""
        ...


PeerHandler = Callable[[PeerIdentity, Buffer, memoryview], Awaitable[Answered | Call]]
"""Answers a request, given who asks, its header and its payload, or raises a GoQueueError."""


class Peers:
    """Answers peers by the tables of the parts; what no table lists is refused."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._handlers: dict[PeerOperation, PeerHandler] = dict(node.handlers())
        self._receivers: dict[PeerOperation, Receiver] = dict(node.receivers())

    def add(self, handlers: Mapping[PeerOperation, PeerHandler]) -> None:
        """Answer these operations, too."""
        twice = self._handlers.keys() & handlers.keys()
        assert not twice, f"answered by two parts: {twice}"
        self._handlers.update(handlers)

    @property
    def identity(self) -> PeerIdentity:
        """Which node this is."""
        return self._node.identity.peer

    @property
    def key(self) -> bytes:
        """The key of the cluster."""
        return self._node.config.key

    def check_peer(self, peer: PeerIdentity) -> None:
        """Raise unless a node that knows the key may connect."""
        self._node.check_peer(peer)

    def receive(self, peer: PeerIdentity, operation: PeerOperation, body: Buffer) -> None:
        """Take a message that is not answered; one that nothing takes is dropped."""
        receiver = self._receivers.get(operation)
        if receiver is None:
            log.warning(LogEvent.PEER_MESSAGE_DROPPED, peer=peer.node_id, operation=operation.name)
            return
        receiver(peer, body)

    async def answer(
        self, peer: PeerIdentity, operation: PeerOperation, header: Buffer, payload: memoryview
    ) -> Reply:
        """Answer a request, or raise a GoQueueError."""
        handler = self._handlers.get(operation)
        if handler is None:
            raise UnsupportedError(f"this node does not answer {operation.name}")
        reply = await handler(peer, header, payload)
        return Reply(reply) if isinstance(reply, Call) else Reply(reply.header, reply.payload)
