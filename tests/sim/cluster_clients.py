"""Clients of a simulated cluster: they find leaders, repeat what is in doubt, keep a history."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from goqueue.base.errors import DeadlineExceededError, GoQueueError, StorageFailedError
from goqueue.base.ids import Epoch, PartitionId, ProducerId, Sequence, TopicName, TopicPartition
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.places import place_rows
from goqueue.runtime.log.published import Published
from goqueue.testing.log_checker import LogChecker
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import read_all
from tests.sim.cluster_nodes import SimCluster, SimNode

T = TypeVar("T")
ANSWER_SECONDS = 2.0
RETRY_SECONDS = 0.05
RETRIED_MAX = 2_000


def frames_of(*values: bytes, stamp: ProducerStamp = NO_STAMP) -> memoryview:
    """Return messages as a producer sends them."""
    now_us = time.time_ns() // 1_000
    drafts = [Draft(value=value, timestamp_us=now_us) for value in values]
    return memoryview(frame_drafts(drafts, stamp))


def place_of(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionId(partition))


async def ask(node: SimNode, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Have a node do something for a client that does not wait for ever."""

    async def answer() -> T | Exception:
        # A client that is gone does not hear what went wrong.
        try:
            return await begin()
        except (GoQueueError, AssertionError) as error:
            return error

    try:
        outcome = await asyncio.wait_for(node.run(answer()), ANSWER_SECONDS)
    except TimeoutError as error:
        raise DeadlineExceededError(f"{node} did not answer") from error
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass
class ClusterHistory:
    """What clients were told, and whether it can be true."""

    checker: LogChecker = field(default_factory=LogChecker)
    acks: int = 0
    reads: int = 0
    replicas: list[int] = field(default_factory=list)
    _shown: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    _ackers: dict[tuple[TopicPartition, int], str] = field(default_factory=dict)
    _ends: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)

    def acked(self, node: SimNode, place: TopicPartition, epoch: int | None) -> None:
        """One leader acknowledges in an epoch."""
        self.acks += 1
        if epoch is not None:
            process = f"{node.name}#{node.lives}"
            known = self._ackers.setdefault((place, epoch), process)
            assert known == process, f"{known} and {process} both ack {place} in epoch {epoch}"

    def shown(self, place: TopicPartition, offset: int, value: bytes) -> None:
        """A reader sees one message at an offset, for ever."""
        known = self._shown.setdefault((place, offset), value)
        assert known == value, f"{place}: {offset} was {known!r} and is {value!r}"

    def watch_ends(self, cluster: SimCluster) -> None:
        """What a process shows never goes back."""
        for node in cluster.nodes.values():
            if not node.is_serving:
                continue
            for place, group in node.replicas.groups.items():
                partition = group.logs[0].partition  # type: ignore[index]
                assert partition is not None
                key = (f"{node.name}#{node.lives}", place)
                end = partition.visible_offset
                assert end >= self._ends.get(key, 0), f"{key} showed {self._ends[key]}, now {end}"
                self._ends[key] = end


