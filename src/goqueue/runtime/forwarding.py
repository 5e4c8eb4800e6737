"""Passing a request on to the node it belongs to, and asking again while that changes.

What belongs to a partition is asked of its leader, what is known by a name of the leader of the
state partition of that name. Both may move at any time: a node that is not the right one any more
says so, and the question is put to the next one until it is answered or the time is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    LeaderNotAvailableError,
    NodeFencedError,
    NotCoordinatorError,
    NotLeaderError,
    ProtocolError,
    ShuttingDownError,
    TooLargeError,
)
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.runtime.topology import Topology
from goqueue.wire.calls import Call
from goqueue.wire.forward_calls import (
    FORWARDED_HEADER_BYTES_MAX,
    Forward,
    Forwarded,
    ForwardedCaller,
)
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerOperation

FORWARD_SECONDS: Final = 5.0
"""How long a request looks for the node it belongs to."""
PAUSE_SECONDS_MIN: Final = 0.02
PAUSE_SECONDS_MAX: Final = 0.32
"""How long to wait before the next node is asked; doubled each time."""

ASTRAY: Final = (NotLeaderError, NotCoordinatorError, LeaderNotAvailableError, NodeFencedError)
"""The node that was asked is not the right one, or there is none: another may be in a moment."""
LOST: Final = (ConnectionLostError, DeadlineExceededError, ShuttingDownError)
"""Whether the request was carried out is not known."""

R = TypeVar("R")
Find = Callable[[], NodeId]
"""Returns the node that a request belongs to now, or raises that there is none."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Forwarded).decode


class Answer(NamedTuple):
    """What another node answered."""

    header: bytes
    payload: memoryview


class Forwarding:
    """Passes requests on. A node of a cluster has one; a single broker has none."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def __repr__(self) -> str:
        return f"<Forwarding from {self.topology.node}>"

    # Where things belong.

    def leader(self, place: TopicPartition) -> NodeId:
        """Return the node that leads a partition, or raise that none does."""
        leader = self.topology.leader_of(place)
        if leader.node is None:
            raise LeaderNotAvailableError(f"partition {place} has no leader at present")
        return leader.node

    def coordinator(self, topic: str, name: str, partitions: int) -> NodeId:
        """Return the node that holds the state of a name in a state topic."""
        number = PartitionId(partition_of_key(name.encode(), partitions))
        return self.leader(TopicPartition(TopicName(topic), number))

    def is_here(self, node: NodeId) -> bool:
        """Return True if a node is this one."""
        return node == self.topology.node

    # Asking.

    async def find(
        self,
        find: Find,
        ask: Callable[[NodeId], Awaitable[R]],
        *,
        is_repeatable: bool = True,
        seconds: float = FORWARD_SECONDS,
    ) -> R:
        """Ask the right node, and the next right one while nodes say that they are not.

        A request whose outcome is not known is asked again only if it is repeatable.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + seconds, PAUSE_SECONDS_MIN
        again = (*ASTRAY, *LOST) if is_repeatable else ASTRAY
        while True:
            try:
                return await ask(find())
            except again as error:
                if loop.time() + pause >= deadline:
                    raise type(error)(*error.args) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def forward(
        self,
        node: NodeId,
        caller: Caller,
        operation: int,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float = FORWARD_SECONDS,
    ) -> Answer:
        """Return what another node answers to a native request of a caller, or raise its error."""
        raw = _encode(header)
        if len(raw) > FORWARDED_HEADER_BYTES_MAX:
            raise TooLargeError(
                f"a header of {len(raw)} bytes; {FORWARDED_HEADER_BYTES_MAX} can be passed on"
            )
        told = Forward(ForwardedCaller.of(caller), operation, raw)
        return await self._send(node, told, payload, timeout_s)

    async def call(
        self,
        node: NodeId,
        grant: Grant,
        verb: str,
        arguments: Buffer,
        *,
        timeout_s: float = FORWARD_SECONDS,
    ) -> memoryview:
        """Return what a verb of another node returns to the caller of a grant, as it travels."""
        caller, names = ForwardedCaller.of(grant.caller), list(grant.names)
        told = Forward(caller, verb=verb, deed=grant.deed.value, names=names)
        return (await self._send(node, told, [arguments], timeout_s)).payload

    async def _send(
        self, node: NodeId, told: Forward, payload: Sequence[Buffer], timeout_s: float
    ) -> Answer:
        packet = await self.topology.request(
            node, PeerOperation.FORWARD, told, payload, timeout_s=timeout_s
        )
        try:
            return Answer(_decode(packet.header).header, packet.payload)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"node {node} answered what cannot be read") from error
