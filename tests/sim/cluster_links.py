"""The network between the nodes of a simulated cluster: latency, cuts, dead and paused peers."""

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from random import Random
from typing import Protocol

import msgspec

from goqueue.base.errors import ConnectionLostError, DeadlineExceededError, GoQueueError
from goqueue.base.ids import NodeId
from goqueue.runtime.cluster.links import Handler
from goqueue.testing.sim.host import Host
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Kind, Packet
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

LATENCY_SECONDS = (0.000_05, 0.000_8)
_encode = msgspec.msgpack.Encoder().encode


class PeerProcess(Protocol):
    """A process of a node that others may ask."""

    @property
    def host(self) -> Host: ...

    @property
    def identity(self) -> PeerIdentity: ...

    def handlers(self) -> Mapping[PeerOperation, Handler]: ...


class SimPeers:
    """Brings requests to processes and replies back, in order between any two nodes."""

    def __init__(self, simulation: Simulation) -> None:
        self.loop = simulation.loop
        self.cuts: set[tuple[str, str]] = set()
        """Directions in which nothing arrives."""
        self.extra_seconds = 0.0
        self._random = Random(simulation.chance.getrandbits(64))
        self._context = copy_context()
        self._processes: dict[NodeId, PeerProcess] = {}
        self._arrivals: dict[tuple[str, str], float] = {}
        self._open: dict[asyncio.Future[Packet], PeerProcess] = {}

    # Faults.

    def isolate(self, node: str, others: Sequence[str]) -> None:
        """Cut a node off, both ways."""
        for other in others:
            self.cuts |= {(node, other), (other, node)}

    def heal(self) -> None:
        """Let everything arrive again."""
        self.cuts.clear()
        self.extra_seconds = 0.0

    # Processes.

    def joined(self, process: PeerProcess) -> None:
        """Let a process be asked."""
        self._processes[process.identity.node] = process

    def died(self, process: PeerProcess) -> None:
        """Reset the connections to a process that is dead."""
        self._processes.pop(process.identity.node, None)
        for future, asked in list(self._open.items()):
            if asked is process:
                self._later("", "", self._fail, future, ConnectionLostError("the node died"))

    def latency(self) -> float:
        return self._random.uniform(*LATENCY_SECONDS) + self.extra_seconds

    def _later(self, source: str, target: str, what: object, *args: object) -> None:
        """Do something when a message has travelled, behind those sent before it."""
        at = self.loop.time() + self.latency()
        if source:
            at = max(at, self._arrivals.get((source, target), 0.0) + 0.000_000_1)
            self._arrivals[source, target] = at
        self.loop.call_at(at, what, *args, context=self._context)  # type: ignore[arg-type]

    @staticmethod
    def _fail(future: "asyncio.Future[Packet]", error: GoQueueError) -> None:
        if not future.done():
            future.set_exception(error)
            # Whoever asked may be dead.
            future.exception()

    # Requests.

    async def request(
        self,
        source: PeerIdentity,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer],
        timeout_s: float,
    ) -> Packet:
        future: asyncio.Future[Packet] = self.loop.create_future()
        raw, body = _encode(header), b"".join(bytes(one) for one in payload)
        self._later(source.node_id, to, self._arrive, source, to, operation, raw, body, future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            raise DeadlineExceededError(f"{to} did not answer") from error
        finally:
            self._open.pop(future, None)

    def _arrive(
        self,
        source: PeerIdentity,
        to: NodeId,
        operation: PeerOperation,
        header: bytes,
        payload: bytes,
        future: "asyncio.Future[Packet]",
    ) -> None:
        if (source.node_id, to) in self.cuts or future.done():
            return
        process = self._processes.get(to)
        if process is None or process.host.is_dead:
            self._later(to, source.node_id, self._fail, future, ConnectionLostError("refused"))
            return
        self._open[future] = process
        process.host.begin(self._serve(process, source, operation, header, payload, future))

    async def _serve(
        self,
        process: PeerProcess,
        source: PeerIdentity,
        operation: PeerOperation,
        header: bytes,
        payload: bytes,
        future: "asyncio.Future[Packet]",
    ) -> None:
        handler = process.handlers()[operation]
        back = (process.identity.node_id, source.node_id)
        try:
            reply = await handler(source, header, memoryview(payload))
        except GoQueueError as error:
            self._later(*back, self._answer, back, future, None, error)
            return
        body = b"".join(bytes(one) for one in reply.payload)
        packet = Packet(
            operation, Kind.REPLY, 1, memoryview(_encode(reply.header)), memoryview(body)
        )
        self._later(*back, self._answer, back, future, packet, None)

    def _answer(
        self,
        back: tuple[str, str],
        future: "asyncio.Future[Packet]",
        packet: Packet | None,
        error: GoQueueError | None,
    ) -> None:
        if back in self.cuts or future.done():
            return
        if error is not None:
            self._fail(future, error)
        elif packet is not None:
            future.set_result(packet)


class SimLinks:
    """The links of one node."""

    def __init__(self, peers: SimPeers, identity: PeerIdentity) -> None:
        self._peers = peers
        self._identity = identity

    def dial(self, peers: Mapping[NodeId, str]) -> None:
        """Do nothing: everybody is connected."""

    def cast(self, to: NodeId, operation: PeerOperation, body: bytes) -> None:
        """Lose everything: nothing of data is cast."""

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        return await self._peers.request(self._identity, to, operation, header, payload, timeout_s)
