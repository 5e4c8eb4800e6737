"""A broker on a memory disk, driven step by step, with the history of what it said."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from goqueue.base.errors import GoQueueError, ProducerFencedError
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.ids import Sequence as Ordinal
from goqueue.config.model import BrokerConfig
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import messages_of
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import Row
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.log.places import place_rows
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.maintenance import Maintenance
from goqueue.storage.log_notes import Gap
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.log_checker import LogChecker
from tests.frames import split_frames
from tests.runtime.grants import FETCHING, PUBLISHING

Step = Callable[["Rig"], Coroutine[Any, Any, None]]
FETCH_BYTES = 3_000
HANGS_SECONDS = 300


def messages_in(topic: str, partition: int, frames: memoryview) -> list[Message]:
    """Return the messages of fetched frames."""
    found: list[Message] = []
    name, number = TopicName(topic), PartitionId(partition)
    for header, frame in split_frames(frames):
        if header.is_batch:
            batch = decode_batch(header, frame)
            found += messages_of(batch, topic=name, partition=number, first_offset=header.offset)
        elif not header.flags & CONTROL:
            found.append(Row(header, frame).message(name, number))
    return found


async def read_all(
    topic: Topic, number: int, *, offset: int | None = None
) -> tuple[list[Message], list[Gap]]:
    """Read a partition from its start (or an offset) to its end, as a patient reader would."""
    log = topic.partition(number).log
    at = log.start_offset if offset is None else Offset(offset)
    messages: list[Message] = []
    gaps: list[Gap] = []
    while True:
        parts = [FetchPart(partition=number, offset=at)]
        (outcome,) = await fetch(FETCHING, topic, parts, bytes_max=FETCH_BYTES, wait_ms=0)
        assert isinstance(outcome, Fetched), outcome
        found = messages_in(topic.record.name, number, outcome.frames)
        messages += [message for message in found if message.offset >= at]
        gaps += outcome.gaps
        if outcome.next_offset == at:
            assert at == outcome.end_offset, f"the reader is stuck at {at}"
            return messages, gaps
        at = outcome.next_offset


class Client:
    """An idempotent producer: it knows its sequences, and sends again what was not acknowledged."""

    def __init__(self, stamp: ProducerStamp) -> None:
        self.stamp = stamp
        self._sequences: dict[tuple[str, int], int] = {}

    def next_stamp(self, topic: str, number: int) -> ProducerStamp:
        """Return the stamp of the next message to a partition."""
        sequence = self._sequences.get((topic, number), 0)
        return ProducerStamp(self.stamp.producer_id, self.stamp.epoch, Ordinal(sequence))

    def acked(self, topic: str, number: int, count: int) -> None:
        """Go on behind an acknowledged batch."""
        place = (topic, number)
        self._sequences[place] = self._sequences.get(place, 0) + count


class Rig:
    """Lives as long as the test: brokers come and go on its disk."""

    is_beside = False
    """Whether ledgers are kept beside their partitions, as in a cluster."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = FakeClock()
        self.checker = LogChecker()
        self.clients: dict[str, Client] = {}
        self.ids_seen: set[int] = set()
        self._broker: Broker | None = None
        self._operations_left = 0
        self._publishes = 0

    def die_in(self, operations: int) -> None:
        """Let the process die at an operation, or the next process if it ends before."""
        self._operations_left = self.disk.operations + operations
        self.disk.fail_at(self._operations_left)

    def go_on_with(self, disk: MemoryDisk) -> None:
        """Let the next process use this disk, after a clean end of the last."""
        left = self._operations_left - self.disk.operations
        self.recover_with(disk)
        if left > 0:
            self.die_in(left)

    def recover_with(self, disk: MemoryDisk) -> None:
        """Take over what a crash left."""
        self.disk = disk
        self._operations_left = 0

    @property
    def broker(self) -> Broker:
        """The broker that runs now."""
        assert self._broker is not None, "started"
        return self._broker

    def metrics_text(self) -> str:
        """Return what a scraper would read."""
        metrics = self.broker.metrics
        return metrics.write([*metrics.gather()]).decode()

    async def start(self) -> Broker:
        """Start a broker on the disk as it is."""
        config = BrokerConfig(sync_threads=0)
        self._broker = Broker(config, self.disk, self.clock, is_beside=self.is_beside)
        await self._broker.start()
        return self._broker

    async def stop(self) -> None:
        """Stop the broker cleanly."""
        await self.broker.stop()

    def keep(self, topic: str) -> None:
        """Let retention do its work."""
        Maintenance(self.broker).keep(self.broker.topic(topic))

    def check_alive(self) -> None:
        """Raise CrashError if the process died behind somebody's back."""
        self.disk.free_bytes()

    def client(self, name: str) -> Client:
        """Return a producer, with an identity that nobody else ever had."""
        if name not in self.clients:
            self.begin_client(name)
        return self.clients[name]

    def begin_client(self, name: str) -> None:
        """Give a producer a new identity."""
        stamp = self.broker.init_producer()
        assert stamp.producer_id not in self.ids_seen, "an id was handed out twice"
        self.ids_seen.add(stamp.producer_id)
        self.clients[name] = Client(stamp)

    def renew_client(self, name: str) -> None:
        """Let a producer begin its next life."""
        old = self.client(name).stamp
        try:
            stamp = self.broker.renew_producer(producer_id=old.producer_id, epoch=old.epoch)
        except ProducerFencedError:
            # The life began, but the answer was lost in a crash.
            self.begin_client(name)
        else:
            self.clients[name] = Client(stamp)

    async def publish(
        self,
        topic: str,
        number: int,
        payloads: Sequence[bytes],
        *,
        producer: str | None = None,
        dedup: bool = False,
    ) -> Published:
        """Publish messages whose values are told apart; note what was sent and what was acked."""
        client = None if producer is None else self.client(producer)
        name = TopicPartition(TopicName(topic), PartitionId(number))
        for payload in payloads:
            self.checker.sent(name, payload, producer=producer or "")
        drafts = [
            Draft(
                value=payload,
                timestamp_us=self.clock.now_us(),
                dedup_id=payload[:20] if dedup else None,
            )
            for payload in payloads
        ]
        stamp = NO_STAMP if client is None else client.next_stamp(topic, number)
        where = self.broker.topic(topic)
        try:
            published = await self._by_either_road(
                where, number, memoryview(frame_drafts(drafts, stamp))
            )
        except GoQueueError:
            self.check_alive()
            raise
        if client is not None:
            client.acked(topic, number, len(payloads))
        if where.settings.is_fsync:
            places = place_rows(published, len(payloads))
            for payload, (at, offset) in zip(payloads, places, strict=True):
                self.checker.acked(TopicPartition(name.topic, at), offset, payload)
        return published

    async def _by_either_road(self, topic: Topic, number: int, frames: memoryview) -> Published:
        """Let every second request be published at once, if it may be."""
        self._publishes += 1
        outcome = (
            topic.small.publish_at_once(PUBLISHING, number, frames) if self._publishes % 2 else None
        )
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome or await topic.publish(PUBLISHING, number, frames)

    async def audit(self, *, after_power_cut: bool = False) -> None:
        """Read everything there is and compare it with the history."""
        for topic in self.broker.topics.values():
            for partition in topic.partitions:
                log = partition.log
                if after_power_cut:
                    self.checker.lost_power(partition.name, log.end_offset)
                messages, gaps = await read_all(topic, partition.name.partition)
                self.checker.read(
                    partition.name,
                    [(message.offset, message.value or b"") for message in messages],
                    start_offset=log.start_offset,
                    end_offset=partition.visible_offset,
                    gaps=gaps,
                )
                assert gaps == []
                assert log.recovery.gaps == []
        self.checker.check()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a loop of its own; one that hangs is a failure."""
    asyncio.run(asyncio.wait_for(main, HANGS_SECONDS))
