"""The topics of a broker: made, configured, deleted, and those that hold the broker's own state."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from goqueue.base.errors import (
    GoQueueError,
    NodeRefusedError,
    OperationActiveError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import TopicName
from goqueue.base.units import MiB
from goqueue.core.topics import catalog
from goqueue.core.topics.settings import COMPACT
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.log.topic_files import remove_topic_files
from goqueue.runtime.log.topic_opening import PARTITIONS_AT_ONCE, TopicOpening
from goqueue.runtime.machine import Journal, MachineHost
from goqueue.storage.disk import Disk

KEY = "catalog"
STATE_SEGMENT_BYTES = 4 * MiB
"""Small, because what lies in the segment that takes appends is not compacted."""

log = get_logger("goqueue.broker")


class TopicHooks(NamedTuple):
    """How topics are opened, and who is told of those that came and went."""

    opening: Callable[[catalog.Topic], TopicOpening]
    open: Callable[[catalog.Topic, TopicOpening], Topic]
    created: Callable[[Topic], None]
    changed: Callable[[Topic], None]
    grown: Callable[[Topic, int], None]
    deleted: Callable[[TopicName, Topic | None], None]


class Catalogue:
    """Hosts the catalogue of topics and keeps those that are open."""

    def __init__(self, disk: Disk, journal: Journal, clock: Clock, hooks: TopicHooks) -> None:
        self.catalog = catalog.Catalog()
        self.host = MachineHost[catalog.Event](journal, KEY, home=KEY, machine=self.catalog)
        self.topics: dict[TopicName, Topic] = {}
        self.openings: dict[TopicName, TopicOpening] = {}
        """Topics of the broker's own that are being made."""
        self.check_known: Callable[[str], None] = _nothing
        """Raises an error that may be repeated if a topic that is not open here may exist."""
        self._scaling: set[TopicName] = set()
        """Topics to which partitions are being added."""
        self._disk = disk
        self._clock = clock
        self._hooks = hooks

    def __repr__(self) -> str:
        return f"<Catalogue: {len(self.topics)} of {len(self.catalog)} topics are open>"

    def get(self, name: str) -> Topic:
        """Return an open topic or raise."""
        topic = self.topics.get(TopicName(name))
        if topic is None:
            self.host.check()
            self.check_known(name)
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        return topic

    def report_strangers(self) -> None:
        """Say which folders hold messages of topics that the catalogue does not know."""
        known = self.catalog.topics.keys() | self.catalog.deleted
        for parent in ("logs", "state"):
            for name in self._disk.list_directory(parent):
                if name not in known:
                    log.error(LogEvent.UNKNOWN_FOLDER, folder=f"{parent}/{name}")

    def remove_deleted(self) -> None:
        """Remove the files of topics that were deleted just before a stop."""
        for name in self.catalog.deleted:
            self._remove_files(name)

    # Making.

    def create(
        self,
        name: object,
        *,
        partitions: int,
        settings: Mapping[str, object],
        by_broker: bool = False,
    ) -> Topic:
        """Make a topic, durably."""
        opening = self._begin(name, partitions, settings, by_broker=by_broker)
        with self._taken_back(opening):
            return self._finish(opening)

    async def make(self, name: object, *, partitions: int, settings: Mapping[str, object]) -> Topic:
        """Make a topic, durably; a large one bit by bit, so that others are answered meanwhile."""
        if partitions <= PARTITIONS_AT_ONCE:
            return self.create(name, partitions=partitions, settings=settings)
        # Whoever asked may go away; the topic is made all the same.
        return await asyncio.shield(self._make(self._begin(name, partitions, settings)))

    async def _make(self, opening: TopicOpening) -> Topic:
        with self._taken_back(opening):
            await opening.go_on(lambda: self._check_wanted(opening.record))
            topic = self._finish(opening)
        topic.configure(self.catalog.get(opening.record.name))
        return topic

    def _check_wanted(self, record: catalog.Topic) -> None:
        self.host.check()
        if self.catalog.get(record.name).created_ms != record.created_ms:
            raise TopicNotFoundError(f"{record.name} was deleted while it was made")

    @contextlib.contextmanager
    def _taken_back(self, opening: TopicOpening) -> Iterator[None]:
        """Half a topic is none: if it fails, what was begun is taken back."""
        try:
            yield
        except GoQueueError:
            opening.abandon()
            with contextlib.suppress(GoQueueError):
                self._check_wanted(opening.record)
                self.host.commit(self.catalog.delete(opening.record.name).events)
                self._remove_files(opening.record.name)
            raise

    def _begin(
        self,
        name: object,
        partitions: int,
        settings: Mapping[str, object],
        *,
        by_broker: bool = False,
    ) -> TopicOpening:
        """Let the catalogue know a topic whose partitions are not open yet."""
        now_ms = self._clock.now_ms()
        decision = self.catalog.create(
            name, partitions=partitions, settings=settings, now_ms=now_ms, by_broker=by_broker
        )
        if self._disk.exists(f"logs/{decision.reply.name}"):
            raise StorageFailedError(
                f"logs/{decision.reply.name} exists in the data directory but the catalogue does"
                " not know it; move it away first"
            )
        self.host.commit(decision.events)
        return self._hooks.opening(decision.reply)

    def _finish(self, opening: TopicOpening) -> Topic:
        record = opening.record
        topic = self.open(opening)
        self._hooks.created(topic)
        log.info(LogEvent.TOPIC_CREATED, topic=record.name, partitions=record.partitions)
        return topic

    def open(self, opening: TopicOpening) -> Topic:
        """Serve a topic whose partitions are open."""
        topic = self._hooks.open(opening.record, opening)
        self.topics[opening.record.name] = topic
        self.openings.pop(opening.record.name, None)
        return topic

    # What the broker keeps its own state in.

    def open_state(self, name: TopicName, partitions: int) -> Topic:
        """Return a topic that holds the state of machines, made when it is first needed."""
        known = self.topics.get(name)
        if known is not None:
            return known
        return self._finish(self._begin_state(name, partitions))

    async def prepare_state(self, name: TopicName, partitions: int) -> bool:
        """Make such a topic while others are answered: fifty partitions take the disk a while.

        What fails in the middle goes on from there the next time. Returns False if it was there.
        """
        if name in self.topics:
            return False
        opening = self._begin_state(name, partitions)
        while name not in self.topics and not opening.is_whole:
            self.host.check()
            opening.step()
            await asyncio.sleep(0)
        if name in self.topics:
            return False
        self.open_state(name, partitions)
        return True

    def _begin_state(self, name: TopicName, partitions: int) -> TopicOpening:
        if name not in self.openings:
            settings = {
                "segment_bytes": STATE_SEGMENT_BYTES,
                "retention_ms": 0,
                "cleanup_policy": COMPACT,
            }
            self.openings[name] = self._begin(name, partitions, settings, by_broker=True)
        return self.openings[name]

    # Changing.

    def configure(self, name: str, changes: Mapping[str, object]) -> Topic:
        """Change settings of a topic, durably."""
        decision = self.catalog.configure(name, changes)
        self.host.check()
        self.host.commit(decision.events)
        topic = self.get(name)
        topic.configure(decision.reply)
        return topic

    async def scale(self, name: str, *, partitions: int) -> Topic:
        """Give a topic more partitions, durably; they are open before any message goes there."""
        record = self.catalog.scale(name, partitions=partitions, now_ms=self._now_ms()).reply
        topic = self.get(name)
        if record.name in self._scaling:
            raise OperationActiveError(f"partitions are being added to {name} already")
        self._scaling.add(record.name)
        # Finished all the same if the caller goes away: half of it is no state to be in.
        return await asyncio.shield(self._scale(topic, record))

    async def _scale(self, topic: Topic, record: catalog.Topic) -> Topic:
        opening, name = self._hooks.opening(record), record.name
        opening.keep(topic.partitions)
        known = len(topic.partitions)
        try:
            await opening.go_on(lambda: self._check_wanted(record))
            self.host.check()
            # No append between these: the ends are where keys begin to go elsewhere.
            ends = tuple(partition.log.end_offset for partition in topic.partitions)
            decision = self.catalog.scale(
                name, partitions=record.partitions, now_ms=self._now_ms(), ends=ends
            )
            self.host.commit(decision.events)
            opening.follow(decision.reply)
            self.grow(topic, opening)
        except BaseException:
            for partition in opening.partitions[known:]:
                partition.abandon()
            raise
        finally:
            self._scaling.discard(name)
        log.info(LogEvent.PARTITIONS_ADDED, topic=name, partitions=record.partitions)
        return topic

    def is_scaling(self, name: str) -> bool:
        """Return True while partitions are being added to a topic."""
        return TopicName(name) in self._scaling

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def delete(self, name: str) -> None:
        """Remove a topic with all its messages, durably."""
        decision = self.catalog.delete(name)
        self.host.commit(decision.events)
        topic = self.topics.pop(decision.reply.name, None)
        for partition in [*topic.partitions, *topic.states] if topic is not None else ():
            partition.abandon()
        self._hooks.deleted(decision.reply.name, topic)
        self._remove_files(decision.reply.name)
        log.info(LogEvent.TOPIC_DELETED, topic=name)

    # In a cluster, where its metadata says which topics there are.

    def check_clustered(self) -> None:
        """Refuse a data directory that a broker by itself has used: its topics would be lost."""
        if self.catalog.topics:
            raise NodeRefusedError(
                f"the data directory holds {len(self.catalog)} topics of a broker without a"
                " cluster; a node of a cluster begins with an empty one"
            )

    def adopt(self, opening: TopicOpening) -> Topic:
        """Serve a topic of the cluster whose partitions are open."""
        return self._finish(opening)

    def follow(self, topic: Topic, record: catalog.Topic) -> None:
        """Take settings of a topic that the cluster has changed."""
        topic.configure(record)
        self._hooks.changed(topic)

    def grow(self, topic: Topic, opening: TopicOpening) -> None:
        """Serve more partitions of a topic, which are open."""
        known = len(topic.partitions)
        topic.grow(opening)
        self._hooks.grown(topic, known)

    def drop(self, topic: Topic) -> None:
        """Remove a topic that the cluster has removed, with all its messages."""
        name = topic.record.name
        del self.topics[name]
        for partition in topic.partitions:
            partition.abandon()
        self._hooks.deleted(name, topic)
        remove_topic_files(self._disk, name)
        log.info(LogEvent.TOPIC_DELETED, topic=name)

    def _remove_files(self, name: TopicName) -> None:
        remove_topic_files(self._disk, name)
        self.catalog.apply(catalog.FilesRemoved(name=name))


def _nothing(_: str) -> None:
    """Know that a topic which is not open does not exist."""
