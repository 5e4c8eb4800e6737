"""The replicas of one node: every partition that the image places here, followed or led.

Hosts the replica groups, the sessions between nodes and the journal of epochs. Roles follow the
image as soon as it knows this process: what an older one says is about an earlier process.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from goqueue.base.cluster_limits import REPLICA_LAG_MS
from goqueue.base.errors import GoQueueError, LeaderNotAvailableError
from goqueue.base.ids import (
    NodeEpoch,
    NodeId,
    Offset,
    PartitionId,
    TopicId,
    TopicName,
    TopicPartition,
)
from goqueue.base.names import is_internal
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster import events
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterTopic
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import (
    DATA_LOG,
    STATE_LOG,
    FetchAnswer,
    FetchPosition,
    IsrAnswer,
    LogId,
    LogKey,
)
from goqueue.observability.logging import get_logger
from goqueue.runtime.broker import Broker
from goqueue.runtime.clock import Clock
from goqueue.runtime.cluster.cluster_topics import ClusterTopics
from goqueue.runtime.cluster.copying import Copying
from goqueue.runtime.cluster.dropping import drop, has_messages
from goqueue.runtime.cluster.feeder import Feeds
from goqueue.runtime.cluster.fetcher import Fetcher
from goqueue.runtime.cluster.image_source import ImageSource, Propose
from goqueue.runtime.cluster.isr_proposals import IsrProposals, find_topic, replica_set
from goqueue.runtime.cluster.links import Handler, Links
from goqueue.runtime.cluster.repairs import Repairs
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.cluster.replica_notebook import ReplicaNotebook
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.storage.log_notes import Gap
from goqueue.storage.replica_journal import ReplicaJournal
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

TICK_MS: Final = SECOND_MS
"""How often leaders look for followers that lag, and lost proposals are sent again."""

WATERMARKS_EVERY_MS: Final = 5 * SECOND_MS
"""How often high watermarks are noted: a start that knows an older one waits for its replicas."""

ROLES_AT_ONCE: Final = 64
"""Partitions of a new topic that take their roles before others are answered."""

SESSION_SHIFT: Final = 32
"""A process numbers its sessions from its registration, so that later ones are larger."""

TOPIC_EVENTS: Final = (
    events.TopicPlaced,
    events.TopicSet,
    events.TopicRemoved,
    events.PartitionsPlaced,
    events.TopicsRestored,
)
"""After these a node has other topics, or other settings of them."""

log = get_logger("goqueue.replicas")


class Replicas:
    """Wires replica groups to their broker, the metadata and other nodes."""

    def __init__(
        self,
        broker: Broker,
        source: ImageSource,
        links: Links,
        *,
        identity: PeerIdentity,
        propose: Propose,
        check_live: Callable[[], None],
        lag_ms: int = REPLICA_LAG_MS,
    ) -> None:
        self.node, self.directory = identity.node, identity.directory
        self.clock: Clock = broker.clock
        self.lag_ms = lag_ms
        self.check_live = check_live
        self._broker = broker
        self._source = source
        self._links = links
        self._notebook: ReplicaNotebook | None = None
        self._groups: dict[TopicPartition, ReplicaGroup] = {}
        self._closing: dict[TopicPartition, asyncio.Task[None]] = {}
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._feeds = Feeds(self)
        self.repairs = Repairs(self, source, links, broker.disk)
        self._proposals = IsrProposals(source, propose, self.node, self._answered)
        self.topics = ClusterTopics(broker, source, self)
        self.heard, self.copied_bytes = self._feeds.heard, self._feeds.copied_bytes
        self._copying = Copying(source, self.node, self._feeds, self._groups, self.fetch_from)
        self._is_current = False
        self._noted_ms = 0
        self._ticking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Replicas of {self.node}: {len(self._groups)} groups>"

    # Life.

    async def start(self) -> None:
        """Open the topics of the image and follow it from now on."""
        self._notebook = ReplicaNotebook(ReplicaJournal(self._broker.disk))
        self._broker.catalogue.check_known = self._check_known
        self._source.watch(self._learn)
        self.topics.look_again()
        await self.topics.settled()
        self._ticking = asyncio.get_running_loop().create_task(self._tick())
        self._look_at_everything()
        self.repairs.start()

    async def stop(self) -> None:
        """Take no part any more; what is led here has to be given away before."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await self.topics.stop()
        await self._proposals.stop()
        await self.repairs.stop()
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
        await self._feeds.stop()
        await asyncio.gather(*(group.close() for group in self._groups.values()))
        await self._note_watermarks()
        await self.notebook.close()

    def handlers(self) -> Mapping[PeerOperation, Handler]:
        """Return what answers the requests of peers."""
        return {PeerOperation.REPLICA_FETCH: self._feeds.fetch, **self.repairs.handlers()}

    async def settled(self) -> None:
        """Return when the broker has the topics of the image as it is now, and its roles."""
        await self.topics.settled()
        for group in list(self._groups.values()):
            await group.settled()

    @property
    def groups(self) -> Mapping[TopicPartition, ReplicaGroup]:
        """The replica groups of this node."""
        return self._groups

    @property
    def notebook(self) -> ReplicaNotebook:
        """Where epochs are noted."""
        assert self._notebook is not None, "started"
        return self._notebook

    @property
    def node_epoch(self) -> NodeEpoch | None:
        """The registration of this process."""
        return self._source.node_epoch

    def now_ms(self) -> int:
        """Return steady milliseconds."""
        return self.clock.monotonic_ms()

    def _check_known(self, name: str) -> None:
        """Raise unless it is sure that a topic which is not open here does not exist."""
        if not self._is_current or find_topic(self._source.image, name) is not None:
            raise LeaderNotAvailableError(f"this node has not opened {name} yet")

    # The image.

    def _learn(self, news: Sequence[Event] | None) -> None:
        """Follow what was applied."""
        if news is None or any(isinstance(event, TOPIC_EVENTS) for event in news):
            self.topics.look_again()
        self._copying.look()
        if news is None or not self._is_current:
            self._look_at_everything()
            return
        for event in news:
            match event:
                case events.PartitionsChanged(changes=changes):
                    for topic_id, number, *_ in changes:
                        self._look_at(TopicId(topic_id), number)
                case events.MoveStepped(topic_id=topic_id, partition=number):
                    self._look_at(topic_id, number)
                case events.TopicSet(topic_id=topic_id) if topic_id in self._source.image.topics:
                    self._set(self._source.image.topics[topic_id])
                case _:
                    pass

    def registered(self) -> None:
        """Take the roles of the image, which knows this process from now on."""
        self._look_at_everything()

    def _look_at_everything(self) -> None:
        """Take every role of the image, if it knows this process."""
        known = self._source.image.nodes.get(self.node)
        epoch, was_current = self._source.node_epoch, self._is_current
        self._is_current = known is not None and epoch is not None and known.epoch == epoch
        if self._is_current and not was_current:
            # Only now is it sure that a topic which the image does not have is gone.
            self.topics.remove_strangers()
        if self._is_current:
            for topic in list(self._source.image.topics.values()):
                self._look_at_all(topic)

    def _look_at_all(self, topic: ClusterTopic) -> None:
        for number in range(len(topic.partitions)):
            self._look_at(topic.id, number)
        self._set(topic)

    def _set(self, topic: ClusterTopic) -> None:
        for number in range(len(topic.partitions)):
            group = self._groups.get(TopicPartition(topic.name, PartitionId(number)))
            if group is not None:
                group.set_min_insync(topic.replication.min_insync_replicas)

    def _look_at(self, topic_id: TopicId, number: int) -> None:
        """Take the role that the image says for one partition, once its topic is open."""
        # What was changed may be removed already: entries are applied several at a time.
        topic, here = self._source.image.topics.get(topic_id), self.topics.find(topic_id)
        if not self._is_current or topic is None or here is None or number >= len(here.partitions):
            return
        place = TopicPartition(topic.name, PartitionId(number))
        record = topic.partitions[number]
        group, is_placed = self._groups.get(place), self.node in record.replicas
        # What was placed elsewhere while this node was down is removed, too.
        is_missing = group is None and place not in self._closing
        if is_missing and (is_placed or has_messages(here, number)):
            group = self._groups[place] = self._open_group(here, place)
        if group is not None and is_placed:
            group.learn(replica_set(topic, record))
        elif group is not None:
            self._remove(group)

    def _open_group(self, topic: Topic, place: TopicPartition) -> ReplicaGroup:
        logs: dict[LogId, Partition | None] = {DATA_LOG: topic.partitions[place.partition]}
        if not is_internal(topic.record.name):
            logs[STATE_LOG] = topic.state_of(place.partition)
            topic.states.on_made = self._state_made
        return ReplicaGroup(topic, logs, self)

    async def topic_opened(self, topic: ClusterTopic) -> None:
        """Take the roles of a topic that was just opened, or has more partitions."""
        for number in range(len(topic.partitions)):
            if topic.id in self._source.image.topics:
                self._look_at(topic.id, number)
            if number % ROLES_AT_ONCE == ROLES_AT_ONCE - 1:
                await asyncio.sleep(0)

    async def topic_closes(self, name: TopicName) -> None:
        """Give up all replicas of a topic, durably: it is about to be removed."""
        groups = [group for place, group in self._groups.items() if place.topic == name]
        for group in groups:
            group.retire()
            del self._groups[group.place]
        await asyncio.gather(*(group.close() for group in groups))
        await self.notebook.forget(self.notebook.known(name))

    def _remove(self, group: ReplicaGroup) -> None:
        """Drop a replica that the controller has placed elsewhere."""
        place = group.place
        group.retire()
        del self._groups[place]
        task = asyncio.get_running_loop().create_task(drop(group, self.notebook))
        self._closing[place] = task
        task.add_done_callback(lambda _: self._removed(place))

    def _removed(self, place: TopicPartition) -> None:
        del self._closing[place]
        topic = find_topic(self._source.image, place.topic)
        if topic is not None and place.partition < len(topic.partitions):
            self._look_at(topic.id, place.partition)

    # Time.

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / SECOND_MS)
            if not self._is_current:
                self._look_at_everything()
            for group in list(self._groups.values()):
                group.tick()
            if self.now_ms() - self._noted_ms >= WATERMARKS_EVERY_MS:
                self._noted_ms = self.now_ms()
                with contextlib.suppress(GoQueueError):
                    await self._note_watermarks()

    async def _note_watermarks(self) -> None:
        watermarks: dict[LogKey, Offset] = {}
        for group in self._groups.values():
            for one in group.logs.values():
                if one.partition is not None and one.own.committed_offset != one.noted_offset:
                    watermarks[one.key] = one.noted_offset = one.own.committed_offset
        if watermarks:
            await self.notebook.note(watermarks=watermarks)

    # What groups and sessions ask of their node.

    def find_group(self, key: LogKey) -> ReplicaGroup | None:
        """Return the replica group of a log on this node."""
        return self._groups.get(key.group)

    def is_known(self, node: NodeId, node_epoch: NodeEpoch) -> bool:
        """Return True if this is the process of a node that the controller knows."""
        known = self._source.image.nodes.get(node)
        return self._is_current and known is not None and known.epoch == node_epoch

    def fetch_from(self, leader: NodeId | None, key: LogKey) -> None:
        """Fetch a log from a node, and from no other."""
        for node, fetcher in self._fetchers.items():
            if node != leader:
                fetcher.forget(key)
        if leader is None or self._copying.is_paused(key.group):
            return
        fetcher_of = self._fetchers.get(leader)
        if fetcher_of is None:
            first = (self._source.node_epoch or 0) << SESSION_SHIFT
            fetcher_of = Fetcher(leader, self._links, self, first_session=first)
            self._fetchers[leader] = fetcher_of
        fetcher_of.add(key)

    def position(self, key: LogKey) -> FetchPosition | None:
        """Return what this node has of a log, None if it does not follow."""
        group = self._groups.get(key.group)
        return None if group is None else group.position(key.log)

    async def take(
        self, sender: NodeId, key: LogKey, answer: FetchAnswer, frames: memoryview
    ) -> None:
        """Do what a leader's answer asks for."""
        group = self._groups.get(key.group)
        if group is not None:
            await group.take(sender, key.log, answer, frames)

    def position_changed(self, key: LogKey) -> None:
        """Report to the leader of a log what this node has of it."""
        for fetcher in self._fetchers.values():
            fetcher.touch(key)

    def log_grew(self, key: LogKey) -> None:
        """Send followers of a log what is new."""
        self._feeds.log_grew(key)

    def watermark_moved(self, key: LogKey) -> None:
        """Let followers of a log know its high watermark, or its start."""
        self._feeds.watermark_moved(key)

    def propose(self, place: TopicPartition, proposal: ProposeIsr) -> None:
        """Ask the controller to change the replicas in sync."""
        self._proposals.add(place, proposal)

    def _answered(self, place: TopicPartition, answer: IsrAnswer) -> None:
        group = self._groups.get(place)
        if group is not None:
            group.answered(answer)

    async def mend(self, key: LogKey, gap: Gap) -> Mending:
        """Put good frames of another replica in the place of damaged ones."""
        return await self.repairs.mend(key, gap)

    async def gain(self, place: TopicPartition) -> None:
        """Load the state that goes with a partition."""
        await self._broker.coordinators.gain(place)

    async def lose(self, place: TopicPartition) -> None:
        """Drop the state that goes with a partition."""
        await self._broker.coordinators.lose(place)

    def open_state(self, place: TopicPartition) -> Partition:
        """Make the state log of a partition that this node follows: frames of it have come."""
        return self._broker.topic(place.topic).states.open(place.partition)

    def _state_made(self, partition: Partition) -> None:
        """Replicate a state log that the leader of a partition has just made, empty."""
        group = self._groups.get(partition.name)
        if group is not None:
            group.state_made(partition)
