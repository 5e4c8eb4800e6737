"""Which state partitions are here: all after a start; any may be unloaded and loaded again.

What is decided about a name (a group, a transactional id, a topic's delays and dead letters, a
schedule, the schemas) is decided where its state partition is loaded. Unloading refuses first, in
one step; then what was begun is ended and what was written becomes durable, so that the next
load of the partition finds all of it. Loading is what a start does, for one partition.

In a cluster what is decided about messages is kept beside them (``state_beside.py``), and is loaded
and unloaded with the leadership of their partition: ``gain`` and ``lose``.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from goqueue.base.errors import TopicNotFoundError
from goqueue.base.ids import TopicName, TopicPartition
from goqueue.core.dlq.names import is_dlq
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.dlq.dead_letters import DeadLetters
from goqueue.runtime.dlq.redrive import Redrives
from goqueue.runtime.groups.group_views import GroupViews
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.log.lost_tails import skip_lost_tail
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.partition_reads import repair_known
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StatePart
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.recurring.schedules import Schedules
from goqueue.runtime.schedule.delays import Delays
from goqueue.runtime.state_log import STATE_TOPIC, StateLog
from goqueue.runtime.tx.transactions import Transactions

log = get_logger("goqueue.state")
Tasks = list[asyncio.Task[None]]


class QueueState(NamedTuple):
    """Groups, and what is kept beside them."""

    groups: Groups
    consume: Consumption
    delays: Delays
    schedules: Schedules
    redrives: Redrives
    dead_letters: DeadLetters
    transactions: Transactions
    views: GroupViews | None = None

    def load(self, partition: int) -> None:
        """Host what a partition has."""
        self.groups.load(partition)
        if self.views is not None:
            self.views.drop_hosted()
        self.delays.load(partition)
        self.consume.ledgers.load(partition)
        self.redrives.load(partition)
        self.schedules.load(partition)
        self.groups.follow(partition)
        self.redrives.resume(partition)
        # A transaction may have ended that holds messages of a ledger here.
        self.transactions.look_for_strays()

    def unload(self, partition: int) -> Tasks:
        """Host it no longer; return what is to be waited for."""
        self.groups.unload(partition)
        ended = self.dead_letters.drop(self.consume.ledgers.unload(partition))
        self.delays.unload(partition)
        if self.views is not None:
            self.views.want_all(self.consume.ledgers.groups_in(partition))
        return ended + self.schedules.unload(partition) + self.redrives.unload(partition)

    def load_beside(self, topic: Topic, partition: Partition) -> None:
        """Host what is kept beside a partition of messages."""
        place, ledgers = partition.name, self.consume.ledgers
        self.redrives.load(place)
        shelves = self.redrives.shelves
        shelf = shelves.at(topic, partition) if is_dlq(place.topic) else None
        self.delays.load(place)
        ledgers.load(place)
        # Before anything is appended.
        skip_lost_tail(partition, [*ledgers, *ledgers.asleep], shelf)
        self.consume.note_places()
        self.transactions.look_for_strays()

    def unload_beside(self, place: TopicPartition) -> Tasks:
        """Host it no longer; return what is to be waited for."""
        ended = self.dead_letters.drop(self.consume.ledgers.unload(place))
        self.delays.unload(place)
        self.redrives.unload(place)
        self.consume.note_places()
        return ended


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

    def __init__(self, topics: Mapping[TopicName, Topic], queue: QueueState) -> None:
        self._topics = topics
        self._queue = queue
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

    # In a cluster state comes and goes with the leadership of its partition.

    def attach(self, topic: Topic) -> None:
        """Take a state topic that the cluster has made."""
        known = self._parts.get(topic.record.name)
        if known is not None:
            known[0].start(topic)

    async def gain(self, place: TopicPartition) -> None:
        """Host what is decided by the leader of a partition: this node leads it now."""
        if place.topic in self._parts:
            self._gained.add(place)
            await self.load(place.topic, place.partition)
            return
        async with self._turn:
            topic, (state, _) = self._topics.get(place.topic), self._parts[STATE_TOPIC]
            own = None if topic is None else topic.state_of(place.partition)
            if own is not None:
                await _read_whole(state, place, own)
            self.gain_at_once(place)
            log.info(LogEvent.STATE_LOADED, topic=place.topic, partition=place.partition)

    def gain_at_once(self, place: TopicPartition) -> None:
        """Do the same for a partition of messages, without waiting for a turn: at a start."""
        topic = self._topics.get(place.topic)
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {place.topic}")
        state, _ = self._parts[STATE_TOPIC]
        self._gained.add(place)
        if not state.is_loaded(place):
            state.load(place)
        self._queue.load_beside(topic, topic.partition(place.partition))

    async def lose(self, place: TopicPartition) -> None:
        """Host it no longer: refuse first, then drop everything that is known of it."""
        if place not in self._gained:
            return
        self._gained.discard(place)
        if place.topic in self._parts:
            await self.unload(place.topic, place.partition)
            return
        state, _ = self._parts[STATE_TOPIC]
        async with self._turn:
            ended = self._queue.unload_beside(place)
            state.unload(place)
            await asyncio.gather(*ended, return_exceptions=True)
            await state.drain(place)
            log.info(LogEvent.STATE_UNLOADED, topic=place.topic, partition=place.partition)

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
            known = self._topics.get(TopicName(topic))
            if known is None:
                state.load(partition)
            else:
                await _read_whole(state, partition, known.partition(partition))
            hosts.load(partition)
            log.info(LogEvent.STATE_LOADED, topic=topic, partition=partition)


async def _read_whole(state: StateLog, part: StatePart, own: Partition) -> None:
    """Read a part of the state; what is found damaged is repaired and read again.

    Without another replica that has it, the state is what can be read, as after any damage.
    """
    await repair_known(own)
    known = own.log.recovery.gaps
    state.load(part)
    if own.log.recovery.gaps != known and own.leadership.replication is not None:
        state.unload(part)
        await repair_known(own)
        state.load(part)
