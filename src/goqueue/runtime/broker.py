"""The broker: every topic of one data directory, and the few calls transports translate into."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import TopicName
from goqueue.base.units import KiB
from goqueue.config.model import BrokerConfig
from goqueue.core.decision import Decision
from goqueue.core.producers import identities
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.topics import catalog
from goqueue.core.topics.settings import COMPACT
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import Metrics
from goqueue.observability.schema_metrics import SchemaMetrics
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock, SystemClock
from goqueue.runtime.commit import Committer
from goqueue.runtime.compactor import Compactor
from goqueue.runtime.consume import Consumption
from goqueue.runtime.dead_letters import DeadLetters
from goqueue.runtime.gauges import storage_metrics
from goqueue.runtime.groups import Groups
from goqueue.runtime.maintenance import Maintenance
from goqueue.runtime.moves import Mover
from goqueue.runtime.redrive import Redrives
from goqueue.runtime.schedule import Delays
from goqueue.runtime.schema_gate import SchemaGate
from goqueue.runtime.schema_rejects import Rejects
from goqueue.runtime.schemas import SCHEMAS_PARTITIONS, SCHEMAS_TOPIC, Schemas
from goqueue.runtime.state_log import (
    STATE_PARTITIONS,
    STATE_SEGMENT_BYTES,
    STATE_TOPIC,
    StateLog,
)
from goqueue.runtime.topic import Topic
from goqueue.runtime.topic_opening import PARTITIONS_AT_ONCE, TopicOpening
from goqueue.runtime.tracing import Tracing
from goqueue.runtime.transactions import Transactions
from goqueue.runtime.tx_roster import Producers
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.journal import Journal
from goqueue.storage.partition_log import LOST_SUFFIX

TX_TOPIC: Final = "__transactions"
TX_STATE_PARTITIONS: Final = 2
TX_SNAPSHOT_BYTES_MIN: Final = 4 * KiB
"""A producer's state is small, and a start keeps what came behind it of all of them in memory."""
JOURNAL_PATH: Final = "meta/catalog.journal"
JOURNAL_COMPACT_BYTES: Final = 256 * KiB
DELETING_DIRECTORY: Final = "deleting"

Event = catalog.Event | identities.Event
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Event).decode

log = get_logger("goqueue.broker")


