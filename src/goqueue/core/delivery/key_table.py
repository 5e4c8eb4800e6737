"""Where messages are in packed columns: their state, and the message that follows in their line.

Shape: calculator. Most of the time every offset of a window has a place, so that finding one is a
subtraction. Where few of a window are left, only those have one, and finding is a binary search.
"""

from typing import Final

import numpy as np
from pyroaring import BitMap64

from goqueue.core.delivery.runs import Numbers, array_of, set_from

NONE: Final = -1
OPEN: Final = 0
SETTLED: Final = 1
PASSED: Final = 2

CAPACITY_MIN: Final = 1_024
WIDE_SHARE: Final = 16
WIDE_ENTRIES_MAX: Final = 1 << 18
"""A window may be so many times as wide as there are messages in it; a very wide one only twice."""


class KeyTable:
    """The columns of one partition's lines. What is passed is not there any more."""

    def __init__(self, *, spare: int = CAPACITY_MIN) -> None:
        self._spare = spare
        self._count = 0
        self._passed_count = 0
        self._first = 0
        self._offsets: Numbers | None = None
        """Ascending; None where there is a place for every offset from the first on."""
        self.following: Numbers = np.empty(spare, np.int64)
        self.states: Numbers = np.empty(spare, np.uint8)

    def __len__(self) -> int:
        return self._count - self._passed_count

    @property
    def size_bytes(self) -> int:
        """Return the memory taken."""
        own = 0 if self._offsets is None else self._offsets.nbytes
        return own + self.following.nbytes + self.states.nbytes

    def at(self, offsets: Numbers) -> Numbers:
        """Return where offsets are that are all there."""
        if self._offsets is None:
            return offsets - self._first
        return np.searchsorted(self._offsets[: self._count], offsets)

    def find(self, offsets: Numbers) -> tuple[Numbers, Numbers]:
        """Return where offsets are, and which of them are there at all."""
        if self._offsets is None:
            places = offsets - self._first
            is_there = (places >= 0) & (places < self._count)
        else:
            places = np.searchsorted(self._offsets[: self._count], offsets)
            is_there = places < self._count
            is_there[is_there] = self._offsets[places[is_there]] == offsets[is_there]
        places = places[is_there]
        is_waiting = self.states[places] != PASSED
        is_there[is_there] = is_waiting
        return places[is_waiting], is_there

    def places(self, offsets: BitMap64) -> Numbers:
        """Return where those of some offsets are that are there."""
        if not offsets or not self._count:
            return np.empty(0, np.int64)
        first, last = offsets.min(), offsets.max()
        if last - first + 1 == len(offsets):
            low, high = self._between(first, last + 1)
            found: Numbers = low + (self.states[low:high] != PASSED).nonzero()[0]
            return found
        if len(offsets) > self._count:
            offsets = offsets & self._known()
        wanted = array_of(offsets)
        if self._offsets is None and first >= self._first and last < self._first + self._count:
            at = wanted - self._first
            # Mostly all of them are: telling that takes a fraction of finding out which.
            if self.states[at].max() < PASSED:
                return at
        at, _ = self.find(wanted)
        return at

    def _between(self, start: int, end: int) -> tuple[int, int]:
        """Return the places of a half-open range of offsets."""
        if self._offsets is not None:
            low, high = np.searchsorted(self._offsets[: self._count], (start, end)).tolist()
            return low, high
        low = min(max(start - self._first, 0), self._count)
        return low, min(max(end - self._first, low), self._count)

    def _known(self) -> BitMap64:
        if self._offsets is not None:
            return set_from(self._offsets[: self._count])
        known = BitMap64()
        known.add_range(self._first, self._first + self._count)
        return known

    def offsets_at(self, places: Numbers) -> Numbers:
        """Return the offsets of messages that are somewhere."""
        return places + self._first if self._offsets is None else self._offsets[places]

    def settled(self) -> Numbers:
        """Return the places of what is settled and not passed."""
        return np.flatnonzero(self.states[: self._count] == SETTLED)

    def append(self, offsets: Numbers, following: Numbers) -> None:
        """Put messages, ascending, behind all others."""
        first, end = int(offsets[0]), int(offsets[-1]) + 1
        if not self._count:
            self._first, self._offsets = first, None
        if self._offsets is None and end - self._first > self._room(len(self) + len(offsets)):
            self._narrow()
        if self._offsets is not None:
            self._extend(self._count + len(offsets))
            at: Numbers = np.arange(self._count, self._count + len(offsets))
            self._offsets[at] = offsets
        else:
            self._extend(end - self._first)
            at = offsets - self._first
            self.states[self._count : end - self._first] = PASSED
            self._passed_count += end - self._first - self._count - len(offsets)
        self.states[at] = OPEN
        self.following[at] = following
        self._count = int(at[-1]) + 1

    def pass_by(self, places: Numbers) -> None:
        """Let messages be no longer there."""
        self.states[places] = PASSED
        self._passed_count += len(places)

    def tidy(self) -> None:
        """Use less memory if most of it is for what was passed."""
        if self._offsets is not None:
            if self._passed_count > self._spare + len(self):
                self._narrow()
                self._widen()
            return
        if self._count <= self._room(len(self)):
            return
        rest = self.states[: self._count] != PASSED
        lead = int(rest.argmax()) if len(self) else self._count
        self._keep(slice(lead, self._count))
        self._first += lead
        self._passed_count -= lead
        if self._count > self._room(len(self)) * 7 // 8:
            self._narrow()

    def _room(self, live: int) -> int:
        """Return how many places there may be for so many messages."""
        return self._spare + max(2 * live, min(WIDE_SHARE * live, WIDE_ENTRIES_MAX))

    def _keep(self, kept: slice | Numbers) -> None:
        """Keep some entries only, in memory of their own."""
        self.following = self.following[kept].copy()
        self.states = self.states[kept].copy()
        self._count = len(self.states)

    def _narrow(self) -> None:
        """Have places for what is there only."""
        places = np.flatnonzero(self.states[: self._count] != PASSED)
        self._offsets = self.offsets_at(places)
        self._keep(places)
        self._passed_count = 0

    def _widen(self) -> None:
        """Have a place for every offset again, if that does not take too much."""
        assert self._offsets is not None, "just made narrow"
        if not self._count:
            self._offsets = None
            return
        offsets = self._offsets[: self._count]
        width = int(offsets[-1] - offsets[0]) + 1
        if width > self._room(self._count) * 3 // 4:
            return
        at = offsets - offsets[0]
        following = np.full(width, NONE, np.int64)
        states = np.full(width, PASSED, np.uint8)
        following[at], states[at] = self.following[: self._count], self.states[: self._count]
        self._first, self._offsets = int(offsets[0]), None
        self._passed_count = width - self._count
        self.following, self.states, self._count = following, states, width

    def _extend(self, count: int) -> None:
        """Have room for so many entries."""
        if count <= len(self.states) and (self._offsets is None or count <= len(self._offsets)):
            return
        spare = max(count, 2 * self._count) - self._count
        if self._offsets is not None:
            self._offsets = np.concatenate(
                (self._offsets[: self._count], np.empty(spare, np.int64))
            )
        self.following = np.concatenate((self.following[: self._count], np.empty(spare, np.int64)))
        self.states = np.concatenate((self.states[: self._count], np.empty(spare, np.uint8)))
