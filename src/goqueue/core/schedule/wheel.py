"""A hierarchical timing wheel that holds millions of times as plain numbers.

Shape: calculator. Four levels of slots, each slot an array with one number for each time:

    level   slots   width of a slot        reaches         63        20       0
    0       256     10 ms                  2.56 s           +---------+-------+
    1       64      2.56 s                 163.84 s         | offset  | tick  |
    2       64      163.84 s               2.9 hours        |         | (low) |
    3       64      10,485.76 s            7.77 days        +---------+-------+

Where a number lies tells the rest of its tick. What lies beyond waits in an overflow of (tick,
offset) pairs. When time enters a slot of a higher level, its numbers move down. Nothing is ever
taken out early: who cancels a time ignores it when it comes.
"""

from array import array
from typing import Any, Final

import numpy as np

TICK_MS: Final = 10
_BITS: Final = (8, 6, 6, 6)
_SHIFTS: Final = (0, 8, 14, 20)
_LEVELS: Final = len(_BITS)
_REACH: Final = np.array([1 << (bits + shift) for bits, shift in zip(_BITS, _SHIFTS, strict=True)])
HORIZON_TICKS: Final = int(_REACH[-1])
"""How far the slots reach; 7.77 days."""
_LOW_BITS: Final = _SHIFTS[-1]
_LOW: Final = (1 << _LOW_BITS) - 1
OFFSET_MAX: Final = (1 << (63 - _LOW_BITS)) - 1
"""Largest offset that fits beside its tick: eight million million messages in a partition."""
_STEPS_MAX: Final = 256
"""Slots entered one by one before everything is sorted anew instead."""

Numbers = np.ndarray[Any, Any]

NONE: Final[Numbers] = np.empty(0, np.int64)


