"""What is still among the dead letters: a ledger for each partition of their topics.

What has gone back or was thrown away is settled there. The key of a ledger names the life of its
topic, so that one that is deleted and made anew begins with nothing.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from goqueue.base.errors import NotCoordinatorError, TopicNotFoundError
from goqueue.base.ids import Offset, TopicName, TopicPartition
from goqueue.core.delivery.events import GONE, Dropped, Event
from goqueue.core.delivery.ledger import OUTCOME_INDEX, Ledger
from goqueue.core.delivery.runs import runs_of
from goqueue.core.dlq.names import DLQ_GROUP, is_dlq
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost, StateJournal, forget, homes_in
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
        self.host = MachineHost[Event](state, key, home=partition.name.topic, machine=self.ledger)
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
        self._shelves: dict[TopicName, tuple[Topic, list[DeadLetterIndex]]] = {}

    def __repr__(self) -> str:
        return f"<DeadLetterIndexes of {len(self._shelves)} topics>"

    def of(self, topic: Topic) -> list[DeadLetterIndex]:
        """Return the shelves of a topic, one for each partition."""
        name = topic.record.name
        known = self._shelves.get(name)
        if known is None or known[0] is not topic:
            life = topic.record.created_ms
            shelves = [
                DeadLetterIndex(partition, life=life, state=self._state)
                for partition in topic.partitions
            ]
            known = self._shelves[name] = (topic, shelves)
        return known[1]

    def depth(self, topic: Topic) -> int:
        """Return how many dead letters a topic has."""
        return sum(shelf.depth for shelf in self.of(topic))

    def depths(self) -> dict[TopicName, int]:
        """Return how many dead letters every topic of them has."""
        found: dict[TopicName, int] = {}
        for name in filter(is_dlq, sorted(self._topics)):
            with contextlib.suppress(NotCoordinatorError):
                found[name] = self.depth(self._topics[name])
        return found

    def forget(self, topic: Topic) -> None:
        """Take notice that a topic is gone."""
        known = self._shelves.pop(topic.record.name, None)
        for shelf in known[1] if known is not None else ():
            shelf.forget()

    def load(self, partition: int) -> None:
        """Forget shelves of topics that are gone; the others are made when they are looked at."""
        lives = {
            f"{KEY_PREFIX}{name}/{topic.record.created_ms}" for name, topic in self._topics.items()
        }
        for key in self._state.keys(KEY_PREFIX, partition):
            if key.rpartition("/")[0] not in lives:
                forget(self._state, key, home=key.split("/")[1])

    def unload(self, partition: int) -> None:
        """Let go of the shelves of a state partition."""
        for name in list(homes_in(self._state, partition, self._shelves)):
            for shelf in self._shelves.pop(name)[1]:
                shelf.host.close()
