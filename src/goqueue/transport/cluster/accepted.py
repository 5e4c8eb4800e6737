"""A connection that another node has dialled: first its handshake, then its requests.

Until the peer has proved that it knows the key of the cluster nothing but the two requests of the
handshake is read, within a few seconds and a few hundred bytes.
"""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import msgspec

from goqueue.base.errors import ForbiddenError, GoQueueError, ProtocolError, UnsupportedError
from goqueue.base.limits import REQUEST_BYTES_MAX
from goqueue.base.units import KiB
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.service.verb import Reply, failure_of
from goqueue.transport.cluster.node import ClusterNode
from goqueue.transport.native.alarm import Alarm
from goqueue.wire.calls import Nothing
from goqueue.wire.complaint import decode_peer
from goqueue.wire.packet import Buffer, Kind, Packet, PacketReader, encode_packet
from goqueue.wire.peer_calls import (
    NONCE_BYTES,
    PEER_PROTOCOL,
    Handshake,
    PeerHello,
    PeerIdentity,
    PeerOperation,
    PeerProve,
    PeerWelcome,
    is_proof,
)
from goqueue.wire.wrong_port import is_http_request

HANDSHAKE_SECONDS_MAX: Final = 5.0
HANDSHAKE_BYTES_MAX: Final = 2 * KiB
REQUESTS_MAX: Final = 256
"""Requests of one peer that are answered at the same time; more are not read meanwhile."""

