"""Requests that one node passes on to another."""

import msgspec
import pytest

from goqueue.base.errors import (
    ConnectionLostError,
    ForbiddenError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotLeaderError,
    UnsupportedError,
)
from goqueue.base.ids import NodeId
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime.forwarding import Forwarding
from goqueue.wire import calls
from goqueue.wire.forward_calls import Forward, ForwardedCaller
from goqueue.wire.packet import Operation
from goqueue.wire.peer_calls import PeerOperation
from tests.service.fleet import CALLER, ServiceFleet, place, run_services

FRAME = frame_drafts([Draft(value=b"v", timestamp_us=1_700_000_000_000_000)])


def forwarding(fleet: ServiceFleet, node: str = "a") -> Forwarding:
    topology = fleet.nodes[NodeId(node)].broker.topology
    assert topology is not None
    return Forwarding(topology)


async def produce(fleet: ServiceFleet, to: str, partition: int) -> calls.ProducedPart:
    header = calls.Produce("orders", "all", [calls.ProducePart(partition, len(FRAME))])
    answer = await forwarding(fleet).forward(NodeId(to), CALLER, Operation.PRODUCE, header, [FRAME])
    (part,) = msgspec.msgpack.decode(answer.header, type=calls.Produced).parts
    return part


def test_a_native_request_is_answered_by_the_node_it_is_passed_to() -> None:
    """The packet travels as it came, and the answer comes back as it was."""

    async def scenario(fleet: ServiceFleet) -> None:
        fleet.create("orders", 2, {})
        part = await produce(fleet, "b", 1)

        assert (part.base_offset, part.failure) == (0, None)
        assert fleet.nodes[NodeId("b")].partition(place("orders", 1)).log.end_offset == 1
        assert fleet.nodes[NodeId("a")].partition(place("orders", 1)).log.end_offset == 0

    run_services(scenario)


def test_a_request_is_passed_on_once() -> None:
    """A node that is not the right one either says so; nothing goes in circles."""

    async def scenario(fleet: ServiceFleet) -> None:
        fleet.create("orders", 2, {})
        part = await produce(fleet, "b", 0)

        assert part.failure is not None
        assert part.failure.code == NotLeaderError.code
        passed = [one for one in fleet.requests if one[2] is PeerOperation.FORWARD]
        assert len(passed) == 1

    run_services(scenario)


def test_the_caller_is_who_asked_first() -> None:
    """P12: the gate decides about the caller, not about the node that passes its request on."""

    async def scenario(fleet: ServiceFleet) -> None:
        fleet.create("orders", 2, {})
        stranger = ForwardedCaller("http", "203.0.113.7", "anonymous")
        topology = fleet.nodes[NodeId("a")].broker.topology
        assert topology is not None
        raw = msgspec.msgpack.encode(calls.TopicCall("orders"))
        told = Forward(stranger, Operation.DESCRIBE_TOPIC, raw)
        with pytest.raises(ForbiddenError):
            await topology.request(NodeId("b"), PeerOperation.FORWARD, told, timeout_s=5)
        for wrong, error in (
            (Forward(stranger, 250, b""), UnsupportedError),
            (Forward(ForwardedCaller("carrier pigeon", "", "")), InvalidRequestError),
            (Forward(stranger, verb="status.nonsense"), UnsupportedError),
        ):
            with pytest.raises(error):
                await topology.request(NodeId("b"), PeerOperation.FORWARD, wrong, timeout_s=5)

    run_services(scenario)


def test_the_right_node_is_looked_for_until_there_is_one() -> None:
    """A leader that moves, or is missing for a while, costs time and no error."""

    async def scenario(fleet: ServiceFleet) -> None:
        there = forwarding(fleet)
        asked: list[NodeId] = []

        def find() -> NodeId:
            if not asked:
                asked.append(NodeId("?"))
                raise LeaderNotAvailableError("not yet")
            return NodeId("b" if len(asked) > 2 else "a")

        async def ask(node: NodeId) -> str:
            asked.append(node)
            if node == "a":
                raise NotLeaderError("not here")
            return "done"

        assert await there.find(find, ask) == "done"
        assert asked == ["?", "a", "a", "b"][: len(asked)]

    run_services(scenario)


def test_what_cannot_be_repeated_is_not_asked_again() -> None:
    """Whether it was carried out is not known: the caller decides."""

    async def scenario(fleet: ServiceFleet) -> None:
        there = forwarding(fleet)
        count = 0

        async def ask(_: NodeId) -> None:
            nonlocal count
            count += 1
            raise ConnectionLostError("gone")

        with pytest.raises(ConnectionLostError):
            await there.find(lambda: NodeId("b"), ask, is_repeatable=False)
        assert count == 1
        began = fleet.simulation.loop.time()
        with pytest.raises(ConnectionLostError):
            await there.find(lambda: NodeId("b"), ask)
        assert count > 10
        assert 4 < fleet.simulation.loop.time() - began <= 5

    run_services(scenario)
