"""What is still among the dead letters: a ledger for each partition of their topics.

What has gone back or was thrown away is settled there. The key of a ledger names the life of its
topic, so that one that is deleted and made anew begins with nothing.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from goqueue.base.errors import NotCoordinatorError, NotLeaderError, TopicNotFoundError
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.events import GONE, Dropped, Event
from goqueue.core.delivery.ledger import OUTCOME_INDEX, Ledger
from goqueue.core.delivery.runs import runs_of
from goqueue.core.dlq.names import DLQ_GROUP, is_dlq
from goqueue.observability.logging import get_logger
from goqueue.runtime.led_partitions import led_partitions
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import (
    MOVED,
    UNLOADED,
    MachineHost,
    StateJournal,
    StatePart,
    forget,
)
from goqueue.runtime.message_counts import absent_between, count_between

KEY_PREFIX: Final = "dlq/"

log = get_logger("goqueue.dlq")


class DeadLetterIndex:
    """The dead letters of one partition."""

    group = DLQ_GROUP

    def __init__(self, partition: Partition, *, life: int, state: StateJournal) -> None:
        self.partition = partition
        self.ledger = Ledger(origin=Offset(0), by_key=False)
        key = f"{KEY_PREFIX}{partition.name.topic}/{life}/{partition.name.partition}"
        home = state.home_of(partition.name.topic, partition.name)
        self.host = MachineHost[Event](state, key, home=home, machine=self.ledger)
        self.host.load(Event)

    def __repr__(self) -> str:
        return f"<DeadLetterIndex {self.name}: {self.depth} left>"

    @property
    def name(self) -> TopicPartition:
        """Which partition it is."""
        return self.partition.name

    @property
    def is_closed(self) -> bool:
        """Return True if the partition is gone, or its shelf not hosted here any more."""
        return self.host.closed is not None

    def commit(self, events: Sequence[Event]) -> None:
        """Write events and make them true."""
        self.host.commit(events)

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        return self.host.durable()

    def forget(self) -> None:
        """Write that the partition is gone."""
        self.host.close(TopicNotFoundError("the topic is gone"))
        self.host.forget_soon()

    @property
    def depth(self) -> int:
        """Return how many dead letters there are."""
        queue = self.partition.queue
        if queue.hidden:
            return len(self.left())
        return count_between(queue, *self._range(), without=self.ledger.done)

    def left(self, *, from_offset: int = 0, end_offset: int | None = None) -> BitMap64:
        """Return the dead letters there are, from an offset on."""
        start, end = self._range()
        window = BitMap64()
        start = max(start, from_offset)
        end = end if end_offset is None else min(end, end_offset)
        if start < end:
            window.add_range(start, end)
        window -= self.ledger.done
        # What somebody published here with a delay or in a transaction is not there yet, or never.
        queue = self.partition.queue
        return window - queue.hidden - absent_between(queue, start, end)

    def settled(self, outcome: str) -> int:
        """Return how many ever left in a way."""
        return self.ledger.outcomes[OUTCOME_INDEX[outcome]]

    def trim(self) -> None:
        """Forget what retention has deleted, so that the ledger stays small."""
        start = self.partition.log.start_offset
        if self.ledger.committed < start:
            self.host.commit([Dropped(offsets=[self.ledger.committed, start], outcome=GONE)])

    async def drop(self, offsets: BitMap64, outcome: str) -> None:
        """Settle dead letters without moving them."""
        self.commit([Dropped(offsets=runs_of(offsets), outcome=outcome)])
        await self.durable()

    def _range(self) -> tuple[int, int]:
        start = max(self.partition.log.start_offset, self.ledger.committed)
        return start, max(self.partition.visible_offset, start)


class DeadLetterIndexes:
    """The shelves of every topic of dead letters, made when they are first looked at."""

    def __init__(self, topics: Mapping[TopicName, Topic], *, state: StateJournal) -> None:
        self._topics = topics
        self._state = state
        self._shelves: dict[TopicPartition, DeadLetterIndex] = {}

    def __repr__(self) -> str:
        return f"<DeadLetterIndexes of {len(self._shelves)} partitions>"

    def of(self, topic: Topic) -> list[DeadLetterIndex]:
        """Return the shelves of a topic, one for each partition."""
        return [self.at(topic, partition) for partition in topic.partitions]

    def led(self, topic: Topic) -> list[DeadLetterIndex]:
        """Return the shelves of the partitions of a topic that are led here."""
        return [self.at(topic, partition) for partition in led_partitions(self._state, topic)]

    def at(self, topic: Topic, partition: Partition) -> DeadLetterIndex:
        """Return the shelf of a partition, or raise if it is not loaded here."""
        known = self._shelves.get(partition.name)
        if known is None or known.partition is not partition:
            life = topic.record.created_ms
            known = DeadLetterIndex(partition, life=life, state=self._state)
            self._shelves[partition.name] = known
        return known

    def depth(self, topic: Topic) -> int:
        """Return how many dead letters a topic has in the partitions that are led here."""
        return sum(shelf.depth for shelf in self.led(topic))

    def depths(self) -> dict[TopicName, int]:
        """Return how many dead letters every topic of them has."""
        found: dict[TopicName, int] = {}
        for name in filter(is_dlq, sorted(self._topics)):
            with contextlib.suppress(NotCoordinatorError, NotLeaderError):
                found[name] = self.depth(self._topics[name])
        return found

    def forget(self, topic: Topic) -> None:
        """Take notice that a topic is gone."""
        for partition in topic.partitions:
            shelf = self._shelves.pop(partition.name, None)
            if shelf is not None:
                shelf.forget()

    def load(self, part: StatePart) -> None:
        """Forget shelves of topics that are gone; the others are made when they are looked at."""
        for key in self._state.keys(KEY_PREFIX, part):
            _, name, life, number = key.split("/")
            topic = self._topics.get(TopicName(name))
            if topic is None or str(topic.record.created_ms) != life:
                place = TopicPartition(TopicName(name), PartitionId(int(number)))
                forget(self._state, key, home=self._state.home_of(name, place))

    def unload(self, part: StatePart) -> None:
        """Let go of the shelves of a part."""
        for place, shelf in list(self._shelves.items()):
            if self._state.is_in(shelf.host.home, part):
                del self._shelves[place]
                shelf.host.close(UNLOADED if isinstance(part, int) else MOVED)
