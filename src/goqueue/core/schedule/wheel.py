"""A hierarchical timing wheel that holds millions of times as plain numbers.

Shape: calculator. Four levels of slots, each slot an array of (due, offset) pairs:

    level   slots   width of a slot        reaches
    0       256     10 ms                  2.56 s
    1       64      2.56 s                 163.84 s
    2       64      163.84 s               2.9 hours
    3       64      10,485.76 s            7.77 days

What lies beyond waits in an overflow. When time enters a slot of a higher level, its pairs move
down. Nothing is ever taken out early: who cancels a time ignores it when it comes.
"""

from array import array
from typing import Any, Final

import numpy as np

TICK_MS: Final = 10
_BITS: Final = (8, 6, 6, 6)
_SHIFTS: Final = (0, 8, 14, 20)
_REACH: Final = np.array([1 << (bits + shift) for bits, shift in zip(_BITS, _SHIFTS, strict=True)])
HORIZON_TICKS: Final = 1 << (_BITS[-1] + _SHIFTS[-1])
"""How far the slots reach; 7.77 days."""
_LEVELS: Final = len(_BITS)
_STEPS_MAX: Final = 256
"""Events taken one by one before everything is sorted anew instead."""

Pairs = np.ndarray[Any, Any]
"""Rows of (due_ms, offset)."""

NO_PAIRS: Final[Pairs] = np.empty((0, 2), np.int64)


class Wheel:
    """Gives back what was put in when its time has come, never before."""

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

    def add(self, due_ms: int, offset: int) -> None:
        """Put in one time."""
        tick = max(-(-due_ms // TICK_MS), self._tick + 1)
        delta = tick - self._tick
        self._count += 1
        for level in range(_LEVELS):
            if delta < _REACH[level]:
                slot = (tick >> _SHIFTS[level]) & ((1 << _BITS[level]) - 1)
                target = self._levels[level].setdefault(slot, array("q"))
                break
        else:
            target = self._overflow
            self._note_overflow(tick)
        target.append(due_ms)
        target.append(offset)

    def add_many(self, pairs: Pairs) -> None:
        """Put in many times."""
        self._count += len(pairs)
        self._place(np.ascontiguousarray(pairs, np.int64))

    def advance(self, now_ms: int) -> Pairs:
        """Move to a time and return everything due by then. Time that went back changes nothing."""
        target = now_ms // TICK_MS
        due: list[Pairs] = []
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
            return NO_PAIRS
        found = due[0] if len(due) == 1 else np.concatenate(due)
        self._count -= len(found)
        return found

    def _place(self, pairs: Pairs) -> None:
        """Sort pairs into their slots."""
        if not len(pairs):
            return
        ticks = np.maximum(-(-pairs[:, 0] // TICK_MS), self._tick + 1)
        levels = np.searchsorted(_REACH, ticks - self._tick, side="right")
        slots = np.zeros(len(pairs), np.int64)
        for level in range(_LEVELS):
            here = levels == level
            slots[here] = (ticks[here] >> _SHIFTS[level]) & ((1 << _BITS[level]) - 1)
        codes = (levels << _BITS[0]) | slots
        order = np.argsort(codes, kind="stable")
        codes, pairs = codes[order], pairs[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1))
        ends = np.concatenate((starts[1:], [len(codes)]))
        for code, start, end in zip(
            codes[starts].tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            level, slot = code >> _BITS[0], code & ((1 << _BITS[0]) - 1)
            if level == _LEVELS:
                self._note_overflow(int(ticks[levels == _LEVELS].min()))
                target = self._overflow
            else:
                target = self._levels[level].setdefault(slot, array("q"))
            target.frombytes(pairs[start:end].tobytes())

    def _note_overflow(self, tick: int) -> None:
        self._overflow_tick = min(self._overflow_tick, tick) if self._overflow else tick

    def _next_tick(self) -> int | None:
        """Return the next tick at which a slot is entered that holds something."""
        found: int | None = None
        for level, slots in enumerate(self._levels):
            if slots:
                turn = (1 << _BITS[level]) - 1
                here = self._tick >> _SHIFTS[level]
                steps = min(((slot - here - 1) & turn) + 1 for slot in slots)
                tick = (here + steps) << _SHIFTS[level]
                found = tick if found is None or tick < found else found
        if self._overflow:
            # Taken in half-way, so that many come in together.
            tick = max(self._overflow_tick - HORIZON_TICKS // 2, self._tick + 1)
            found = tick if found is None or tick < found else found
        return found

    def _enter(self, tick: int) -> list[Pairs]:
        """Take what is due at a tick and move down what lies in the slots entered."""
        due: list[Pairs] = []
        if self._overflow and tick >= self._overflow_tick - HORIZON_TICKS // 2:
            pairs, self._overflow = _pairs(self._overflow), array("q")
            due += self._keep_later(pairs, tick)
        for level in range(_LEVELS - 1, 0, -1):
            shift = _SHIFTS[level]
            if tick & ((1 << shift) - 1) == 0:
                slot = self._levels[level].pop((tick >> shift) & ((1 << _BITS[level]) - 1), None)
                if slot is not None:
                    due += self._keep_later(_pairs(slot), tick)
        slot = self._levels[0].pop(tick & ((1 << _BITS[0]) - 1), None)
        return due if slot is None else [*due, _pairs(slot)]

    def _keep_later(self, pairs: Pairs, tick: int) -> list[Pairs]:
        """Put back what is not due yet; return the rest."""
        is_due = pairs[:, 0] <= tick * TICK_MS
        if not is_due.any():
            self._place(pairs)
            return []
        self._place(pairs[~is_due])
        return [pairs[is_due]]

    def _sort_anew(self, target: int) -> Pairs:
        """Take everything out and put back what is due after a tick."""
        everything = self.pairs()
        self._levels = [{} for _ in range(_LEVELS)]
        self._overflow = array("q")
        self._tick = target
        due = self._keep_later(everything, target)
        return due[0] if due else NO_PAIRS

    def pairs(self) -> Pairs:
        """Return all that is held, in no order."""
        held = [_pairs(slot) for slots in self._levels for slot in slots.values()]
        if self._overflow:
            held.append(_pairs(self._overflow))
        return np.concatenate(held) if held else NO_PAIRS


def _pairs(slot: "array[int]") -> Pairs:
    return np.frombuffer(slot, np.int64).reshape(-1, 2)
