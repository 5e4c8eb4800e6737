"""The broker: every topic of one data directory, and the few calls transports translate into."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from goqueue.base.errors import ShuttingDownError
from goqueue.base.ids import TopicName
from goqueue.base.units import KiB
from goqueue.config.model import BrokerConfig
from goqueue.core.topics import catalog
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import Metrics
from goqueue.observability.schema_metrics import SchemaMetrics
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime import broker_life
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock, SystemClock
from goqueue.runtime.commit import Committer, SyncPool
from goqueue.runtime.coordinators import Coordinators, Hosts, QueueState
from goqueue.runtime.dlq.dead_letters import DeadLetters
from goqueue.runtime.dlq.moves import Mover
from goqueue.runtime.dlq.redrive import Redrives
from goqueue.runtime.forwarding import Forwarding
from goqueue.runtime.groups.group_views import views_of
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.log.catalogue import Catalogue, TopicHooks
from goqueue.runtime.log.compactor import Compactor
from goqueue.runtime.log.forwarded_topic import ForwardedTopic
from goqueue.runtime.log.gauges import storage_metrics
from goqueue.runtime.log.partitions_start import PartitionsStart
from goqueue.runtime.log.producer_blocks import producer_ids_of
from goqueue.runtime.log.producers import Producers
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.log.topic_files import DELETING_DIRECTORY
from goqueue.runtime.log.topic_opening import TopicOpening
from goqueue.runtime.maintenance import Maintenance
from goqueue.runtime.meta_journal import MetaJournal
from goqueue.runtime.own_targets import own_targets_of
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.recurring.schedules import Schedules
from goqueue.runtime.schedule.delays import Delays
from goqueue.runtime.schemas.rejects import Rejects
from goqueue.runtime.schemas.schema_feed import SchemaFeed
from goqueue.runtime.schemas.schema_gate import SchemaGate
from goqueue.runtime.schemas.schemas import SCHEMAS_PARTITIONS, SCHEMAS_TOPIC, Schemas
from goqueue.runtime.security import Security
from goqueue.runtime.state_log import STATE_PARTITIONS, STATE_TOPIC
from goqueue.runtime.state_logs import StateLogs
from goqueue.runtime.topic_changes import TopicChanges
from goqueue.runtime.topology import Topology
from goqueue.runtime.tracing.tracing import Tracing
from goqueue.runtime.tx.transactions import Transactions
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.storage.data_format import check_format, write_format
from goqueue.storage.disk import Disk

TX_STATE_PARTITIONS: Final = 2
TX_SNAPSHOT_BYTES_MIN: Final = 4 * KiB
"""A producer's state is small, and a start keeps what came behind it of all of them in memory."""

log = get_logger("goqueue.broker")


