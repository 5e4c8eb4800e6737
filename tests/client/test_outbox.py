"""The outbox against a naive broker and a bad network: every batch once, in order, or refused."""

from collections.abc import Sequence
from random import Random

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.errors import ConnectionLostError, GoQueueError, OverloadedError
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.outbox import Batch, Outbox, Pause
from goqueue.client.protocol.outcome import Outcome, Part
from goqueue.core.record.message import Draft
from goqueue.core.record.row import PackedRows
from goqueue.core.record.stamp import ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

PARTITIONS = 2
GROUPS = 12
TOPIC = "orders"

Sent = tuple[int, int, int, int, bytes]
"""Partition, producer id, epoch, sequence and value of a batch on its way."""


class One:
    """A batch of one message and what became of it."""

    topic = TOPIC

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.outcome: Outcome | None = None

    def settle(self, outcome: Outcome) -> bool:
        assert self.outcome is None, "settled once"
        self.outcome = outcome
        return True


class Plain(Outbox[One]):
    """An outbox whose requests a person can read."""

    def sent(self, batches: Sequence[Batch[One]]) -> list[Sent]:
        self.stamps: list[ProducerStamp] = []
        self.content(batches)
        return [
            (batch.part.partition, one.producer_id, one.epoch, one.sequence, batch.owner.value)
            for batch, one in zip(batches, self.stamps, strict=True)
        ]

    def _frames(self, packed: object, stamp: ProducerStamp) -> Sequence[Buffer]:
        del packed
        self.stamps.append(stamp)
        return ()


class NaiveBroker:
    """Keeps every message and the next sequence of each producer, and nothing else."""

    def __init__(self) -> None:
        self.logs: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.epochs: dict[int, int] = {}
        self.places: dict[tuple[int, int, int], list[int]] = {}

    def init(self, asked: calls.InitProducer) -> calls.ProducerIdentity | calls.Failure:
        if asked.producer_id == 0:
            new = len(self.epochs) + 1
            self.epochs[new] = 0
            return calls.ProducerIdentity(new, 0)
        if self.epochs[asked.producer_id] != asked.epoch:
            return calls.Failure("producer_fenced", "an earlier life")
        self.epochs[asked.producer_id] += 1
        return calls.ProducerIdentity(asked.producer_id, asked.epoch + 1)

    def publish(self, sent: Sequence[Sent]) -> calls.Produced:
        return calls.Produced("fsync", [self._publish_one(*one) for one in sent])

    def _publish_one(
        self, partition: int, producer: int, epoch: int, sequence: int, value: bytes
    ) -> calls.ProducedPart:
        assert self.epochs[producer] == epoch, "nobody speaks with the epoch of before"
        known = self.places.setdefault((partition, producer, epoch), [])
        if sequence > len(known):
            failure = calls.Failure("out_of_order_sequence", f"{sequence}, not {len(known)}")
            return calls.ProducedPart(partition, -1, failure=failure)
        is_repeat = sequence < len(known)
        if not is_repeat:
            known.append(len(self.logs[partition]))
            self.logs[partition].append(value)
        return calls.ProducedPart(partition, known[sequence], is_duplicate=is_repeat)


class World:
    """Performs the steps of an outbox on a network that loses and a broker that refuses."""

    def __init__(self, dice: Random, *, badness: float) -> None:
        self.dice = dice
        self.badness = badness
        self.broker = NaiveBroker()
        self.now = 0.0
        self.outbox = Plain(acks="all", in_flight_max=3, on_settled=lambda _: None)
        self.under_way: list[tuple[list[Batch[One]], list[Sent]]] = []

    def perform(self) -> None:
        """Do what the outbox asks for, until it waits for something."""
        while (step := self.outbox.step(self.now)) is not None:
            if isinstance(step, Pause):
                if not self.under_way:
                    self.now = step.until
                return
            if isinstance(step, list):
                self.under_way.append((step, self.outbox.sent(step)))
            else:
                self._introduce(step)

    def _introduce(self, asked: calls.InitProducer) -> None:
        assert not self.under_way, "a new life begins with nothing under way"
        is_lost = self.dice.random() < self.badness
        if is_lost and self.dice.random() < 0.5:
            self.outbox.not_introduced(ConnectionLostError("lost"), self.now)
            return
        reply = self.broker.init(asked)
        if is_lost:
            self.outbox.not_introduced(ConnectionLostError("lost"), self.now)
        elif isinstance(reply, calls.Failure):
            self.outbox.not_introduced(GoQueueError(reply.message), self.now)
        else:
            self.outbox.introduced(answer(reply), self.now)

    def happen(self) -> None:
        """Let a request be answered or refused, or the connection get lost."""
        if not self.under_way:
            return
        fate = self.dice.random()
        if fate < self.badness / 2:
            lost, self.under_way = self.under_way, []
            for _, sent in lost[: self.dice.randint(0, len(lost))]:
                self.broker.publish(sent)
            for batches, _ in lost:
                self.outbox.failed(batches, ConnectionLostError("lost"), self.now)
            return
        batches, sent = self.under_way.pop(0)
        if fate < self.badness:
            self.outbox.failed(batches, OverloadedError("busy"), self.now)
        else:
            self.outbox.answered(batches, answer(self.broker.publish(sent)), self.now)


def answer(header: calls.Call) -> Answer:
    return Answer(msgspec.msgpack.encode(header), memoryview(b""))


def group(dice: Random, number: int, deadline: float) -> list[Batch[One]]:
    partitions = dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS))
    return [
        Batch(
            One(b"%d/%d" % (number, partition)),
            Part(partition, np.zeros(1, np.int64), PackedRows([Draft(value=b"")])),
            number=number,
            deadline=deadline,
        )
        for partition in partitions
    ]


def run(dice: Random, *, badness: float, seconds: float) -> tuple[World, list[Batch[One]]]:
    """Send some groups of batches through a bad world; return it when all are settled."""
    world = World(dice, badness=badness)
    batches: list[Batch[One]] = []
    number = 0
    while number < GROUPS or not world.outbox.is_idle:
        if number < GROUPS and dice.random() < 0.5:
            number += 1
            one = group(dice, number, world.now + seconds)
            batches += one
            world.outbox.submit(one)
        world.perform()
        world.happen()
        world.now += 0.01
        if world.now > 1_000:
            world.badness = 0.0
    return world, batches


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.6]))
def test_what_has_time_is_placed_once_and_in_order(seed: int, badness: float) -> None:
    """P3: whatever is lost or refused for a while, there is one copy, in the order of sending."""
    world, batches = run(Random(seed), badness=badness, seconds=10**9)

    for partition in range(PARTITIONS):
        mine = [one.owner for one in batches if one.part.partition == partition]
        assert world.broker.logs[partition] == [one.value for one in mine]
        for offset, one in enumerate(mine):
            assert one.outcome is not None
            assert (one.outcome.error, one.outcome.base_offset) == (None, offset)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from([0.2, 0.6, 0.9]))
def test_what_runs_out_of_time_says_whether_it_may_be_there(seed: int, badness: float) -> None:
    """A failed message is not in the log unless its error says that it may be; none is twice."""
    world, batches = run(Random(seed), badness=badness, seconds=0.3)

    for partition in range(PARTITIONS):
        log = world.broker.logs[partition]
        sent = [one.owner.value for one in batches if one.part.partition == partition]
        assert log == [value for value in sent if value in log]
        for one in (one.owner for one in batches if one.part.partition == partition):
            assert one.outcome is not None
            if one.outcome.error is None:
                assert log[one.outcome.base_offset] == one.value
            elif one.value in log:
                assert "may be published" in one.outcome.error.message