HttpMaker = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes what speaks HTTP, which calls the function when its connection has ended."""

_encode: Final = msgspec.msgpack.Encoder().encode
_OPERATIONS: Final = frozenset(map(int, PeerOperation))
log = get_logger("goqueue.cluster")


class AcceptedPeer(asyncio.Protocol):
    """Reads what a peer says, and answers it when it has proved who it is."""

    def __init__(
        self,
        node: ClusterNode,
        *,
        opened: Callable[["AcceptedPeer"], None],
        closed: Callable[["AcceptedPeer"], None],
        http: HttpMaker | None = None,
        nonce: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._node = node
        self._opened = opened
        self._closed = closed
        self._http = http
        self._nonce = nonce
        self._reader = PacketReader(HANDSHAKE_BYTES_MAX, header_bytes_max=HANDSHAKE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._alarm = Alarm(self._too_slow)
        self._handshake: Handshake | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.peer: PeerIdentity | None = None
        """Who it is, once that is proved."""
        self.address = ""

    def __repr__(self) -> str:
        name = "a stranger" if self.peer is None else self.peer.node_id
        return f"<AcceptedPeer {name} at {self.address}: {len(self._tasks)} requests>"

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake."""
        # uvloop's transport is one by shape, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)
        self.address = str(transport.get_extra_info("peername"))
        self._alarm.set(HANDSHAKE_SECONDS_MAX)
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer nothing more."""
        del exc
        self._transport = None
        self._alarm.stop()
        self._writable.set()
        for task in list(self._tasks):
            task.cancel()
        self._closed(self)

    def pause_writing(self) -> None:
        """Start no more requests while the peer does not take its replies."""
        self._writable.clear()
        self._pace()

    def resume_writing(self) -> None:
        """Go on."""
        self._writable.set()
        self._pace()

    def data_received(self, data: bytes) -> None:
        """Take requests off the stream."""
        if self.peer is None and self._handshake is None and is_http_request(data):
            self._become_http(data)
            return
        try:
            for packet in self._reader.feed(data):
                self._take(packet)
                if self._transport is None:
                    return
        except GoQueueError as error:
            self.refuse(error)
        self._pace()

    def _become_http(self, data: bytes) -> None:
        """Leave the connection to HTTP: packets begin with a length, which no method looks like."""
        transport, self._transport = self._transport, None
        self._alarm.stop()
        assert transport is not None, "connected"
        if self._http is None:
            self._closed(self)
            transport.close()
            return
        # It counts among the connections accepted until it ends.
        protocol = self._http(partial(self._closed, self))
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    # What the listener calls.

    def refuse(self, error: GoQueueError) -> None:
        """Say why, and end the connection."""
        if self.peer is None:
            log.warning(LogEvent.PEER_REFUSED, peer=self.address, error=error.message)
        self._write(0, 0, Kind.ERROR, _encode(failure_of(error)))
        self.close()

    def close(self) -> None:
        """End the connection when what was written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # The handshake.

    def _too_slow(self) -> None:
        self.refuse(ProtocolError("the handshake did not arrive in time"))

    def _take(self, packet: Packet) -> None:
        if packet.kind != Kind.REQUEST or packet.operation not in _OPERATIONS:
            raise UnsupportedError(f"operation {packet.operation} is not known to this node")
        operation = PeerOperation(packet.operation)
        if self.peer is not None:
            self._start(self.peer, operation, packet)
        elif operation is PeerOperation.PEER_HELLO and self._handshake is None:
            self._greet(packet)
        elif operation is PeerOperation.PEER_PROVE and self._handshake is not None:
            self._let_in(packet, self._handshake)
        else:
            raise ProtocolError("a connection between nodes begins with a handshake")

    def _greet(self, packet: Packet) -> None:
        hello = decode_peer(packet.header, PeerHello)
        if hello.protocol != PEER_PROTOCOL:
            raise UnsupportedError(
                f"node {hello.identity.node_id} speaks version {hello.protocol} of the protocol"
                f" between nodes; this one speaks {PEER_PROTOCOL}"
            )
        own = self._node.identity
        self._handshake = Handshake(
            dialling=hello.identity,
            listening=own,
            dialling_nonce=hello.nonce,
            listening_nonce=self._nonce(NONCE_BYTES),
        )
        proof = self._handshake.proof_of_listening(self._node.key)
        welcome = PeerWelcome(own, self._handshake.listening_nonce, proof)
        self._write(packet.operation, packet.correlation, Kind.REPLY, _encode(welcome))

    def _let_in(self, packet: Packet, handshake: Handshake) -> None:
        if self._reader.held:
            raise ProtocolError("nothing may be sent before the handshake is over")
        proof = decode_peer(packet.header, PeerProve).proof
        if not is_proof(proof, handshake.proof_of_dialling(self._node.key)):
            raise ForbiddenError("the peer does not know the key of this cluster")
        self._node.check_peer(handshake.dialling)
        self._alarm.stop()
        self.peer = handshake.dialling
        self._reader = PacketReader(REQUEST_BYTES_MAX)
        self._write(packet.operation, packet.correlation, Kind.REPLY, _encode(Nothing()))

    # Requests.

    def _start(self, peer: PeerIdentity, operation: PeerOperation, packet: Packet) -> None:
        if not packet.correlation:
            self._node.receive(peer, operation, packet.payload)
            return
        task = asyncio.get_running_loop().create_task(self._serve(peer, operation, packet))
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._pace()

    async def _serve(self, peer: PeerIdentity, operation: PeerOperation, packet: Packet) -> None:
        write = partial(self._write, packet.operation, packet.correlation)
        try:
            reply: Reply = await self._node.answer(peer, operation, packet.header, packet.payload)
        except GoQueueError as error:
            write(Kind.ERROR, _encode(failure_of(error)))
        except Exception:
            log.exception(LogEvent.REQUEST_CRASHED, peer=peer.node_id, operation=operation.name)
            write(Kind.ERROR, _encode(failure_of(GoQueueError("the node failed to answer"))))
        else:
            await self._writable.wait()
            write(Kind.REPLY, _encode(reply.header), *reply.payload)

    def _pace(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        should_pause = len(self._tasks) >= REQUESTS_MAX or not self._writable.is_set()
        if should_pause != self._is_paused:
            self._is_paused = should_pause
            (transport.pause_reading if should_pause else transport.resume_reading)()

    def _write(
        self, operation: int, correlation: int, kind: Kind, header: bytes, *payload: Buffer
    ) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.writelines(
            encode_packet(
                operation=operation,
                kind=kind,
                correlation=correlation,
                header=header,
                payload=payload,
            )
        )