class Broker(Producers):
    """Opens a data directory and serves it until stopped. Runs in one event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        clock: Clock | None = None,
        *,
        sync_pool: SyncPool | None = None,
        topology: Topology | None = None,
        is_beside: bool = False,
    ) -> None:
        self.config, self.topology, self._sync_pool = config, topology, sync_pool
        self.forwarding = None if topology is None else Forwarding(topology)
        # Beside their partition ledgers lie in a cluster; by itself a broker does so for tests.
        self._is_beside = is_beside or topology is not None
        self.clock: Clock = clock or SystemClock()
        self.metrics, self.started_ms = Metrics(), 0
        self._disk, self._journal = disk, MetaJournal(disk)
        self.producer_ids = producer_ids_of(self._journal, topology)
        self.security = Security(config, disk, self.clock)
        hooks = TopicHooks(
            self.opening,
            self._open,
            self._topic_created,
            self._topic_changed,
            self._topic_grown,
            self._topic_deleted,
        )
        self._catalogue = Catalogue(disk, self._journal, self.clock, hooks)
        self._topics = self._catalogue.topics
        self.changes = TopicChanges(self)
        self._committer: Committer | None = None
        self._maintenance: Maintenance | None = None
        self._is_started = self._is_stopping = False
        self.tracing = Tracing(config, self._topics, clock=self.clock, metrics=self.metrics)
        self.compactor = Compactor(disk, self.clock, in_thread=config.sync_threads > 0)
        self._ballast = Ballast(disk, self.clock)
        self._make_state()
        self._make_hosts()
        self.coordinators = self._coordinators()

    def _make_state(self) -> None:
        """Make the logs that keep what is decided here."""
        is_clustered = self.topology is not None
        logs = StateLogs(self._catalogue, self.clock, self._ballast, is_clustered=is_clustered)
        beside = self._topics if self._is_beside else None
        self.state = logs.make(
            STATE_TOPIC, STATE_PARTITIONS, prepare=self._prepare_state, beside=beside
        )
        self.schema_state = logs.make(SCHEMAS_TOPIC, SCHEMAS_PARTITIONS)
        self.tx_state = logs.make(
            TX_TOPIC, TX_STATE_PARTITIONS, snapshot_bytes_min=TX_SNAPSHOT_BYTES_MIN
        )
        self.state_logs = {
            TopicName(STATE_TOPIC): self.state,
            TopicName(TX_TOPIC): self.tx_state,
            TopicName(SCHEMAS_TOPIC): self.schema_state,
        }

    def _make_hosts(self) -> None:
        """Make what decides: schemas, groups, transactions, delays, schedules, dead letters."""
        topology = self.topology
        self.schemas = Schemas(self.schema_state)
        if self.forwarding is not None:
            self.schemas.feed = SchemaFeed(self.schemas, self.forwarding, SCHEMAS_TOPIC)
        self._gate = SchemaGate(
            self.schemas, SchemaMetrics(self.metrics), Rejects(self, self.clock)
        )
        self.groups = Groups(self.state, self._topics, clock=self.clock, metrics=self.metrics)
        self.views = views_of(self.groups, self.state, topology, self.clock, topic=STATE_TOPIC)
        self._found_groups = self.groups if self.views is None else self.views
        self.consume = Consumption(
            self.state, self._topics, self._found_groups, clock=self.clock, metrics=self.metrics
        )
        self.consume.share_in_flight(topology)
        self.transactions = Transactions(
            self.tx_state,
            self._topics,
            self.consume,
            self.producer_ids,
            clock=self.clock,
            metrics=TxMetrics(self.metrics),
            topology=topology,
        )
        self.delays = Delays(self.topic, self._topics, self.state, self.clock)
        self.own_targets = targets = own_targets_of(
            self.forwarding, self._topics, self.clock, STATE_TOPIC
        )
        self.schedules = Schedules(self.state, self.topic, clock=self.clock, metrics=self.metrics)
        self.schedules.targets = targets
        mover = Mover(self.topic, self.clock, targets)
        meter = DlqMeter(self.metrics)
        self.dead_letters = DeadLetters(self, mover=mover, clock=self.clock, meter=meter)
        self.redrives = Redrives(
            self, self._topics, state=self.state, mover=mover, clock=self.clock, meter=meter
        )
        self.redrives.lead(self.forwarding, STATE_TOPIC)
        meter.watch_depths(self.redrives.shelves.depths)

    def _coordinators(self) -> Coordinators:
        queue = QueueState(
            self.groups,
            self.consume,
            self.delays,
            self.schedules,
            self.redrives,
            self.dead_letters,
            self.transactions,
            self.views,
        )
        found = Coordinators(self._topics, queue)
        hosts: tuple[Hosts, ...] = (queue, self.transactions, self.schemas)
        for (topic, state), host in zip(self.state_logs.items(), hosts, strict=True):
            found.add(topic, state, host)
        return found

    def __repr__(self) -> str:
        return (
            f"<Broker {self.config.node_id} on {self.config.data_dir}: {len(self._topics)} topics>"
        )

    @property
    def topics(self) -> Mapping[TopicName, Topic]:
        """Every open topic by name."""
        return self._topics

    @property
    def catalogue(self) -> Catalogue:
        """What opens and closes topics."""
        return self._catalogue

    @property
    def is_ready(self) -> bool:
        """Return True if the broker serves."""
        return self._is_started and not self._is_stopping

    @property
    def disk(self) -> Disk:
        """The data directory."""
        return self._disk

    async def start(self) -> None:
        """Take the data directory, recover what is in it and begin to work."""
        self._disk.lock()
        self.started_ms = self.clock.monotonic_ms()
        is_stamped = check_format(self._disk)
        with self._journal.reading(self._catalogue.host, self.producer_ids.host):
            self._catalogue.host.load(catalog.Event)
            self.producer_ids.load()
        self.security.load()
        if not is_stamped:
            write_format(self._disk)
        self._committer = Committer(threads=self.config.sync_threads, pool=self._sync_pool)
        if self.topology is None:
            await broker_life.open_all(self)
            await broker_life.load_all(self)
        else:
            self._catalogue.check_clustered()
        self._disk.remove_tree(DELETING_DIRECTORY)
        self._journal.compact()
        self.metrics.collect_from(lambda: storage_metrics(self._topics))
        self._maintenance = Maintenance(self)
        self._maintenance.start()
        self.tracing.start()
        if self.topology is None:
            broker_life.follow_all(self)
        self._found_groups.start()
        self.transactions.start()
        self.delays.timer.start()
        self.consume.ledgers.on_doomed(self.dead_letters.take)
        if self.topology is None:
            broker_life.resume_all(self)
        self.schedules.start()
        self.security.start()
        if self.schemas.feed is not None:
            self.schemas.feed.start()
        self._is_started = True
        log.info(LogEvent.BROKER_STARTED, topics=len(self._topics), data_dir=self.config.data_dir)

    def gain_all(self, topics: Iterable[Topic]) -> None:
        """Decide about the messages of topics; in a cluster that is a matter of leadership."""
        if self._is_beside and self.topology is None:
            for topic in topics:
                broker_life.gain_at_once(self.coordinators, topic.partitions)

    async def open_partitions(self, openings: Sequence[TopicOpening]) -> None:
        """Read the partitions of topics off the disk, in threads."""
        # A simulation that has its own idea of threads gets the same order for the same seed.
        threads = self.config.sync_threads if self._sync_pool is None else 0
        await PartitionsStart(openings, self._disk, self.clock, threads=threads).run()

    def end_waits(self) -> None:
        """Answer those who wait for messages: the broker is about to stop."""
        self.consume.ledgers.is_waited_for = False
        self.groups.ignore_disconnects()
        for partition in [part for topic in self._topics.values() for part in topic.partitions]:
            partition.end_waits()

    async def stop(self) -> None:
        """Make everything durable and give the data directory back."""
        if not self._journal.is_open or self._is_stopping:
            return
        self._is_stopping = True
        for host in (self._catalogue.host, self.producer_ids.host):
            host.close(ShuttingDownError("the broker is stopping"))
        await self.security.stop()
        await self.schemas.stop()
        await self.compactor.stop()
        await self.schedules.stop()
        await self.dead_letters.stop()
        await self.redrives.stop()
        await self._found_groups.stop()
        await self.transactions.stop()
        self.consume.ledgers.stop()
        self.delays.stop()
        if self._maintenance is not None:
            await self._maintenance.stop()
        await self.tracing.stop()
        if self._committer is not None:
            await self._committer.stop()
        for topic in self._topics.values():
            broker_life.close_all([*topic.partitions, *topic.states])
        for opening in self._catalogue.openings.values():
            broker_life.close_all(opening.partitions)
        self._topics.clear()
        self._journal.close()
        self._disk.unlock()
        log.info(LogEvent.BROKER_STOPPED, data_dir=self.config.data_dir)

    def topic(self, name: str) -> Topic:
        """Return an open topic or raise."""
        return self._catalogue.get(name)

    def create_topic(
        self,
        name: object,
        *,
        partitions: int,
        settings: Mapping[str, object] | None = None,
        by_broker: bool = False,
    ) -> Topic:
        """Make a topic, durably."""
        return self._catalogue.create(
            name, partitions=partitions, settings=settings or {}, by_broker=by_broker
        )

    async def ensure_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, object]
    ) -> Topic:
        """Return a topic of the broker's own needs, made when it is first needed."""
        return await self.changes.ensure(name, partitions=partitions, settings=settings)

    async def _prepare_state(self) -> None:
        """Make the state topic of groups with others answered meanwhile."""
        if self.topology is not None:
            return
        if await self._catalogue.prepare_state(TopicName(STATE_TOPIC), len(self.state.partitions)):
            if self.config.sync_threads:
                await asyncio.to_thread(self._ballast.take)
            else:
                self._ballast.take()

    def configure_topic(self, name: str, changes: Mapping[str, object]) -> Topic:
        """Change settings of a topic, durably."""
        topic = self._catalogue.configure(name, changes)
        self.tracing.configure(topic)
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its messages, durably."""
        self._catalogue.delete(name)

    def _topic_created(self, topic: Topic) -> None:
        if self.topology is not None:
            self.coordinators.attach(topic)
        self.gain_all([topic])
        self.groups.recount(topic.record.name)
        self.schedules.topic_created(topic.record.name)

    def _topic_changed(self, topic: Topic) -> None:
        self.tracing.open(topic)
        self.tracing.configure(topic)
        self.groups.recount(topic.record.name)

    def _topic_grown(self, topic: Topic, known: int) -> None:
        broker_life.take_in(self, topic.partitions[known:])
        if self._is_beside and self.topology is None:
            broker_life.gain_at_once(self.coordinators, topic.partitions[known:])
        self._topic_changed(topic)

    def _topic_deleted(self, name: TopicName, topic: Topic | None) -> None:
        if topic is not None:
            self.state.forget_topic(topic)
            self.delays.forget(topic)
            self.redrives.forget(topic)
            self.consume.forget_topic(topic)
        self.metrics.forget(name)
        self._gate.forget(name)
        self.groups.recount(name)

    def opening(self, record: catalog.Topic) -> TopicOpening:
        """Begin to open a topic."""
        assert self._committer is not None, "started"
        return TopicOpening(
            record,
            self._disk,
            clock=self.clock,
            committer=self._committer,
            metrics=self.metrics,
            timer=self.delays.timer,
            is_replicated=self.topology is not None,
            has_states=self._is_beside,
        )

    def _open(self, record: catalog.Topic, opening: TopicOpening) -> Topic:
        topic = Topic(
            record,
            opening=opening,
            clock=self.clock,
            producer_ids=self.producer_ids,
            metrics=self.metrics,
            ballast=self._ballast,
            gate=self._gate,
        )
        topic.delayed_max = self.config.delayed_max
        topic.names = self.delays.replacing
        self.tracing.open(topic)
        if self.forwarding is not None:
            topic.door = ForwardedTopic(topic, self.forwarding, self.producer_ids)
        broker_life.take_in(self, topic.partitions)
        return topic
