"""Nodes on a real etcd of three members, of which some die, pause and are compacted."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from goqueue.base.cluster_limits import RAFT_ENTRY_BYTES_MAX
from goqueue.base.errors import GoQueueError, NotLeaderError
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.etcd.client import EtcdClient
from goqueue.runtime.cluster.etcd.consensus import EtcdConsensus, EtcdConsensusConfig
from tests.acceptance.etcd_node import EtcdNode
from tests.acceptance.etcd_server import EtcdServers, needs_etcd
from tests.runtime.cluster.etcd.fleet import IndexedWords

pytestmark = [needs_etcd, pytest.mark.slow]
SECONDS_MAX = 90
FOUNDERS = (PeerId(1), PeerId(2), PeerId(3))


class Nodes:
    """Three nodes in this process."""

    def __init__(self, servers: EtcdServers) -> None:
        self._servers = servers
        self.nodes: dict[PeerId, EtcdConsensus] = {}
        self.machines: dict[PeerId, IndexedWords] = {}

    async def start(self, peer: PeerId, *, only: int | None = None) -> EtcdConsensus:
        """Start a node, on all members of etcd or on one."""
        config = EtcdConsensusConfig(
            peer=peer, founders=FOUNDERS, compact_batches=20, compact_bytes=1 << 30
        )
        self.machines[peer] = IndexedWords()
        client = EtcdClient(self._servers.config(only=only), first=peer)
        self.nodes[peer] = EtcdConsensus(config, client, self.machines[peer])
        await self.nodes[peer].start()
        return self.nodes[peer]

    async def stop(self, peer: PeerId) -> None:
        """Stop a node."""
        await self.nodes.pop(peer).stop()

    async def leader(self) -> EtcdConsensus:
        """Wait for a node that leads."""
        while True:
            for node in self.nodes.values():
                if node.leading.is_own:
                    return node
            await asyncio.sleep(0.01)

    async def agree(self) -> list[bytes]:
        """Wait until all nodes have applied the same; return it."""
        for node in self.nodes.values():
            await node.barrier()
        entries = [self.machines[peer].entries for peer in self.nodes]
        assert all(one == entries[0] for one in entries)
        return [word for _, word in entries[0]]


@asynccontextmanager
async def running(servers: EtcdServers) -> AsyncIterator[Nodes]:
    nodes = Nodes(servers)
    for peer in FOUNDERS:
        await nodes.start(peer)
    yield nodes
    for peer in list(nodes.nodes):
        assert nodes.nodes[peer].failure is None
        await nodes.stop(peer)


def run(directory: Path, scenario: Callable[[EtcdServers], Awaitable[None]]) -> None:
    """Run a scenario on an etcd of its own."""

    async def main(servers: EtcdServers) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario(servers)

    with EtcdServers(directory) as servers:
        asyncio.run(main(servers))


def test_nothing_is_lost_while_members_of_etcd_die(tmp_path: Path) -> None:
    """One of three at a time, its leader first: accepted is once there, refused never."""

    async def scenario(servers: EtcdServers) -> None:
        async with running(servers) as nodes:
            accepted: dict[bytes, int] = {}
            refused: set[bytes] = set()

            async def propose(number: int) -> None:
                word = b"w%d" % number
                try:
                    accepted[word] = (await (await nodes.leader()).propose(word)).index
                except NotLeaderError:
                    refused.add(word)
                except GoQueueError:
                    pass

            async def disturb() -> None:
                for _ in range(3):
                    member = servers.leader
                    servers.kill(member)
                    await asyncio.sleep(2)
                    servers.start(member)
                    await asyncio.to_thread(servers.wait)
                    await asyncio.sleep(1)

            disturbing = asyncio.create_task(disturb())
            number = 0
            while not disturbing.done():
                await asyncio.gather(*(propose(number + at) for at in range(5)))
                number += 5
                await asyncio.sleep(0.01)
            await disturbing
            words = await nodes.agree()

            places = {word: index for index, word in nodes.machines[FOUNDERS[0]].entries}
            assert len(places) == len(words)
            assert {word: places.get(word) for word in accepted} == accepted
            assert not refused & places.keys()
            assert len(accepted) > 100

    run(tmp_path, scenario)


def test_a_node_goes_on_behind_a_compaction(tmp_path: Path) -> None:
    """One whose watch broke, and one that starts, read the snapshot and the log behind it."""

    async def scenario(servers: EtcdServers) -> None:
        async with running(servers) as nodes:
            leader = await nodes.leader()
            first, second = (peer for peer in FOUNDERS if nodes.nodes[peer] is not leader)
            await nodes.stop(first)
            await nodes.stop(second)
            member = next(at for at in range(3) if at != servers.leader)
            await nodes.start(first, only=member)
            await leader.propose(b"before")
            await nodes.nodes[first].barrier()
            servers.kill(member)
            for at in range(50):
                await leader.propose(b"%d" % at)
            status = await asyncio.to_thread(servers.post, "/v3/maintenance/status", {})
            header = status["header"]
            assert isinstance(header, dict)
            await servers.compact(int(header["revision"]))
            servers.start(member)
            await asyncio.to_thread(servers.wait)
            await nodes.start(second)
            words = [b"before", *(b"%d" % at for at in range(50))]

            assert await nodes.agree() == words
            assert nodes.machines[first].restored == 2
            assert len(nodes.machines[second].leaders) > 0

    run(tmp_path, scenario)


def test_a_log_of_the_largest_proposals_is_read(tmp_path: Path) -> None:
    """As many at once as etcd and we can take."""

    async def scenario(servers: EtcdServers) -> None:
        async with running(servers) as nodes:
            leader = await nodes.leader()
            other = next(peer for peer in FOUNDERS if nodes.nodes[peer] is not leader)
            await nodes.stop(other)
            words = [b"%d" % (at % 10) * RAFT_ENTRY_BYTES_MAX for at in range(14)]
            for word in words:
                await leader.propose(word)
            await nodes.start(other)

            assert await nodes.agree() == words

    run(tmp_path, scenario)


async def leading(nodes: dict[int, EtcdNode]) -> int:
    """Wait for a node that leads; return it."""
    while True:
        for peer, node in nodes.items():
            if (await node.ask())["is_own"]:
                return peer
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("deed", ["pause", "kill"])
def test_a_leader_that_is_gone_is_replaced(tmp_path: Path, deed: str) -> None:
    """One that was paused for longer than its lease writes nothing when it goes on."""

    async def scenario(servers: EtcdServers) -> None:
        url = f"etcd://{servers.endpoints}/goqueue"
        nodes = {peer: EtcdNode(url, peer, founders=3) for peer in (1, 2, 3)}
        try:
            old = await leading(nodes)
            gone = nodes.pop(old)
            before = await gone.ask(propose="before")
            begun = time.monotonic()
            gone.pause() if deed == "pause" else gone.kill()
            new = await leading(nodes)
            after = await nodes[new].ask(propose="after")
            assert time.monotonic() - begun < 20
            assert after["index"] == before["index"] + 1
            if deed == "pause":
                gone.resume()
                assert await gone.ask(propose="late") == {"error": "not_leader"}
                nodes[old] = gone
            else:
                nodes[old] = EtcdNode(url, old, founders=3)
            await asyncio.sleep(3)
            states = [await node.ask(barrier=True) for node in nodes.values()]

            words = [[word for _, word in state["entries"]] for state in states]
            assert words == [["before", "after"]] * 3
            assert {state["leader"] for state in states} == {new}
        finally:
            for node in (*nodes.values(), gone):
                node.resume()
                node.kill()

    run(tmp_path, scenario)
