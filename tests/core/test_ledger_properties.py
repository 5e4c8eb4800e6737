"""Whatever producers send, and whenever the broker restarts, a message has one place."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from goqueue.base.errors import (
    GoQueueError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, Sequence
from goqueue.base.limits import PRODUCER_BATCHES_REMEMBERED
from goqueue.core.producers.ledger import Appended, Original, ProducerLedger
from goqueue.core.record.stamp import ProducerStamp, Repeat

HERE = PartitionId(0)
producers = st.integers(1, 3).map(ProducerId)
Place = tuple[int, int]


def places(original: Original, count: int) -> list[Place]:
    """Say where each message of a batch is."""
    left_out = {repeat.row: (repeat.partition, repeat.offset) for repeat in original.repeats}
    found: list[Place] = []
    offset = original.base_offset
    for number in range(count):
        if number in left_out:
            found.append(left_out[number])
        else:
            found.append((HERE, offset))
            offset = Offset(offset + 1)
    return found


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = ProducerLedger()
        self.journal: list[Appended] = []
        self.end = 0
        # The dumb model: of each producer its epoch, and where each message of that life is.
        self.epochs: dict[ProducerId, int] = {}
        self.sent: dict[ProducerId, list[Place]] = {}
        self.batches: dict[ProducerId, list[tuple[int, int]]] = {}

    def stamp(self, producer: ProducerId, sequence: int, epoch: int | None = None) -> ProducerStamp:
        life = self.epochs.get(producer, 0) if epoch is None else epoch
        return ProducerStamp(producer, Epoch(life), Sequence(sequence))

    @rule(producer=producers, count=st.integers(1, 5), repeated=st.sets(st.integers(0, 4)))
    def publish(self, producer: ProducerId, count: int, repeated: set[int]) -> None:
        sent = self.sent.setdefault(producer, [])
        stamp = self.stamp(producer, len(sent))
        assert self.ledger.judge(stamp, count) is None
        repeats = tuple(
            Repeat(number, PartitionId(1), Offset(100 + number))
            for number in sorted(repeated)
            if number < count
        )
        event = Appended(
            stamp=stamp, sequence_count=count, base_offset=Offset(self.end), repeats=repeats
        )
        self.ledger.apply(event)
        self.journal.append(event)
        self.epochs.setdefault(producer, 0)
        self.batches.setdefault(producer, []).append((len(sent), count))
        sent += places(Original(base_offset=event.base_offset, repeats=repeats), count)
        self.end += count - len(repeats)

    @rule(count=st.integers(1, 5))
    def others_publish(self, count: int) -> None:
        self.end += count

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.epochs)))
        batches = self.batches[producer]
        if not batches:
            return
        back = data.draw(st.integers(1, len(batches)))
        first, count = batches[-back]
        original: Original | None = None
        try:
            original = self.ledger.judge(self.stamp(producer, first), count)
        except OutOfOrderSequenceError:
            assert back > PRODUCER_BATCHES_REMEMBERED
            return
        assert original is not None
        assert places(original, count) == self.sent[producer][first : first + count]

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def retry_a_part(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.epochs)))
        sent = self.sent[producer]
        first = data.draw(st.integers(0, max(len(sent) - 1, 0)))
        count = data.draw(st.integers(1, 6))
        if first >= len(sent):
            return
        try:
            original = self.ledger.judge(self.stamp(producer, first), count)
        except OutOfOrderSequenceError:
            return
        assert original is not None
        assert places(original, count) == sent[first : first + count]

    @rule(producer=producers, ahead=st.integers(1, 5))
    def leave_a_gap(self, producer: ProducerId, ahead: int) -> None:
        sequence = len(self.sent.get(producer, [])) + ahead
        self.expect(
            UnknownProducerError if producer not in self.epochs else OutOfOrderSequenceError,
            self.stamp(producer, sequence),
        )

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), count=st.integers(1, 3))
    def begin_a_life(self, data: st.DataObject, count: int) -> None:
        producer = data.draw(st.sampled_from(sorted(self.epochs)))
        epoch = self.epochs[producer] + 1
        self.expect(OutOfOrderSequenceError, self.stamp(producer, 1, epoch))
        self.epochs[producer] = epoch
        self.sent[producer] = []
        self.batches[producer] = []
        self.publish(producer, count, set())
        self.expect(ProducerFencedError, self.stamp(producer, 0, epoch - 1))

    def expect(self, kind: type[GoQueueError], stamp: ProducerStamp) -> None:
        try:
            judged = self.ledger.judge(stamp, 1)
        except kind:
            return
        raise AssertionError(f"{stamp} was taken for {judged}")

    @rule()
    def restart(self) -> None:
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(self.ledger.snapshot()))
        self.ledger = ProducerLedger.restore(plain)

    @invariant()
    def replaying_the_log_rebuilds_the_same_state(self) -> None:
        replayed = ProducerLedger()
        for event in self.journal:
            replayed.apply(event)
        assert replayed.snapshot() == self.ledger.snapshot()


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase


def test_the_producer_idle_longest_is_forgotten() -> None:
    """The ledger is bounded; who published last is remembered."""
    ledger = ProducerLedger()
    for number in range(1, 10_002):
        stamp = ProducerStamp(ProducerId(number), Epoch(0), Sequence(0))
        ledger.apply(Appended(stamp=stamp, sequence_count=1, base_offset=Offset(number)))

    assert len(ledger) == 10_000
    assert ledger.judge(ProducerStamp(ProducerId(2), Epoch(0), Sequence(0)), 1) is not None
    assert ledger.judge(ProducerStamp(ProducerId(1), Epoch(0), Sequence(0)), 1) is None
