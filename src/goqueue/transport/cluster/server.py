"""The port between nodes: who listens there, and the connections of this node to its peers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from goqueue.base.errors import ConnectionLostError, OverloadedError
from goqueue.base.ids import NodeId
from goqueue.transport.cluster.accepted import AcceptedPeer
from goqueue.transport.cluster.dialled import DialledPeer, PeerWatcher
from goqueue.transport.cluster.node import ClusterNode
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerOperation

ACCEPTED_MAX: Final = 256
"""Connections of peers; a cluster has nine nodes at the most, so these are mostly strangers."""


class ClusterServer:
    """Listens for peers and keeps a connection to each of them."""

    def __init__(
        self,
        node: ClusterNode,
        *,
        watcher: PeerWatcher,
        http: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self._node = node
        self._http = http
        self._watcher = watcher
        self._accepted: dict[AcceptedPeer, None] = {}
        self._dialled: dict[NodeId, DialledPeer] = {}
        self._server: asyncio.Server | None = None
        self.address = ""
        """Where it listens, with the port that was really taken."""

    def __repr__(self) -> str:
        return f"<ClusterServer at {self.address}: {len(self._dialled)} peers>"

    async def start(self, listener: str) -> None:
        """Listen on ``host:port``; port 0 takes a free one."""
        await self.bind(listener)
        await self.listen()

    async def bind(self, listener: str) -> None:
        """Take the port, and accept nothing yet."""
        host, _, port = listener.rpartition(":")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept, host.strip("[]") or None, int(port), start_serving=False
        )
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def listen(self) -> None:
        """Accept connections at the port taken."""
        assert self._server is not None, "bound"
        await self._server.start_serving()

    def dial(self, peers: Mapping[NodeId, str]) -> None:
        """Keep a connection to each of these nodes, by their addresses, and to no others."""
        for name, known in list(self._dialled.items()):
            if peers.get(name) != known.address:
                del self._dialled[name]
                # The task is kept by the loop until it has ended the connection.
                asyncio.get_running_loop().create_task(known.stop()).add_done_callback(_ended)
        for name, address in peers.items():
            if name not in self._dialled and name != self._node.identity.node:
                peer = DialledPeer(self._node, name, address, watcher=self._watcher)
                self._dialled[name] = peer
                peer.start()

    @property
    def peers(self) -> Mapping[NodeId, DialledPeer]:
        """The peers that are dialled, by name."""
        return self._dialled

    async def stop(self) -> None:
        """Listen no more and end all connections."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(peer.stop() for peer in self._dialled.values()))
        self._dialled.clear()
        for accepted in list(self._accepted):
            accepted.abort()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

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