class Wheel:
    """Gives back offsets when their time has come, never before."""

    def __init__(self, now_ms: int) -> None:
        self._tick = now_ms // TICK_MS
        self._levels: list[dict[int, array[int]]] = [{} for _ in range(_LEVELS)]
        self._overflow: array[int] = array("q")
        self._overflow_tick = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Wheel of {self._count} at tick {self._tick}>"

    @property
    def tick(self) -> int:
        """Return the tick reached so far."""
        return self._tick

    @property
    def next_ms(self) -> int | None:
        """Return when there is something to do; earlier there is nothing."""
        tick = self._next_tick()
        return None if tick is None else tick * TICK_MS

    def clear(self) -> None:
        """Take out everything, and stay at the same time."""
        self._levels = [{} for _ in range(_LEVELS)]
        self._overflow = array("q")
        self._count = 0

    def add(self, due_ms: int, offset: int) -> None:
        """Put in one time."""
        assert 0 <= offset <= OFFSET_MAX, "an offset fits beside its tick"
        tick = max(-(-due_ms // TICK_MS), self._tick + 1)
        delta = tick - self._tick
        self._count += 1
        for level in range(_LEVELS):
            if delta < _REACH[level]:
                slot = self._slot(level, (tick >> _SHIFTS[level]) & _turn(level))
                slot.append(offset << _LOW_BITS | tick & _LOW)
                return
        self._note_overflow(tick)
        self._overflow.append(tick)
        self._overflow.append(offset)

    def add_many(self, due_ms: Numbers, offsets: Numbers) -> None:
        """Put in many times."""
        if len(offsets):
            assert int(offsets.min()) >= 0, "an offset fits beside its tick"
            assert int(offsets.max()) <= OFFSET_MAX, "an offset fits beside its tick"
        self._count += len(offsets)
        self._place(-(-due_ms // TICK_MS), offsets)

    def advance(self, now_ms: int) -> Numbers:
        """Move to a time and return all that is due by then. Time that went back is ignored."""
        target = now_ms // TICK_MS
        due: list[Numbers] = []
        for _ in range(_STEPS_MAX):
            tick = self._next_tick()
            if tick is None or tick > target:
                break
            self._tick = tick
            due += self._enter(tick)
        else:
            due.append(self._sort_anew(target))
        self._tick = max(self._tick, target)
        if not due:
            return NONE
        found = due[0] if len(due) == 1 else np.concatenate(due)
        self._count -= len(found)
        return found

    def _slot(self, level: int, number: int) -> "array[int]":
        return self._levels[level].setdefault(number, array("q"))

    def _place(self, ticks: Numbers, offsets: Numbers) -> None:
        """Sort times into their slots."""
        if not len(offsets):
            return
        ticks = np.maximum(ticks, self._tick + 1)
        levels = np.searchsorted(_REACH, ticks - self._tick, side="right")
        places = levels << _BITS[0]
        for level in range(_LEVELS):
            here = levels == level
            places[here] |= (ticks[here] >> _SHIFTS[level]) & _turn(level)
        order = np.argsort(places, kind="stable")
        places, ticks, offsets = places[order], ticks[order], offsets[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(places)) + 1))
        ends = np.concatenate((starts[1:], [len(places)])).tolist()
        codes = offsets << _LOW_BITS | ticks & _LOW
        for start, end in zip(starts.tolist(), ends, strict=True):
            level, number = divmod(int(places[start]), 1 << _BITS[0])
            if level < _LEVELS:
                self._slot(level, number).frombytes(codes[start:end].tobytes())
                continue
            self._note_overflow(int(ticks[start:end].min()))
            pairs = np.stack((ticks[start:end], offsets[start:end]), axis=1)
            self._overflow.frombytes(pairs.tobytes())

    def _note_overflow(self, tick: int) -> None:
        self._overflow_tick = min(self._overflow_tick, tick) if self._overflow else tick

    def _begins(self, level: int, number: int) -> int:
        """Return the tick at which a slot will be entered."""
        here = self._tick >> _SHIFTS[level]
        return (here + ((number - here - 1) & _turn(level)) + 1) << _SHIFTS[level]

    def _next_tick(self) -> int | None:
        """Return the next tick at which a slot is entered that holds something."""
        ticks = [
            min(self._begins(level, number) for number in slots)
            for level, slots in enumerate(self._levels)
            if slots
        ]
        if self._overflow:
            # Taken in half-way, so that many come in together.
            ticks.append(max(self._overflow_tick - HORIZON_TICKS // 2, self._tick + 1))
        return min(ticks, default=None)

    def _enter(self, tick: int) -> list[Numbers]:
        """Take what is due at a tick and move down what lies in the slots entered."""
        due: list[Numbers] = []
        if self._overflow and tick >= self._overflow_tick - HORIZON_TICKS // 2:
            pairs, self._overflow = _pairs(self._overflow), array("q")
            due += self._keep_later(pairs[:, 0], pairs[:, 1], tick)
        for level in range(_LEVELS - 1, -1, -1):
            shift = _SHIFTS[level]
            if tick & ((1 << shift) - 1) == 0:
                slot = self._levels[level].pop((tick >> shift) & _turn(level), None)
                if slot is not None:
                    due += self._keep_later(*_unpack(slot, level, tick), tick)
        return due

    def _keep_later(self, ticks: Numbers, offsets: Numbers, tick: int) -> list[Numbers]:
        """Put back what is not due yet; return the rest."""
        is_due = ticks <= tick
        if is_due.all():
            return [offsets]
        self._place(ticks[~is_due], offsets[~is_due])
        return [offsets[is_due]] if is_due.any() else []

    def _sort_anew(self, target: int) -> Numbers:
        """Take everything out and put back what is due after a tick."""
        ticks, offsets = self._everything()
        self._levels = [{} for _ in range(_LEVELS)]
        self._overflow = array("q")
        self._tick = target
        due = self._keep_later(ticks, offsets, target)
        return due[0] if due else NONE

    def _everything(self) -> tuple[Numbers, Numbers]:
        held = [
            _unpack(slot, level, self._begins(level, number))
            for level, slots in enumerate(self._levels)
            for number, slot in slots.items()
        ]
        if self._overflow:
            pairs = _pairs(self._overflow)
            held.append((pairs[:, 0], pairs[:, 1]))
        if not held:
            return NONE, NONE
        ticks, offsets = zip(*held, strict=True)
        return np.concatenate(ticks), np.concatenate(offsets)


def _turn(level: int) -> int:
    """Return the largest number of a slot."""
    return (1 << _BITS[level]) - 1


def _pairs(overflow: "array[int]") -> Numbers:
    return np.frombuffer(overflow, np.int64).reshape(-1, 2)


def _unpack(slot: "array[int]", level: int, tick: int) -> tuple[Numbers, Numbers]:
    """Return the ticks and offsets of a slot that is entered at a tick."""
    codes = np.frombuffer(slot, np.int64)
    return tick + (codes & ((1 << _SHIFTS[level]) - 1)), codes >> _LOW_BITS
