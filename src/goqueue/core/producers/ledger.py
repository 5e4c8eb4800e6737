"""What a partition remembers of its producers, so that a repeat is recognised.

Shape: decider. ``judge`` reads and decides, ``apply`` changes. The log is the journal: every frame
carries its producer's stamp, so replaying frames through ``apply`` rebuilds the ledger.
"""

from bisect import bisect_right
from typing import Any

import msgspec

from goqueue.base.errors import (
    InvalidRequestError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, Offset, ProducerId, Sequence
from goqueue.base.limits import PRODUCER_BATCHES_REMEMBERED, PRODUCERS_PER_PARTITION_MAX
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp, Repeat


class Appended(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Messages of one producer reached the log."""

    stamp: ProducerStamp
    sequence_count: int
    base_offset: Offset
    repeats: tuple[Repeat, ...] = ()


class Run(msgspec.Struct, gc=False):
    """Messages whose sequences and offsets both follow one another."""

    sequence: Sequence
    count: int
    base_offset: Offset
    repeats: tuple[Repeat, ...] = ()


class Original(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where the messages of a repeated batch are."""

    base_offset: Offset
    repeats: tuple[Repeat, ...] = ()


class _Life(msgspec.Struct, gc=False):
    epoch: Epoch
    next_sequence: Sequence
    runs: list[Run]


class ProducerLedger:
    """Sequences of one partition, by producer."""

    def __init__(self) -> None:
        self._lives: dict[ProducerId, _Life] = {}

    def __len__(self) -> int:
        return len(self._lives)

    def __repr__(self) -> str:
        return f"<ProducerLedger of {len(self)} producers>"

    def judge(self, stamp: ProducerStamp, sequence_count: int) -> Original | None:
        """Return None if the batch is the next one, or where its original is; raise if neither."""
        if not stamp.is_idempotent:
            return None
        life = self._lives.get(stamp.producer_id)
        if life is None or stamp.epoch > life.epoch:
            if stamp.sequence == 0:
                return None
            if life is None:
                raise UnknownProducerError(
                    f"producer {stamp.producer_id} is not known here and its sequence is"
                    f" {stamp.sequence}, not 0"
                )
            raise OutOfOrderSequenceError(
                f"producer {stamp.producer_id} epoch {stamp.epoch} begins at sequence"
                f" {stamp.sequence}, not 0"
            )
        if stamp.epoch < life.epoch:
            raise ProducerFencedError(
                f"producer {stamp.producer_id} epoch {stamp.epoch} is fenced by epoch {life.epoch}"
            )
        if stamp.sequence == life.next_sequence:
            return None
        return self._original(life, stamp, sequence_count)

    def judge_all(self, frames: list[CheckedFrame]) -> list[Original]:
        """Return where the originals are of those frames, from the first on, published before.

        A crash may have kept the beginning of a request only; the rest of its repeat is news.
        """
        first = frames[0].stamp
        if not first.is_idempotent and first != NO_STAMP:
            raise InvalidRequestError("a stamp without a producer has no epoch and no sequence")
        count = frames[0].sequence_count
        if len(frames) == 1:
            original = self.judge(first, count)
            return [] if original is None else [original]
        for frame in frames[1:]:
            expected = first.after(count) if first.is_idempotent else NO_STAMP
            if frame.stamp != expected:
                raise InvalidRequestError("the frames of one request follow one another")
            count += frame.sequence_count
        originals: list[Original] = []
        for frame in frames:
            known = self.judge(frame.stamp, frame.sequence_count)
            if known is None:
                break
            originals.append(known)
        return originals

    @staticmethod
    def _original(life: _Life, stamp: ProducerStamp, sequence_count: int) -> Original:
        end = stamp.sequence + sequence_count
        if end <= life.next_sequence:
            place = bisect_right(life.runs, stamp.sequence, key=lambda run: run.sequence) - 1
            run = life.runs[place] if place >= 0 else None
            if run is not None and end <= run.sequence + run.count:
                return _part_of(run, start=stamp.sequence - run.sequence, count=sequence_count)
        raise OutOfOrderSequenceError(
            f"producer {stamp.producer_id} sent sequence {stamp.sequence};"
            f" {life.next_sequence} is next"
        )

    def apply(self, event: Appended) -> None:
        """Remember a batch that is in the log. One that is remembered already changes nothing."""
        stamp = event.stamp
        lives, producer_id = self._lives, stamp.producer_id
        if not stamp.is_idempotent:
            return
        life = lives.get(producer_id)
        if life is not None:
            if (stamp.epoch, stamp.sequence) < (life.epoch, life.next_sequence):
                return
            # Putting it back last keeps the dictionary in order of use.
            del lives[producer_id]
        next_sequence = Sequence(stamp.sequence + event.sequence_count)
        if life is None or life.epoch != stamp.epoch:
            # A list that is made with its item is smaller than one that is appended to.
            life = _Life(stamp.epoch, next_sequence, [_run_of(event)])
        else:
            life.next_sequence = next_sequence
            _remember(life.runs, event)
        lives[producer_id] = life
        if len(lives) > PRODUCERS_PER_PARTITION_MAX:
            del lives[next(iter(lives))]

    def snapshot(self) -> list[Any]:
        """Return the whole ledger as plain values."""
        return [
            [
                producer_id,
                life.epoch,
                life.next_sequence,
                [msgspec.to_builtins(r) for r in life.runs],
            ]
            for producer_id, life in self._lives.items()
        ]

    @classmethod
    def restore(cls, snapshot: list[Any]) -> "ProducerLedger":
        """Rebuild a ledger from ``snapshot``."""
        ledger = cls()
        for producer_id, epoch, next_sequence, runs in snapshot:
            ledger._lives[producer_id] = _Life(
                epoch=epoch, next_sequence=next_sequence, runs=msgspec.convert(runs, list[Run])
            )
        return ledger


def _part_of(run: Run, *, start: int, count: int) -> Original:
    """Return where ``count`` messages of a run are, rows counted from its ``start``-th."""
    before = sum(repeat.row < start for repeat in run.repeats)
    return Original(
        base_offset=Offset(run.base_offset + start - before),
        repeats=tuple(
            Repeat(repeat.row - start, repeat.partition, repeat.offset)
            for repeat in run.repeats
            if start <= repeat.row < start + count
        ),
    )


def _run_of(event: Appended) -> Run:
    return Run(event.stamp.sequence, event.sequence_count, event.base_offset, event.repeats)


def _remember(runs: list[Run], event: Appended) -> None:
    """Add a batch to the runs, widening the last one where both ordinals continue."""
    sequence = event.stamp.sequence
    last = runs[-1] if runs else None
    if (
        last is not None
        and not last.repeats
        and not event.repeats
        and last.sequence + last.count == sequence
        and last.base_offset + last.count == event.base_offset
    ):
        last.count += event.sequence_count
        return
    runs.append(_run_of(event))
    if len(runs) > PRODUCER_BATCHES_REMEMBERED:
        del runs[0]
