"""Proposals with unique words, what became of each, and what must hold of them at the end."""

import asyncio

from goqueue.base.errors import DeadlineExceededError, GoQueueError, NotLeaderError
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.etcd.records import EtcdKeys, decode_batch
from goqueue.testing.etcd import MemoryEtcd
from tests.runtime.cluster.etcd.fleet import EtcdFleet


class ProposalHistory:
    """Proposes at nodes that believe to lead, and remembers the answers."""

    def __init__(self, fleet: EtcdFleet) -> None:
        self._fleet = fleet
        self._count = 0
        self.accepted: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.doubtful: set[bytes] = set()

    async def propose(self, peer: PeerId) -> None:
        """Propose a new word at a node."""
        self._count += 1
        word = b"w%d" % self._count
        try:
            outcome = await self._fleet.node(peer).propose(word)
        except NotLeaderError:
            self.refused.add(word)
        except (DeadlineExceededError, GoQueueError):
            self.doubtful.add(word)
        else:
            self.accepted[word] = outcome.index

    async def propose_for(self, seconds: float, workers: int) -> None:
        """Propose from many tasks at once, wherever a node says that it leads."""
        end = self._fleet.simulation.loop.time() + seconds

        async def work() -> None:
            while self._fleet.simulation.loop.time() < end:
                running = self._fleet.running
                for peer in running:
                    # It may be killed while another one is asked.
                    if peer in self._fleet.running and self._fleet.node(peer).leading.is_own:
                        await self.propose(peer)
                await asyncio.sleep(self._fleet.random.uniform(0.001, 0.05))

        await asyncio.gather(*(work() for _ in range(workers)))

    def check(self, entries: list[tuple[int, bytes]]) -> None:
        """Each accepted word is there once, at its index; a refused one is not."""
        places = {word: index for index, word in entries}

        assert len(places) == len(entries), "no word twice"
        assert not self.refused & places.keys()
        assert {word: places.get(word) for word in self.accepted} == self.accepted
        assert places.keys() <= self.accepted.keys() | self.doubtful


def check_writes(model: MemoryEtcd, keys: EtcdKeys) -> int:
    """Every batch was written while its writer led, behind the one before; return how many."""
    leader, index, batches = 0, 0, 0
    for event in model.changes(*keys.feed, start_revision=model.compacted):
        at = keys.index_in(event.key)
        if event.key == keys.leader:
            leader = event.modified_at if event.value is not None else 0
        elif at is not None and event.value is not None:
            batch = decode_batch(event.value)
            assert batch.term == leader, "only the leader writes"
            assert at == index + 1 or not index, "without a gap"
            index = at + len(batch.items) - 1
            batches += 1
    return batches
