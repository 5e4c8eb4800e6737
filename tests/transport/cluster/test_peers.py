"""Nodes find each other, prove that they know the key, and talk; strangers get nothing."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import pytest

from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    ForbiddenError,
    GoQueueError,
    NotLeaderError,
)
from goqueue.base.ids import NodeId
from goqueue.service.verb import Reply
from goqueue.testing.sim.simulation import Simulation
from goqueue.transport.cluster.accepted import HANDSHAKE_BYTES_MAX, HANDSHAKE_SECONDS_MAX
from goqueue.transport.cluster.http_port import PortRequest
from goqueue.transport.cluster.server import ClusterServer
from goqueue.wire.calls import Failure, TopicCall
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
)
from tests.transport.cluster.test_http_port import PortStub

A, B = NodeId("a"), NodeId("b")
KEY = b"k" * 32


class Node:
    """A node that answers each request with its own name and what it was sent."""

    def __init__(self, name: str, *, key: bytes = KEY, cluster: str = "c1") -> None:
        self.identity = PeerIdentity(cluster, name, f"{name}-disk", 1)
        self.key = key
        self.heard: list[bytes] = []
        self.seen: list[str] = []
        self.server = ClusterServer(self, watcher=self)

    def check_peer(self, peer: PeerIdentity) -> None:
        if peer.cluster_id and peer.cluster_id != self.identity.cluster_id:
            raise ForbiddenError(f"node {peer.node_id} belongs to cluster {peer.cluster_id}")

    def receive(self, peer: PeerIdentity, operation: PeerOperation, header: Buffer) -> None:
        assert operation is PeerOperation.RAFT
        self.heard.append(peer.node_id.encode() + bytes(header))

    async def answer(
        self, peer: PeerIdentity, operation: PeerOperation, header: Buffer, payload: memoryview
    ) -> Reply:
        if operation is PeerOperation.WATCH_GROUP:
            await asyncio.Event().wait()
        if operation is PeerOperation.TX_ADD:
            raise NotLeaderError("this node does not lead it")
        name = msgspec.msgpack.decode(header, type=TopicCall).name
        return Reply(TopicCall(f"{self.identity.node_id}:{peer.node_id}:{name}"), (payload,))

    def peer_connected(self, peer: PeerIdentity) -> None:
        self.seen.append(f"+{peer.node_id}")

    def peer_refused(self, node: NodeId) -> None:
        if self.seen[-1:] != [f"-{node}"]:
            self.seen.append(f"-{node}")

    def peer_denied(self, node: NodeId, error: GoQueueError, *, by_peer: bool) -> None:
        self.seen.append(f"!{node} {error.code} {by_peer}")

    async def ask(self, to: NodeId, payload: bytes = b"") -> tuple[str, bytes]:
        packet = await self.server.request(
            to, PeerOperation.PROPOSE, TopicCall("x"), (payload,), timeout_s=5
        )
        reply = msgspec.msgpack.decode(packet.header, type=TopicCall)
        return reply.name, bytes(packet.payload)


async def connected(dialling: Node, listening: Node) -> None:
    """Let one node listen and another dial it, and wait for the handshake."""
    if not listening.server.address:
        await listening.server.start("127.0.0.1:0")
    dialling.server.dial({listening.identity.node: listening.server.address})
    await until(lambda: dialling.server.peers[listening.identity.node].is_connected)


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if is_true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true in 20 s")


async def virtual_time(seconds: float) -> None:
    """Let time of a simulation pass, which takes none."""
    await asyncio.sleep(seconds)


def simulate(main: Callable[[Simulation], Awaitable[None]], seed: int = 7) -> None:
    simulation = Simulation(seed)
    simulation.run(main)
    assert simulation.failures == []


def test_requests_and_messages_reach_a_peer_by_real_sockets() -> None:
    """A node asks, another answers; a message without an answer arrives once."""

    async def main() -> tuple[tuple[str, bytes], list[bytes]]:
        a, b = Node("a"), Node("b")
        await connected(a, b)
        a.server.cast(B, PeerOperation.RAFT, b"vote")
        answer = await a.ask(B, b"p" * 3_000_000)
        await a.server.stop()
        await b.server.stop()
        return answer, b.heard

    answer, heard = asyncio.run(main())

    assert answer == ("b:a:x", b"p" * 3_000_000)
    assert heard == [b"avote"]


def test_an_error_of_a_peer_is_raised_by_its_code() -> None:
    """What a peer refuses is the same error here, and the connection stays."""

    async def main(_: Simulation) -> None:
        a, b = Node("a"), Node("b")
        await connected(a, b)

        with pytest.raises(NotLeaderError, match="does not lead"):
            await a.server.request(B, PeerOperation.TX_ADD, TopicCall("x"), timeout_s=5)

        assert (await a.ask(B))[0] == "b:a:x"

    simulate(main)


def test_a_request_that_is_not_answered_ends() -> None:
    """A wait has a bound and says for what it waited; others are answered meanwhile."""

    async def main(_: Simulation) -> None:
        a, b = Node("a"), Node("b")
        await connected(a, b)
        stuck = asyncio.ensure_future(
            a.server.request(B, PeerOperation.WATCH_GROUP, TopicCall("x"), timeout_s=3)
        )

        assert (await a.ask(B))[0] == "b:a:x"
        with pytest.raises(DeadlineExceededError, match="node b did not answer in 3 s"):
            await stuck

    simulate(main)


@pytest.mark.parametrize("seed", range(8))
def test_a_peer_that_comes_back_is_found_again(seed: int) -> None:
    """A node dials for as long as it runs: after any absence both talk again."""

    async def main(simulation: Simulation) -> None:
        a, b = Node("a"), Node("b")
        host = simulation.host("b")
        await host.run(b.server.start("127.0.0.1:7001"))
        await connected(a, b)
        under_way = asyncio.ensure_future(
            a.server.request(B, PeerOperation.WATCH_GROUP, TopicCall("x"), timeout_s=60)
        )
        await virtual_time(0.1)
        host.kill()
        with pytest.raises(ConnectionLostError):
            await under_way
        with pytest.raises(ConnectionLostError, match="no connection to node b"):
            await a.ask(B)
        await virtual_time(90)
        again = Node("b")
        await simulation.host("b").run(again.server.start("127.0.0.1:7001"))
        await virtual_time(2)

        assert (await a.ask(B))[0] == "b:a:x"
        assert a.seen == ["+b", "-b", "+b"]

    simulate(main, seed)


@pytest.mark.parametrize(
    ("a_key", "b_key"),
    [(KEY, b"x" * 32), (KEY, b""), (b"", KEY)],
    ids=["other", "none", "own none"],
)
def test_without_the_key_nothing_is_said(a_key: bytes, b_key: bytes) -> None:
    """A node without the key of the other, or with another one, is not let in by either side."""

    async def main(_: Simulation) -> None:
        a, b = Node("a", key=a_key), Node("b", key=b_key)
        await b.server.start("127.0.0.1:0")
        a.server.dial({B: b.server.address})
        await virtual_time(5)

        assert not a.server.peers[B].is_connected
        assert "does not know the key" in str(a.server.peers[B].refusal)
        assert b.heard == []

    simulate(main)


@pytest.mark.parametrize(
    ("other", "reason"),
    [(Node("b", cluster="c2"), "belongs to cluster c2"), (Node("d"), "is node 'd', not 'b'")],
    ids=["another cluster's", "another name"],
)
def test_another_node_at_the_address_is_refused(other: Node, reason: str) -> None:
    """A node of another cluster, or another node, is not taken for the one that is dialled."""

    async def main(_: Simulation) -> None:
        a = Node("a")
        await other.server.start("127.0.0.1:0")
        a.server.dial({B: other.server.address})
        await virtual_time(5)

        assert not a.server.peers[B].is_connected
        assert reason in str(a.server.peers[B].refusal)

    simulate(main)


# Strangers, with bytes of their own.


class Stranger(asyncio.Protocol):
    """A raw connection to a node."""

    def __init__(self) -> None:
        self.reader = PacketReader()
        self.packets: asyncio.Queue[Packet | None] = asyncio.Queue()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.packets.put_nowait(None)

    def data_received(self, data: bytes) -> None:
        for packet in self.reader.feed(data):
            self.packets.put_nowait(packet)

    def send(self, operation: int, call: msgspec.Struct, correlation: int = 1) -> None:
        header = msgspec.msgpack.encode(call)
        assert self.transport is not None
        self.transport.writelines(
            encode_packet(
                operation=operation, kind=Kind.REQUEST, correlation=correlation, header=header
            )
        )

    async def failure(self) -> Failure:
        """Return why the node ends the connection, which it does."""
        packet = await self.packets.get()
        while packet is not None and packet.kind != Kind.ERROR:
            packet = await self.packets.get()
        assert packet is not None, "it says why"
        assert await self.packets.get() is None
        return msgspec.msgpack.decode(packet.header, type=Failure)


HELLO = PeerHello(PEER_PROTOCOL, PeerIdentity("c1", "a", "a-disk", 1), b"n" * NONCE_BYTES)


async def stranger(node: Node) -> Stranger:
    await node.server.start("127.0.0.1:0")
    port = int(node.server.address.rpartition(":")[2])
    _, protocol = await asyncio.get_running_loop().create_connection(Stranger, "127.0.0.1", port)
    return protocol


def expect_refusal(say: Callable[[Stranger], Awaitable[None]], reason: str) -> None:
    async def main(_: Simulation) -> None:
        node = Node("b")
        visitor = await stranger(node)
        await say(visitor)

        assert reason in (await visitor.failure()).message
        assert node.heard == []

    simulate(main)


def test_a_request_before_the_handshake_is_refused() -> None:
    """Nothing is answered to a connection that has proved nothing."""

    async def say(visitor: Stranger) -> None:
        visitor.send(PeerOperation.RAFT, TopicCall("vote for me"), correlation=0)

    expect_refusal(say, "begins with a handshake")


def test_the_listening_nodes_own_proof_proves_nothing() -> None:
    """A proof sent back, as in a reflection attack, is that of the wrong role."""

    async def say(visitor: Stranger) -> None:
        visitor.send(PeerOperation.PEER_HELLO, HELLO)
        packet = await visitor.packets.get()
        assert packet is not None
        welcome = msgspec.msgpack.decode(packet.header, type=PeerWelcome)
        visitor.send(PeerOperation.PEER_PROVE, PeerProve(welcome.proof))

    expect_refusal(say, "does not know the key")


def test_a_proof_of_another_connection_proves_nothing() -> None:
    """A recorded proof is worthless: the nonce of the listening node is new each time."""
    handshake = Handshake(
        dialling=HELLO.identity,
        listening=Node("b").identity,
        dialling_nonce=HELLO.nonce,
        listening_nonce=b"o" * NONCE_BYTES,
    )

    async def say(visitor: Stranger) -> None:
        visitor.send(PeerOperation.PEER_HELLO, HELLO)
        visitor.send(PeerOperation.PEER_PROVE, PeerProve(handshake.proof_of_dialling(KEY)))

    expect_refusal(say, "does not know the key")


def test_a_large_handshake_is_refused_before_it_is_received() -> None:
    """A stranger cannot make the node hold more than a few hundred bytes."""

    async def say(visitor: Stranger) -> None:
        assert visitor.transport is not None
        visitor.transport.write((HANDSHAKE_BYTES_MAX + 1).to_bytes(4, "big") + bytes(10))

    expect_refusal(say, f"the limit is {HANDSHAKE_BYTES_MAX}")


def test_a_slow_handshake_is_ended() -> None:
    """A stranger that says nothing has its connection closed after a few seconds."""

    async def say(visitor: Stranger) -> None:
        began = asyncio.get_running_loop().time()
        visitor.send(PeerOperation.PEER_HELLO, HELLO)
        await visitor.packets.get()
        await virtual_time(HANDSHAKE_SECONDS_MAX - 1 - asyncio.get_running_loop().time() + began)

    expect_refusal(say, "did not arrive in time")


@pytest.mark.parametrize("name", ["", "n" * 300], ids=["empty", "long"])
def test_hostile_names_are_refused(name: str) -> None:
    """Names and nonces are bounded before anything is made of them."""

    async def say(visitor: Stranger) -> None:
        bad = PeerHello(PEER_PROTOCOL, PeerIdentity("c1", name, "d", 1), b"n" * NONCE_BYTES)
        visitor.send(PeerOperation.PEER_HELLO, bad)

    expect_refusal(say, "PeerHello")


def test_proofs_differ_by_role_key_and_every_part_of_the_handshake() -> None:
    """No part of a handshake can be exchanged for another with the same proof."""
    base = {
        "dialling": PeerIdentity("c", "a", "d1", 1),
        "listening": PeerIdentity("c", "b", "d2", 1),
        "dialling_nonce": b"1" * NONCE_BYTES,
        "listening_nonce": b"2" * NONCE_BYTES,
    }
    changed = [
        base,
        base | {"dialling": PeerIdentity("c", "a", "d1", 2)},
        base | {"listening": PeerIdentity("c", "b", "d3", 1)},
        base | {"dialling_nonce": b"3" * NONCE_BYTES},
        base | {"listening_nonce": b"1" * NONCE_BYTES},
        base | {"dialling": base["listening"], "listening": base["dialling"]},
    ]
    handshakes = [msgspec.convert(one, Handshake) for one in changed]
    proofs = {
        proof
        for one in handshakes
        for key in (KEY, b"")
        for proof in (one.proof_of_dialling(key), one.proof_of_listening(key))
    }

    assert len(proofs) == 4 * len(changed)


def test_connections_by_http_count_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """P11: strangers with half a request hold no more of them than there may be."""
    monkeypatch.setattr("goqueue.transport.cluster.server.ACCEPTED_MAX", 2)

    async def main() -> None:
        node = Node("a")
        node.server = ClusterServer(node, watcher=node, http=partial(PortRequest, PortStub()))
        await node.server.start("127.0.0.1:0")
        host, _, port = node.server.address.rpartition(":")
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for _, writer in strangers:
            writer.write(b"GET /x HTTP/1.1\r\n")
        async with asyncio.timeout(20):
            while b"overloaded" not in await heard(host, int(port)):
                pass
            reader, writer = strangers[0]
            writer.write(b"Host: localhost\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            while b"200 OK" not in await heard(host, int(port)):
                pass
        for _, writer in strangers:
            writer.close()
            await writer.wait_closed()
        await node.server.stop()

    asyncio.run(main())


async def heard(host: str, port: int) -> bytes:
    """Return what a whole request by HTTP is answered."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
