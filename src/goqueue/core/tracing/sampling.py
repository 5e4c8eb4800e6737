"""Which messages are traced: one of every so many offsets, chosen as if by chance.

Shape: calculator. Offsets are cut into strata, as many to a million as the rate says, and of each
one offset is chosen by a hash. So a range is sampled by looking at its sampled offsets only, and
every stage of a message's life and every restart choose the same.
"""

from array import array
from bisect import bisect_left
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

from goqueue.core.tracing.ids import MASK, mix, mix_all

SCALE: Final = 1_000_000
"""Rates are whole millionths."""
WINDOW_STRATA: Final = 256
WINDOWS_MAX: Final = 3
"""Strata are looked at so many at a time, and as many windows kept: where messages come in, and
where groups read. A partition needs few kilobytes for them."""
_OFFSET_MAX: Final = (2**63 - 1) // SCALE - SCALE
"""Beyond it columns of 64-bit numbers would overflow, and are not used."""

Numbers = np.ndarray[Any, Any]


def millionths_of(rate: float) -> int:
    """Return a rate as whole millionths; whatever is not nothing is at least one."""
    return min(max(round(rate * SCALE), 1 if rate > 0 else 0), SCALE)


class Sampler:
    """Chooses offsets of one partition. The rate may change from an offset on."""

    def __init__(self, tag: int, rate: float) -> None:
        self._tag = tag
        self._plan: list[tuple[int, int]] = [(0, millionths_of(rate))]
        self._windows: dict[tuple[int, int], array[int]] = {}
        self._quiet = (0, 0)
        """A range of which none is chosen: the last that was asked for, up to the next chosen."""

    def __repr__(self) -> str:
        return f"<Sampler of {self.millionths} in a million>"

    @property
    def millionths(self) -> int:
        """Return how many of a million new messages are chosen."""
        return self._plan[-1][1]

    @property
    def is_off(self) -> bool:
        """Tell that no message ever is chosen."""
        return len(self._plan) == 1 and not self._plan[0][1]

    def change(self, rate: float, *, from_offset: int) -> None:
        """Choose by another rate from an offset on; what was decided stays."""
        millionths = millionths_of(rate)
        if millionths == self.millionths:
            return
        self._quiet = (0, 0)
        if self._plan[-1][0] == from_offset:
            self._plan.pop()
        self._plan.append((from_offset, millionths))
        if len(self._plan) > PLAN_MAX:
            del self._plan[0]

    def is_quiet(self, start: int, end: int) -> bool:
        """Return True if it is known that none of a range is chosen."""
        quiet_start, quiet_end = self._quiet
        return quiet_start <= start and end <= quiet_end

    def choose(self, start: int, end: int) -> BitMap64:
        """Return the chosen offsets of a half-open range."""
        chosen = BitMap64()
        latest, millionths = self._plan[-1]
        if latest <= start < end:
            # What is appended, and most of what is asked for, is chosen by the rate of now.
            if millionths:
                self._choose(chosen, start, end, millionths)
            return chosen
        upper = end
        for from_offset, millionths in reversed(self._plan):
            lower = max(start, from_offset)
            if lower < upper and millionths:
                self._choose(chosen, lower, upper, millionths)
            upper = min(upper, from_offset)
            if upper <= start:
                break
        return chosen

    def _choose(self, chosen: BitMap64, start: int, end: int, millionths: int) -> None:
        if millionths == SCALE:
            chosen.add_range(start, end)
            return
        first, last = start * millionths // SCALE, (end - 1) * millionths // SCALE
        if end > _OFFSET_MAX:
            for stratum in range(first, last + 1):
                offset = _pick(self._tag, stratum, millionths)
                if start <= offset < end:
                    chosen.add(offset)
            return
        if last // WINDOW_STRATA - first // WINDOW_STRATA > WINDOWS_MAX:
            offsets = _pick_all(self._tag, np.arange(first, last + 1, dtype=np.int64), millionths)
            chosen.update(offsets[(offsets >= start) & (offsets < end)].tolist())
            return
        for number in range(first // WINDOW_STRATA, last // WINDOW_STRATA + 1):
            window = self._window(number, millionths)
            low = bisect_left(window, start)
            high = bisect_left(window, end, low)
            chosen.update(window[low:high])
            if low == high < len(window):
                self._note_quiet(start, window[low])

    def _note_quiet(self, start: int, next_chosen: int) -> None:
        if start >= self._plan[-1][0]:
            self._quiet = (start, next_chosen)

    def _window(self, number: int, millionths: int) -> "array[int]":
        """Return the chosen offsets of some strata, worked out together and kept a while."""
        known = self._windows.get((number, millionths))
        if known is None:
            first = number * WINDOW_STRATA
            strata = np.arange(first, first + WINDOW_STRATA, dtype=np.int64)
            known = array("Q", _pick_all(self._tag, strata, millionths).tobytes())
            self._windows[number, millionths] = known
            if len(self._windows) > WINDOWS_MAX:
                del self._windows[next(iter(self._windows))]
        return known


PLAN_MAX: Final = 16
"""Changes of a rate that are remembered; before the oldest, the oldest rate holds."""


def _pick(tag: int, stratum: int, millionths: int) -> int:
    start = -(-stratum * SCALE // millionths)
    width = -(-(stratum + 1) * SCALE // millionths) - start
    chance = mix((stratum ^ tag) & MASK) >> 32
    return start + (chance * width >> 32)


def _pick_all(tag: int, strata: Numbers, millionths: int) -> Numbers:
    starts = -(-strata * SCALE // millionths)
    widths = -(-(strata + 1) * SCALE // millionths) - starts
    chances = mix_all(strata.astype(np.uint64) ^ np.uint64(tag)) >> np.uint64(32)
    steps: Numbers = (chances * widths.astype(np.uint64)) >> np.uint64(32)
    return starts + steps.astype(np.int64)
