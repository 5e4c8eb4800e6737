"""The port between nodes: who listens there, and the connections of this node to its peers."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from goqueue.base.errors import ConnectionLostError, OverloadedError
from goqueue.base.ids import NodeId
from goqueue.transport.cluster.accepted import AcceptedPeer, HttpMaker
from goqueue.transport.cluster.dialled import DialledPeer, PeerWatcher
from goqueue.transport.cluster.node import ClusterNode
from goqueue.transport.door import Door
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerOperation

ACCEPTED_MAX: Final = 256
"""Connections of peers and by HTTP; a cluster has nine nodes at the most, so these are mostly
strangers."""


class PeerTls(Protocol):
    """The TLS contexts in force of a node."""

    def accepting_context(self) -> ssl.SSLContext:
        """Return the one for nodes that connect to this one."""
        ...

    def dialling_context(self) -> ssl.SSLContext:
        """Return the one for connections of this node to others."""
        ...


class ClusterServer:
    """Listens for peers and keeps a connection to each of them."""

    def __init__(
        self,
        node: ClusterNode,
        *,
        watcher: PeerWatcher,
        http: HttpMaker | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        self._node = node
        self._http = http
        self._watcher = watcher
        self._accepted: dict[AcceptedPeer, None] = {}
        self._dialled: dict[NodeId, DialledPeer] = {}
        self._tls = tls
        self._door = Door(self._accept, tls=None if tls is None else tls.accepting_context)

    def __repr__(self) -> str:
        return f"<ClusterServer at {self.address}: {len(self._dialled)} peers>"

    @property
    def address(self) -> str:
        """Where it listens, with the port that was really taken."""
        return self._door.address

    async def start(self, listener: str) -> None:
        """Listen on ``host:port``; port 0 takes a free one."""
        await self.bind(listener)
        await self.listen()

    async def bind(self, listener: str) -> None:
        """Take the port, and accept nothing yet."""
        await self._door.bind(listener)

    async def listen(self) -> None:
        """Accept connections at the port taken."""
        await self._door.listen()

    def dial(self, peers: Mapping[NodeId, str]) -> None:
        """Keep a connection to each of these nodes, by their addresses, and to no others."""
        tls = None if self._tls is None else self._tls.dialling_context
        for name, known in list(self._dialled.items()):
            if peers.get(name) != known.address:
                del self._dialled[name]
                # The task is kept by the loop until it has ended the connection.
                asyncio.get_running_loop().create_task(known.stop()).add_done_callback(_ended)
        for name, address in peers.items():
            if name not in self._dialled and name != self._node.identity.node:
                peer = DialledPeer(self._node, name, address, watcher=self._watcher, tls=tls)
                self._dialled[name] = peer
                peer.start()

    @property
    def peers(self) -> Mapping[NodeId, DialledPeer]:
        """The peers that are dialled, by name."""
        return self._dialled

    async def stop(self) -> None:
        """Listen no more and end all connections."""
        self._door.close()
        await asyncio.gather(*(peer.stop() for peer in self._dialled.values()))
        self._dialled.clear()
        for accepted in list(self._accepted):
            accepted.abort()
        await self._door.wait_closed()

    # Sending.

    def cast(self, to: NodeId, operation: PeerOperation, body: bytes) -> None:
        """Send a message that is not answered; it may be lost."""
        peer = self._dialled.get(to)
        if peer is not None:
            peer.cast(operation, body)

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        """Return a peer's reply to a request, or raise."""
        peer = self._dialled.get(to)
        if peer is None:
            raise ConnectionLostError(f"node {to} is not a peer of this node")
        return await peer.request(operation, header, payload, timeout_s=timeout_s)

    # Listening.

    def _accept(self) -> AcceptedPeer:
        return AcceptedPeer(self._node, opened=self._opened, closed=self._closed, http=self._http)

    def _opened(self, peer: AcceptedPeer) -> None:
        if len(self._accepted) >= ACCEPTED_MAX:
            peer.refuse(OverloadedError("the node has as many connections of peers as it may"))
            return
        self._accepted[peer] = None

    def _closed(self, peer: AcceptedPeer) -> None:
        self._accepted.pop(peer, None)


def _ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()