class Broker:
    """Opens a data directory and serves it until stopped. Lives in one event loop."""

    def __init__(self, config: BrokerConfig, disk: Disk, clock: Clock | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics()
        self.started_ms = 0
        self._disk = disk
        self._catalog = catalog.Catalog()
        self._identities = identities.Identities()
        self._topics: dict[TopicName, Topic] = {}
        self._openings: dict[TopicName, TopicOpening] = {}
        self._journal: Journal | None = None
        self._compact_bytes = JOURNAL_COMPACT_BYTES
        self._committer: Committer | None = None
        self._maintenance: Maintenance | None = None
        self._is_stopping = False
        self.tracing = Tracing(config, self._topics, clock=self.clock, metrics=self.metrics)
        self.compactor = Compactor(disk, self.clock, in_thread=config.sync_threads > 0)
        self._ballast = Ballast(disk, self.clock)
        self.state = StateLog(
            lambda: self._open_state_topic(STATE_TOPIC, STATE_PARTITIONS),
            self.clock,
            self._ballast,
            prepare=lambda: self._prepare_state_topic(STATE_TOPIC, STATE_PARTITIONS),
        )
        self._schema_state = StateLog(
            lambda: self._open_state_topic(SCHEMAS_TOPIC, SCHEMAS_PARTITIONS),
            self.clock,
            self._ballast,
        )
        self.schemas = Schemas(self._schema_state)
        self._gate = SchemaGate(
            self.schemas, SchemaMetrics(self.metrics), Rejects(self, self.clock)
        )
        self.groups = Groups(self.state, self._topics, clock=self.clock, metrics=self.metrics)
        self.consume = Consumption(
            self.state, self._topics, self.groups, clock=self.clock, metrics=self.metrics
        )
        self._tx_state = StateLog(
            lambda: self._open_state_topic(TX_TOPIC, TX_STATE_PARTITIONS),
            self.clock,
            self._ballast,
            snapshot_bytes_min=TX_SNAPSHOT_BYTES_MIN,
        )
        self.transactions = Transactions(
            self._tx_state,
            self._topics,
            self.consume,
            Producers(
                self.init_producer,
                self.renew_producer,
                self._identities.bind,
                self._identities.unbind,
            ),
            clock=self.clock,
            metrics=TxMetrics(self.metrics),
        )
        self.delays = Delays(self.topic, self.state, self.clock)
        mover = Mover(self.topic, self.clock)
        meter = DlqMeter(self.metrics)
        self.dead_letters = DeadLetters(self, mover=mover, clock=self.clock, meter=meter)
        self.redrives = Redrives(
            self, self._topics, state=self.state, mover=mover, clock=self.clock, meter=meter
        )
        meter.watch_depths(self.redrives.shelves.depths)

    def __repr__(self) -> str:
        return (
            f"<Broker {self.config.node_id} on {self.config.data_dir}: {len(self._topics)} topics>"
        )

    @property
    def topics(self) -> Mapping[TopicName, Topic]:
        """Every open topic by name."""
        return self._topics

    @property
    def is_ready(self) -> bool:
        """Tell whether the broker serves."""
        return self._journal is not None and not self._is_stopping

    @property
    def disk(self) -> Disk:
        """The data directory."""
        return self._disk

    # Life.

    async def start(self) -> None:
        """Take the data directory, recover what is in it and begin to work."""
        self._disk.lock()
        self.started_ms = self.clock.monotonic_ms()
        self._journal = Journal(self._disk, JOURNAL_PATH)
        if self._journal.torn:
            log.warning("journal mended", torn_bytes=len(self._journal.torn))
            with contextlib.suppress(DiskFullError):
                write_atomically(self._disk, JOURNAL_PATH + LOST_SUFFIX, self._journal.torn)
        for entry in self._journal.records:
            self._apply(_decode(entry))
        self._identities.skip_block()
        self._journal.records.clear()
        self._committer = Committer(threads=self.config.sync_threads)
        self._finish_deletions()
        for record in self._catalog.topics.values():
            self._open(record, self._opening(record))
        self.state.recover(self._topics.get(TopicName(STATE_TOPIC)))
        self._tx_state.recover(self._topics.get(TopicName(TX_TOPIC)))
        self._schema_state.recover(self._topics.get(TopicName(SCHEMAS_TOPIC)))
        self.schemas.recover()
        self.groups.recover()
        self.delays.recover(self._topics)
        self.consume.ledgers.recover()
        self.transactions.recover()
        self._compact_journal()
        self.metrics.collect_from(lambda: storage_metrics(self._topics))
        self._maintenance = Maintenance(self)
        self._maintenance.start()
        self.tracing.start()
        self.groups.start()
        self.transactions.start()
        self.delays.timer.start()
        self.consume.ledgers.on_doomed(self.dead_letters.take)
        self.redrives.recover()
        log.info("broker started", topics=len(self._topics), data_dir=self.config.data_dir)

    def end_waits(self) -> None:
        """Answer those who wait for messages: the broker is about to stop."""
        self.consume.ledgers.is_waited_for = False
        for partition in [part for topic in self._topics.values() for part in topic.partitions]:
            partition.end_waits()

    async def stop(self) -> None:
        """Make everything durable and give the data directory back."""
        if self._journal is None or self._is_stopping:
            return
        self._is_stopping = True
        self.schemas.stop()
        await self.dead_letters.stop()
        await self.redrives.stop()
        await self.groups.stop()
        await self.transactions.stop()
        self.consume.ledgers.stop()
        self.delays.timer.stop()
        if self._maintenance is not None:
            await self._maintenance.stop()
        await self.compactor.stop()
        await self.tracing.stop()
        if self._committer is not None:
            await self._committer.stop()
        opened = [topic.partitions for topic in self._topics.values()]
        opened += [opening.partitions for opening in self._openings.values()]
        for partitions in opened:
            for partition in partitions:
                try:
                    partition.close()
                except Exception:
                    log.exception("partition did not close cleanly", partition=str(partition.name))
        self._topics.clear()
        self._journal.close()
        self._disk.unlock()
        log.info("broker stopped", data_dir=self.config.data_dir)

    # Topics.

    def topic(self, name: str) -> Topic:
        """Return an open topic or raise."""
        topic = self._topics.get(TopicName(name))
        if topic is None:
            if self._is_stopping:
                raise ShuttingDownError("the broker is stopping")
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        return topic

    def create_topic(
        self,
        name: object,
        *,
        partitions: int,
        settings: Mapping[str, object] | None = None,
        by_broker: bool = False,
    ) -> Topic:
        """Make a topic, durably."""
        opening = self._begin(name, partitions, settings or {}, by_broker=by_broker)
        with self._taken_back(opening):
            return self._finish(opening)

    async def make_topic(
        self, name: object, *, partitions: int, settings: Mapping[str, object] | None = None
    ) -> Topic:
        """Make a topic, durably; a large one bit by bit, so that others are answered meanwhile."""
        if partitions <= PARTITIONS_AT_ONCE:
            return self.create_topic(name, partitions=partitions, settings=settings)
        # Whoever asked may go away; the topic is made all the same.
        return await asyncio.shield(self._make(self._begin(name, partitions, settings or {})))

    async def _make(self, opening: TopicOpening) -> Topic:
        with self._taken_back(opening):
            await opening.go_on(lambda: self._check_wanted(opening.record))
            topic = self._finish(opening)
        topic.configure(self._catalog.get(opening.record.name))
        return topic

    def _check_wanted(self, record: catalog.Topic) -> None:
        if self._is_stopping:
            raise ShuttingDownError("the broker is stopping")
        if self._catalog.get(record.name).created_ms != record.created_ms:
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
                self._commit(self._catalog.delete(opening.record.name))
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
        now_ms = self.clock.now_ms()
        decision = self._catalog.create(
            name, partitions=partitions, settings=settings, now_ms=now_ms, by_broker=by_broker
        )
        if self._disk.exists(f"logs/{decision.reply.name}"):
            raise StorageFailedError(
                f"logs/{decision.reply.name} exists in the data directory but the catalogue does"
                " not know it; move it away first"
            )
        self._commit(decision)
        return self._opening(decision.reply)

    def _finish(self, opening: TopicOpening) -> Topic:
        record = opening.record
        topic = self._open(record, opening)
        self.groups.recount(record.name)
        log.info("topic created", topic=record.name, partitions=record.partitions)
        return topic

    def _open_state_topic(self, name: str, partitions: int) -> Topic:
        """Return a topic that holds the state of machines, made when it is first needed."""
        known = self._topics.get(TopicName(name))
        if known is not None:
            return known
        return self._finish(self._begin_state_topic(TopicName(name), partitions))

    async def _prepare_state_topic(self, name: str, partitions: int) -> None:
        """Make such a topic while others are answered: fifty partitions take the disk a while.

        What fails in the middle goes on from there the next time.
        """
        if TopicName(name) in self._topics:
            return
        opening = self._begin_state_topic(TopicName(name), partitions)
        while TopicName(name) not in self._topics and not opening.is_whole:
            if self._is_stopping:
                raise ShuttingDownError("the broker is stopping")
            opening.step()
            await asyncio.sleep(0)
        if TopicName(name) in self._topics:
            return
        self._open_state_topic(name, partitions)
        if self.config.sync_threads:
            await asyncio.to_thread(self._ballast.take)
        else:
            self._ballast.take()

    def _begin_state_topic(self, name: TopicName, partitions: int) -> TopicOpening:
        if name not in self._openings:
            settings = {
                "segment_bytes": STATE_SEGMENT_BYTES,
                "retention_ms": 0,
                "cleanup_policy": COMPACT,
            }
            self._openings[name] = self._begin(name, partitions, settings, by_broker=True)
        return self._openings[name]

    def configure_topic(self, name: str, changes: Mapping[str, object]) -> Topic:
        """Change settings of a topic, durably."""
        decision = self._catalog.configure(name, changes)
        self._commit(decision)
        topic = self.topic(name)
        topic.configure(decision.reply)
        self.tracing.configure(topic)
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its messages, durably."""
        decision = self._catalog.delete(name)
        self._commit(decision)
        topic = self._topics.pop(decision.reply.name, None)
        for partition in topic.partitions if topic is not None else ():
            partition.abandon()
        if topic is not None:
            self.delays.forget(topic)
            self.redrives.forget(topic)
        self.metrics.forget(name)
        self._gate.forget(name)
        self._remove_files(decision.reply.name)
        self.consume.ledgers.forget_topic(name)
        self.groups.recount(name)
        log.info("topic deleted", topic=name)

    def _opening(self, record: catalog.Topic) -> TopicOpening:
        assert self._committer is not None, "started"
        return TopicOpening(
            record,
            self._disk,
            clock=self.clock,
            committer=self._committer,
            metrics=self.metrics,
            timer=self.delays.timer,
        )

    def _open(self, record: catalog.Topic, opening: TopicOpening) -> Topic:
        topic = Topic(
            record,
            opening=opening,
            clock=self.clock,
            identities=self._identities,
            metrics=self.metrics,
            ballast=self._ballast,
            gate=self._gate,
        )
        topic.delayed_max = self.config.delayed_max
        self._topics[record.name] = topic
        self.tracing.open(topic)
        self._openings.pop(record.name, None)
        for partition in topic.partitions:
            recovery = partition.log.recovery
            if recovery.torn_bytes or recovery.lost_bytes or recovery.gaps:
                log.warning(
                    "log mended",
                    partition=str(partition.name),
                    torn_bytes=recovery.torn_bytes,
                    lost_bytes=recovery.lost_bytes,
                    unreadable=[list(gap) for gap in recovery.gaps],
                )
        return topic

    def _finish_deletions(self) -> None:
        """Remove what a crash left of deleted topics."""
        for name in self._catalog.deleted:
            self._remove_files(name)
        self._disk.remove_tree(DELETING_DIRECTORY)

    def _remove_files(self, name: TopicName) -> None:
        if not self._disk.exists(f"logs/{name}"):
            return
        # Out of the way first, so that a topic of the same name can be made at once.
        self._disk.make_directory(DELETING_DIRECTORY)
        self._disk.remove_tree(f"{DELETING_DIRECTORY}/{name}")
        self._disk.rename(f"logs/{name}", f"{DELETING_DIRECTORY}/{name}")
        self._disk.sync_directory("logs")
        self._disk.remove_tree(f"{DELETING_DIRECTORY}/{name}")

    # Producers.

    def init_producer(self) -> ProducerStamp:
        """Give a new producer its identity."""
        decision = self._identities.init()
        self._commit(decision)
        self._identities.hand_out(decision.reply)
        return decision.reply

    @property
    def next_producer_id(self) -> int:
        """The id the next new producer gets."""
        return self._identities.next_id

    def check_free(self, producer_id: int) -> None:
        """Refuse who has transactions and wants to do something outside them."""
        self._identities.check_free(producer_id)

    def renew_producer(self, *, producer_id: int, epoch: int) -> ProducerStamp:
        """Begin the next life of a producer; the earlier ones are fenced from now on."""
        decision = self._identities.renew(producer_id=producer_id, epoch=epoch)
        self._commit(decision)
        return decision.reply

    # The journal of what is decided here.

    def _commit(self, decision: Decision[Event, object]) -> None:
        """Make a decision durable and true. Rare, so it waits for the disk in place."""
        if self._journal is None or self._is_stopping:
            raise ShuttingDownError("the broker is stopping")
        # Before the append, so that a deletion stays in the journal until its files are gone.
        if self._journal.size_bytes > self._compact_bytes:
            self._compact_journal()
        if decision.events:
            self._journal.append(map(_encode, decision.events))
        for event in decision.events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        match event:
            case identities.IdsReserved() | identities.LifeBegun() | identities.LivesForgotten():
                self._identities.apply(event)
            case catalog.TopicCreated() | catalog.TopicConfigured() | catalog.TopicDeleted():
                self._catalog.apply(event)

    def _compact_journal(self) -> None:
        assert self._journal is not None, "started"
        events: Iterable[Event] = [*self._catalog.snapshot(), *self._identities.snapshot()]
        records = [_encode(event) for event in events]
        size = sum(map(len, records))
        # Looked at again when it has doubled, so that a large state is not encoded at every change.
        self._compact_bytes = max(JOURNAL_COMPACT_BYTES, 2 * size)
        if size >= self._journal.size_bytes // 2:
            return
        try:
            self._journal.rewrite(records)
        except (DiskFullError, StorageFailedError) as error:
            log.warning("journal not compacted", error=error.message)