class ClusterProducer:
    """An idempotent producer: one batch at a time, repeated until it is acked."""

    def __init__(
        self, cluster: SimCluster, history: ClusterHistory, number: int, random: Random
    ) -> None:
        self.name = f"p{number}"
        self.is_over = False
        self._cluster = cluster
        self._history = history
        self._id = ProducerId(number)
        self._random = random
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0

    async def run(self, topic: str, partitions: int) -> None:
        """Publish until told to end; everything that was begun is acknowledged then."""
        while not self.is_over:
            place = place_of(topic, self._random.randrange(partitions))
            await self.publish(place, self._random.randint(1, 4))
            await asyncio.sleep(self._random.uniform(0.001, 0.06))

    async def publish(self, place: TopicPartition, count: int = 1) -> int:
        """Publish a batch; return its first offset when it is acknowledged."""
        values = [f"{self.name}-{place}-{self._count + n}".encode() for n in range(count)]
        self._count += count
        checker = self._history.checker
        for value in values:
            checker.sent(place, value, producer=self.name)
        sequence = self._sequences.get(place, 0)
        frames = frames_of(*values, stamp=ProducerStamp(self._id, Epoch(0), Sequence(sequence)))
        published = await self._repeat(place, frames)
        self._sequences[place] = sequence + count
        for value, (at, offset) in zip(values, place_rows(published, count), strict=True):
            assert at == place.partition
            checker.acked(place, offset, value)
        return published.base_offset

    async def _repeat(self, place: TopicPartition, frames: memoryview) -> Published:
        failures: list[str] = []
        for _ in range(RETRIED_MAX):
            try:
                node = self._cluster.leader(place.topic, place.partition)
                published, epoch = await ask(node, partial(self._send, node, place, frames))
            except GoQueueError as error:
                # A leader without another replica in sync says that its disk failed.
                if not error.retryable and not isinstance(error, StorageFailedError):
                    raise AssertionError(f"{place}: {error!r}") from error
                failures.append(error.code)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._history.replicas.append(published.replicas)
            self._history.acked(node, place, epoch)
            return published
        raise AssertionError(f"{place} takes nothing: {failures[-20:]} {self._cluster.wrong()}")

    @staticmethod
    async def _send(
        node: SimNode, place: TopicPartition, frames: memoryview
    ) -> tuple[Published, int | None]:
        topic = node.broker.topic(place.topic)
        published = await topic.publish(PUBLISHING, place.partition, frames)
        leadership = topic.partition(place.partition).leadership
        return published, leadership.epoch if leadership.role is Role.LEADER else None


async def read_through(cluster: SimCluster, history: ClusterHistory, place: TopicPartition) -> None:
    """Read what a leader shows; it must be what others have shown."""
    try:
        node = cluster.leader(place.topic, place.partition)
        topic = node.broker.topic(place.topic)
        messages, _ = await ask(node, partial(read_all, topic, place.partition))
    except (GoQueueError, AssertionError):
        return
    history.reads += 1
    for message in messages:
        history.shown(place, message.offset, message.value or b"")


def log_bytes(cluster: SimCluster, node: SimNode, place: TopicPartition) -> bytes:
    """Return the whole log of a replica as it lies on its disk."""
    log = cluster.partition(node, place.topic, place.partition).log
    return b"".join(bytes(one.file.read(0, one.size)) for one in log.segments)  # type: ignore[arg-type]


async def _read_surely(cluster: SimCluster, place: TopicPartition) -> list[Message]:
    """Read a partition through its leader, as often as it takes."""
    while True:
        try:
            node = cluster.leader(place.topic, place.partition)
            topic = node.broker.topic(place.topic)
            messages, gaps = await ask(node, partial(read_all, topic, place.partition))
        except (GoQueueError, AssertionError):
            await asyncio.sleep(RETRY_SECONDS)
            continue
        assert not gaps
        return messages


async def judge(cluster: SimCluster, history: ClusterHistory, topic: str) -> None:
    """Everything is mended: all replicas are equal and nothing that was acknowledged is missing."""
    for number, record in enumerate(cluster.controller.image.topic(topic).partitions):
        place = place_of(topic, number)
        nodes = [cluster.nodes[name] for name in record.replicas]
        leader = cluster.leader(topic, number)
        end = cluster.partition(leader, topic, number).log.end_offset

        def is_level(nodes: list[SimNode] = nodes, n: int = number, end: int = end) -> bool:
            parts = [cluster.partition(node, topic, n) for node in nodes]
            return all(one.visible_offset == end for one in parts)

        await cluster.until(is_level, what=f"{place} is not level at {end}: {cluster.wrong()}")
        found = {log_bytes(cluster, node, place) for node in nodes}
        assert len(found) == 1, f"the replicas of {place} differ"
        messages = await _read_surely(cluster, place)
        for message in messages:
            history.shown(place, message.offset, message.value or b"")
        start = cluster.partition(leader, topic, number).log.start_offset
        history.checker.read(
            place,
            [(message.offset, message.value or b"") for message in messages],
            start_offset=start,
            end_offset=end,
        )
    history.checker.check()
