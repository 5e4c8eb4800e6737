"""Control planes under faults from a seed: kills, power cuts, pauses, isolation, wiped disks."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context

from goqueue.base.errors import GoQueueError
from goqueue.core.cluster.commands import AllocateIds, Command, CreateTopic
from goqueue.core.cluster.replies import IdsReply, Reply
from goqueue.runtime.cluster.node import Node
from tests.runtime.cluster.control_fleet import ControlFleet

STEPS = 14
HEAL_SECONDS = 60
REQUESTS = 3
NEW = "x"
"""The name of the node that joins."""


class ControlChaos:
    """Faults and proposals on a fleet; in the end everything heals and is compared."""

    def __init__(self, fleet: ControlFleet) -> None:
        self.fleet = fleet
        self.random = fleet.random
        self.down: set[str] = set()
        self.cut_off: set[str] = set()
        self.made: set[str] = set()
        """Topics whose creation was answered."""
        self.blocks: list[int] = []
        """The first ids of all blocks that were given."""
        self.is_wiped = False

    async def run(self) -> None:
        """Let faults and proposals happen, then heal."""
        for name in sorted(self.fleet.places, key=lambda _: self.random.random()):
            self.fleet.start(name)
            await asyncio.sleep(self.random.uniform(0, 3))
        for number in range(STEPS):
            self._begin_work(number)
            self.random.choice(self._faults())()
            await asyncio.sleep(self.random.choice((0.05, 0.5, 2, 12)) * self.random.random())
        await self._heal()

    def _faults(self) -> list[Callable[[], None]]:
        return [
            self._kill, self._kill, self._cut_power, self._isolate, self._pause,
            self._wipe, self._start, self._start, self._start, self._rejoin, self._reset,
            self._join,
        ]  # fmt: skip

    def _pick(self) -> str:
        return self.random.choice(sorted(self.fleet.places))

    def _kill(self) -> None:
        name = self._pick()
        if name not in self.down:
            self.fleet.kill(name)
            self.down.add(name)

    def _cut_power(self) -> None:
        name = self._pick()
        if name not in self.down:
            self.fleet.cut_power(name)
            self.down.add(name)

    def _join(self) -> None:
        """Have one more node join, once all founders are registered."""
        founders = len(self.fleet.places)
        is_founded = any(len(one.metadata.image.nodes) == founders for one in self.fleet.running)
        if is_founded and NEW not in self.fleet.places:
            known = self._pick()
            self.fleet.add(NEW)
            self.fleet.start(NEW, config=self.fleet.config(NEW, [known, NEW]))

    def _wipe(self) -> None:
        """Empty one disk; a second one would be owed nothing."""
        name = self._pick()
        is_founded = any(one.metadata.image.nodes for one in self.fleet.running)
        if self.down == {name} and is_founded and self._is_whole(name):
            self.fleet.wipe(name)
            self.is_wiped = True

    def _is_whole(self, name: str) -> bool:
        """Return True if the others have a majority that lost nothing."""
        others = [one for one in self.fleet.running if one.node != name]
        return len(others) == len(self.fleet.places) - 1 and all(
            one.is_live and len(one.quorum.members.voters) == len(self.fleet.places)
            for one in others
        )

    def _start(self) -> None:
        if self.down:
            name = self.random.choice(sorted(self.down))
            self.fleet.start(name)
            self.down.discard(name)
            self.cut_off.discard(name)

    def _isolate(self) -> None:
        name = self._pick()
        if name not in self.down:
            self.fleet.isolate(name)
            self.cut_off.add(name)

    def _rejoin(self) -> None:
        for name in sorted(self.cut_off - self.down):
            self.fleet.heal(name)
        self.cut_off.clear()

    def _pause(self) -> None:
        name = self._pick()
        if name not in self.down:
            self.fleet.pause(name, self.random.choice((0.3, 3, 12)))

    def _reset(self) -> None:
        self.fleet.simulation.network.reset_some(30)

    # Proposals.

    def _begin_work(self, number: int) -> None:
        for place in range(REQUESTS):
            running = [one for one in self.fleet.running if self._is_at_work(one)]
            if running:
                self._propose(self.random.choice(running), f"t{number}-{place}")

    def _is_at_work(self, node: Node) -> bool:
        host = self.fleet.places[node.node].host
        now = self.fleet.simulation.loop.time()
        return node.is_live and host is not None and host.paused_until <= now

    def _propose(self, node: Node, topic: str) -> None:
        """Ask on a node; what its process does not live to answer is not known."""
        host = self.fleet.places[node.node].host
        assert host is not None
        command: Command = AllocateIds(kind="producer")
        if self.random.random() < 0.5:
            command = CreateTopic(name=topic, partitions=3)

        def answered(task: asyncio.Task[Reply]) -> None:
            if task.cancelled() or isinstance(task.exception(), GoQueueError):
                return
            reply = task.result()
            if isinstance(reply, IdsReply):
                self.blocks.append(reply.first)
            else:
                self.made.add(topic)

        task = host.begin(node.proposing.propose(command))
        task.add_done_callback(answered, context=copy_context())

    # The end.

    async def _heal(self) -> None:
        self._rejoin()
        while self.down:
            self._start()
        await self.fleet.all_alive(seconds=HEAL_SECONDS)
        for name in list(self.fleet.places):
            place = self.fleet.places[name]
            assert place.failure is None, place.failure
        await self.fleet.propose("a", CreateTopic(name="last", partitions=3))
        await self.fleet.agree()
        image = self.fleet.node("a").metadata.image
        topics = {str(topic.name) for topic in image.topics.values()}
        assert self.made <= topics, f"lost: {self.made - topics}"
        assert len(set(self.blocks)) == len(self.blocks), "a block was given twice"
        records = [one for topic in image.topics.values() for one in topic.partitions]
        # Nothing replicates here, so an emptied disk may have been the last that was in sync.
        assert self.is_wiped or all(record.leader_id is not None for record in records)
