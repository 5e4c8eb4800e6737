"""Requests about transactions to other nodes: to their coordinators, and to leaders of partitions.

What this node asks itself goes the same way, without the network.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    PartitionNotFoundError,
    ProtocolError,
    TopicNotFoundError,
    UnknownProducerError,
)
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.core.producers.id_blocks import owner_of
from goqueue.runtime.topology import PartitionLeader, Topology
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

TX_TOPIC: Final = "__transactions"
REQUEST_SECONDS_MAX: Final = 2.0
"""How long one request waits: its answer needs a round of replication, no more."""
ASK_SECONDS_MAX: Final = 5.0
"""How long a coordinator is asked again: until another node has taken over from one that died."""
PAUSE_SECONDS: Final = 0.02
PAUSE_SECONDS_MAX: Final = 0.5

R = TypeVar("R", bound=Call)
Answerer = Callable[[Any], Awaitable[Call]]
TxHandler = Callable[[PeerIdentity, Buffer, memoryview], Awaitable[Call]]
"""Answers a request of a peer with a header; requests about transactions have no payload."""


class TxLink:
    """Finds the node that a request is for, and asks it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._answerers: dict[PeerOperation, tuple[type[Call], Answerer]] = {}

    def __repr__(self) -> str:
        return f"<TxLink of {self._topology.node}>"

    # Answering.

    def serve(self, operation: PeerOperation, kind: type[Call], answerer: Answerer) -> None:
        """Answer requests of peers, and of this node itself."""
        self._answerers[operation] = (kind, answerer)

    def handlers(self) -> Mapping[PeerOperation, TxHandler]:
        """Return what answers peers, by operation."""
        return {operation: self._handler(*known) for operation, known in self._answerers.items()}

    def _handler(self, kind: type[Call], answerer: Answerer) -> TxHandler:
        async def handle(_peer: PeerIdentity, header: Buffer, _payload: memoryview) -> Call:
            call = decode_call(header, kind)
            self._topology.check_live()
            return await answerer(call)

        return handle

    # Finding.

    def leader_of(self, place: TopicPartition) -> NodeId:
        """Return which node leads a partition, or raise if none is known."""
        leader = self._topology.leader_of(place)
        if leader.node is None:
            raise LeaderNotAvailableError(f"{place} has no leader at present")
        return leader.node

    def check_known(self, place: TopicPartition) -> None:
        """Raise unless this node has heard of a partition, whether it has a leader or not."""
        with contextlib.suppress(LeaderNotAvailableError):
            self._topology.leader_of(place)

    def coordinator(self, number: int) -> PartitionLeader:
        """Return who leads a partition of the coordinators, as far as this node knows."""
        place = TopicPartition(TopicName(TX_TOPIC), PartitionId(number))
        try:
            return self._topology.leader_of(place)
        except (TopicNotFoundError, PartitionNotFoundError) as error:
            raise LeaderNotAvailableError(f"there is no coordinator {number} yet") from error

    def coordinator_node(self, number: int) -> NodeId:
        """Return which node is a coordinator, or raise if none is at present."""
        node = self.coordinator(number).node
        if node is None:
            raise LeaderNotAvailableError(f"coordinator {number} has no leader at present")
        return node

    def coordinator_of(self, producer_id: int, *, count: int) -> int:
        """Return which of the coordinators knows a producer, or raise if none can."""
        number = owner_of(producer_id)
        if count and not (producer_id > 0 and number < count):
            raise UnknownProducerError(f"producer {producer_id} is not transactional")
        return number

    # Asking.

    async def ask(self, coordinator: int, operation: PeerOperation, call: Call, kind: type[R]) -> R:
        """Return a coordinator's answer; ask again while it moves, then raise ``not_coordinator``.

        Every request to a coordinator may be carried out twice.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ASK_SECONDS_MAX
        pause_s = PAUSE_SECONDS
        while True:
            try:
                node = self.coordinator_node(coordinator)
                return await self.request(node, operation, call, kind)
            except GoQueueError as error:
                if not error.retryable:
                    raise
                if loop.time() + pause_s > deadline_s:
                    raise NotCoordinatorError(
                        f"the coordinator of the transaction does not answer: {error.message}"
                    ) from error
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_SECONDS_MAX)

    async def request(self, to: NodeId, operation: PeerOperation, call: Call, kind: type[R]) -> R:
        """Return a node's answer, or raise; it may have been carried out all the same."""
        if to == self._topology.node:
            self._topology.check_live()
            _, answerer = self._answerers[operation]
            answer = await answerer(call)
            assert isinstance(answer, kind), "the answer of this operation"
            return answer
        packet = await self._topology.request(to, operation, call, timeout_s=REQUEST_SECONDS_MAX)
        return decode_call(packet.header, kind)


def decode_call(raw: Buffer, kind: type[R]) -> R:
    """Return a header, or raise if it is not of that kind or beyond its limits."""
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the header is no {kind.__name__}: {error}") from error
