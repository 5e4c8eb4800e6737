"""The connection of this node to one peer: dialled for as long as the node runs.

A peer that was declared dead is dialled like any other: when a broken network is whole again, both
sides find each other without a restart.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import msgspec

from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    ForbiddenError,
    GoQueueError,
    ProtocolError,
    from_code,
)
from goqueue.base.ids import NodeId
from goqueue.base.units import MiB
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.transport.cluster.accepted import HANDSHAKE_SECONDS_MAX
from goqueue.transport.cluster.node import ClusterNode
from goqueue.transport.door import Contexts
from goqueue.wire.calls import Call, Failure
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

REPLY_BYTES_MAX: Final = 64 * MiB
REDIAL_SECONDS: Final = 0.05
REDIAL_SECONDS_MAX: Final = 1.0
UNSENT_BYTES_MAX: Final = 16 * MiB
"""Bytes that wait to be sent to a peer that takes nothing; messages behind them are dropped."""

_encode: Final = msgspec.msgpack.Encoder().encode
log = get_logger("goqueue.cluster")


class PeerWatcher(Protocol):
    """Hears how connections to peers fare: faster than heartbeats that stay away."""

    def peer_connected(self, peer: PeerIdentity) -> None:
        """Hear that a peer answered and proved who it is."""
        ...

    def peer_refused(self, node: NodeId) -> None:
        """Hear that nothing listens at the address of a peer."""
        ...

    def peer_denied(self, node: NodeId, error: GoQueueError, *, by_peer: bool) -> None:
        """Hear that a peer does not let this node in, or this node not the peer, and why."""
        ...


class _Wire(asyncio.Protocol):
    """One TCP connection to a peer; matches replies with requests."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._reader = PacketReader(REPLY_BYTES_MAX, header_bytes_max=REPLY_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._correlation = 0
        self.error: GoQueueError = ConnectionLostError("the connection to the node was lost")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one by shape, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(type(self.error)(*self.error.args))
        self._lost()

    def data_received(self, data: bytes) -> None:
        try:
            packets = self._reader.feed(data)
        except ProtocolError as error:
            self.error = error
            self.abort()
            return
        for packet in packets:
            self._settle(packet)

    def _settle(self, packet: Packet) -> None:
        failure = None
        if packet.kind == Kind.ERROR:
            failed = decode_peer(packet.header, Failure)
            failure = from_code(failed.code, failed.message)
        if not packet.correlation and failure is not None:
            self.error = failure
            return
        future = self._waiting.pop(packet.correlation, None)
        if future is None or future.done():
            return
        if failure is None:
            future.set_result(packet)
        else:
            future.set_exception(failure)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def cast(self, operation: PeerOperation, body: bytes) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < UNSENT_BYTES_MAX:
            self._write(operation, 0, b"", (body,))

    async def request(
        self, operation: PeerOperation, header: bytes, payload: Sequence[Buffer] = ()
    ) -> Packet:
        if not self.is_open:
            raise type(self.error)(*self.error.args)
        self._correlation = correlation = self._correlation % 0xFFFF_FFFF + 1
        future: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = future
        self._write(operation, correlation, header, payload)
        try:
            return await future
        finally:
            self._waiting.pop(correlation, None)

    def _write(
        self, operation: PeerOperation, correlation: int, header: bytes, payload: Sequence[Buffer]
    ) -> None:
        assert self._transport is not None, "open"
        self._transport.writelines(
            encode_packet(
                operation=operation,
                kind=Kind.REQUEST,
                correlation=correlation,
                header=header,
                payload=payload,
            )
        )

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class DialledPeer:
    """Keeps a connection to one peer, and sends to it."""

    def __init__(
        self,
        node: ClusterNode,
        name: NodeId,
        address: str,
        *,
        watcher: PeerWatcher,
        nonce: Callable[[int], bytes] = secrets.token_bytes,
        tls: Contexts | None = None,
    ) -> None:
        self._node = node
        self.name = name
        self.address = address
        self._watcher = watcher
        self._nonce = nonce
        self._tls = tls
        self._wire: _Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_told = False
        self.refusal: GoQueueError | None = None
        """Why the peer, or this node, ended the last handshake."""

    def __repr__(self) -> str:
        return f"<DialledPeer {self.name} at {self.address}>"

    @property
    def is_connected(self) -> bool:
        """Return True if requests can be sent now."""
        return self._wire is not None and self._wire.is_open

    def start(self) -> None:
        """Dial, again and again."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Dial no more and end the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._wire is not None:
            self._wire.abort()

    # Sending.

    def cast(self, operation: PeerOperation, body: bytes) -> None:
        """Send a message that is not answered; without a connection it is dropped."""
        if self._wire is not None and self._wire.is_open:
            self._wire.cast(operation, body)

    async def request(
        self,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        """Return the reply to a request, or raise; a lost request may have been carried out."""
        wire = self._wire
        if wire is None or not wire.is_open:
            raise ConnectionLostError(f"there is no connection to node {self.name}")
        try:
            async with asyncio.timeout(timeout_s):
                return await wire.request(operation, _encode(header), payload)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"node {self.name} did not answer in {timeout_s:g} s"
            ) from error

    # Dialling.

    async def _keep(self) -> None:
        pause_s = REDIAL_SECONDS
        while True:
            lost = asyncio.Event()
            try:
                self._wire, peer = await self._dial(lost.set)
            except (GoQueueError, OSError, TimeoutError) as error:
                self._note(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, REDIAL_SECONDS_MAX)
                continue
            pause_s = REDIAL_SECONDS
            self._is_told, self.refusal = False, None
            log.info(LogEvent.PEER_CONNECTED, node=self.name, address=self.address)
            self._watcher.peer_connected(peer)
            # A peer that is gone refuses the next connection, which is made at once.
            await lost.wait()

    def _note(self, error: Exception) -> None:
        """Say why there is no connection, once until there is one again."""
        reason = error.message if isinstance(error, GoQueueError) else str(error) or "no answer"
        if isinstance(error, ConnectionError):
            self._watcher.peer_refused(self.name)
        elif isinstance(error, GoQueueError) and not isinstance(error, ConnectionLostError):
            self.refusal = error
        if not self._is_told:
            self._is_told = True
            log.warning(
                LogEvent.PEER_UNREACHABLE, node=self.name, address=self.address, error=reason
            )

    async def _dial(self, lost: Callable[[], None]) -> tuple[_Wire, PeerIdentity]:
        host, _, port = self.address.rpartition(":")
        wire = _Wire(lost)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                loop = asyncio.get_running_loop()
                host = host.strip("[]")
                await loop.create_connection(
                    lambda: wire,
                    host,
                    int(port),
                    ssl=None if self._tls is None else self._tls(),
                    server_hostname=None if self._tls is None else host,
                )
                return wire, await self._shake_hands(wire)
        except BaseException:
            wire.abort()
            raise

    async def _shake_hands(self, wire: _Wire) -> PeerIdentity:
        own, nonce = self._node.identity, self._nonce(NONCE_BYTES)
        hello = PeerHello(PEER_PROTOCOL, own, nonce)
        packet = await wire.request(PeerOperation.PEER_HELLO, _encode(hello))
        welcome = decode_peer(packet.header, PeerWelcome)
        handshake = Handshake(
            dialling=own,
            listening=welcome.identity,
            dialling_nonce=nonce,
            listening_nonce=welcome.nonce,
        )
        if not is_proof(welcome.proof, handshake.proof_of_listening(self._node.key)):
            raise ForbiddenError(f"{self.address} does not know the key of this cluster")
        if welcome.identity.node != self.name:
            raise ForbiddenError(
                f"{self.address} is node {welcome.identity.node_id!r}, not {self.name!r}"
            )
        try:
            self._node.check_peer(welcome.identity)
        except GoQueueError as error:
            self._watcher.peer_denied(self.name, error, by_peer=False)
            raise
        prove = PeerProve(handshake.proof_of_dialling(self._node.key))
        try:
            await wire.request(PeerOperation.PEER_PROVE, _encode(prove))
        except GoQueueError as error:
            if not isinstance(error, ConnectionLostError):
                self._watcher.peer_denied(self.name, error, by_peer=True)
            raise
        return welcome.identity
