"""Which state partitions are here: all after a start; any may be unloaded and loaded again.

What is decided about a name (a group, a transactional id, a topic's delays and dead letters, a
schedule, the schemas) is decided where its state partition is loaded. Unloading refuses first, in
one step; then what was begun is ended and what was written becomes durable, so that the next
load of the partition finds all of it. Loading is what a start does, for one partition.
"""

import asyncio
from typing import NamedTuple, Protocol

from goqueue.base.ids import TopicPartition
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.dlq.dead_letters import DeadLetters
from goqueue.runtime.dlq.redrive import Redrives
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.ledgers import Ledgers
from goqueue.runtime.recurring.schedules import Schedules
from goqueue.runtime.schedule.delays import Delays
from goqueue.runtime.state_log import StateLog
from goqueue.runtime.tx.transactions import Transactions

log = get_logger("goqueue.state")
Tasks = list[asyncio.Task[None]]


class QueueState(NamedTuple):
    """Groups, and what is kept beside them."""

    groups: Groups
    ledgers: Ledgers
    delays: Delays
    schedules: Schedules
    redrives: Redrives
    dead_letters: DeadLetters
    transactions: Transactions

    def load(self, partition: int) -> None:
        """Host what a partition has."""
        self.groups.load(partition)
        self.delays.load(partition)
        self.ledgers.load(partition)
        self.redrives.load(partition)
        self.schedules.load(partition)
        self.groups.follow(partition)
        self.redrives.resume(partition)
        # A transaction may have ended that holds messages of a ledger here.
        self.transactions.look_for_strays()

    def unload(self, partition: int) -> Tasks:
        """Host it no longer; return what is to be waited for."""
        self.groups.unload(partition)
        ended = self.dead_letters.drop(self.ledgers.unload(partition))
        self.delays.unload(partition)
        return ended + self.schedules.unload(partition) + self.redrives.unload(partition)


class Hosts(Protocol):
    """Whoever hosts the machines of a state topic."""

    def load(self, partition: int) -> None:
        """Host what a partition has."""
        ...

    def unload(self, partition: int) -> Tasks:
        """Host it no longer; return what is to be waited for."""
        ...


class Coordinators:
    """Loads and unloads the partitions of state topics, one at a time."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[StateLog, Hosts]] = {}
        self._gained: set[TopicPartition] = set()
        # Guards the order: a partition is loaded only when its unloading is over.
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Coordinators of {', '.join(self._parts)}>"

    def add(self, topic: str, log_of: StateLog, hosts: Hosts) -> None:
        """Take in a state topic."""
        self._parts[topic] = (log_of, hosts)

    def partitions(self) -> list[tuple[str, int]]:
        """Return every state partition, by topic and number."""
        return [(topic, n) for topic, (known, _) in self._parts.items() for n in known.partitions]

    async def unload(self, topic: str, partition: int) -> None:
        """Refuse what needs a partition; return when all that was written to it is durable."""
        state, hosts = self._parts[topic]
        async with self._turn:
            ended = hosts.unload(partition)
            state.unload(partition)
            await asyncio.gather(*ended, return_exceptions=True)
            await state.drain(partition)
            log.info(LogEvent.STATE_UNLOADED, topic=topic, partition=partition)

    async def load(self, topic: str, partition: int) -> None:
        """Read a partition and host what it has."""
        state, hosts = self._parts[topic]
        async with self._turn:
            state.load(partition)
            hosts.load(partition)
            log.info(LogEvent.STATE_LOADED, topic=topic, partition=partition)

    # In a cluster state comes and goes with the leadership of its partition.

    def attach(self, topic: Topic) -> None:
        """Take a state topic that the cluster has made."""
        known = self._parts.get(topic.record.name)
        if known is not None:
            known[0].start(topic)

    async def gain(self, place: TopicPartition) -> None:
        """Host what goes with a partition that this node leads from now on."""
        if place.topic in self._parts:
            self._gained.add(place)
            await self.load(place.topic, place.partition)

    async def lose(self, place: TopicPartition) -> None:
        """Drop all state of a partition that this node leads no longer; it refuses already."""
        if place in self._gained:
            self._gained.discard(place)
            await self.unload(place.topic, place.partition)
