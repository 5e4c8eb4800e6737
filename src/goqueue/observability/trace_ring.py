"""The traces in memory: the latest notes, as many as have room, oldest out first."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec
from pyroaring import BitMap64

from goqueue.core.tracing.ids import TracePlace
from goqueue.core.tracing.kinds import FIRED, PERSISTED, PUBLISHED, REDRIVEN, ROUTED
from goqueue.core.tracing.note import Note, last_of, packed

_READY: Final = frozenset({PUBLISHED, PERSISTED, ROUTED, REDRIVEN})
"""Events from which on a message may be delivered."""
FIRED_LOOKED_AT_MAX: Final = 64
"""Releases of delayed messages that are looked through to find when one became due."""


class _Shelf:
    """The notes of one partition that made messages ready, in the order of their offsets."""

    __slots__ = ("firsts", "head", "notes")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.notes: list[Note] = []
        self.head = 0

    def add(self, note: Note, first: int) -> None:
        place = len(self.firsts)
        if self.firsts and first < self.firsts[-1]:
            # Acks of one sync go out in any order.
            place = bisect_right(self.firsts, first, self.head)
        self.firsts.insert(place, first)
        self.notes.insert(place, note)

    def drop(self) -> bool:
        """Forget the oldest; tell whether nothing is left."""
        self.head += 1
        # At least half of it goes, so that a note is moved once on average.
        if 2 * self.head >= len(self.notes):
            del self.firsts[: self.head], self.notes[: self.head]
            self.head = 0
        return not self.notes

    def over(self, first: int, last: int) -> Iterator[Note]:
        """Yield the notes that may have offsets of a range."""
        place = max(bisect_right(self.firsts, first, self.head) - 1, self.head)
        firsts, notes = islice(self.firsts, place, None), islice(self.notes, place, None)
        for begin, note in zip(firsts, notes, strict=True):
            if begin > last:
                return
            yield note


class TraceRing:
    """Bounded by the number of spans. Only the event loop's thread changes it."""

    def __init__(self, spans_max: int) -> None:
        self.spans_max = spans_max
        self.spans = 0
        self.added = 0
        """Notes that ever were added: a place to go on from."""
        self._notes: deque[Note] = deque()
        self._shelves: dict[int, _Shelf] = {}
        self._fired: dict[int, deque[Note]] = {}

    def __repr__(self) -> str:
        return f"<TraceRing of {self.spans} spans in {len(self._notes)} notes>"

    def add(self, note: Note) -> None:
        """Keep a note, and let the oldest go until there is room for it."""
        if note.count > self.spans_max:
            spans = note.count // len(note.offsets)
            last = last_of(note.offsets, max(self.spans_max // spans, 1))
            note = msgspec.structs.replace(note, messages=last)
        first, note = note.offsets.min(), packed(note)
        self._notes.append(note)
        self.added += 1
        self.spans += note.count
        if note.kind in _READY:
            shelf = self._shelves.get(note.place.tag)
            if shelf is None:
                shelf = self._shelves[note.place.tag] = _Shelf()
            shelf.add(note, first)
        elif note.kind == FIRED:
            fired = self._fired.setdefault(note.place.tag, deque(maxlen=FIRED_LOOKED_AT_MAX))
            fired.append(note)
        while self.spans > self.spans_max:
            self._let_go()

    def _let_go(self) -> None:
        note = self._notes.popleft()
        self.spans -= note.count
        tag = note.place.tag
        if note.kind in _READY and self._shelves[tag].drop():
            del self._shelves[tag]
        elif note.kind == FIRED:
            fired = self._fired.get(tag)
            if fired and fired[0] is note:
                fired.popleft()
            if not fired:
                self._fired.pop(tag, None)

    def notes(self) -> list[Note]:
        """Return everything, oldest first."""
        return list(self._notes)

    def since(self, place: int) -> list[Note]:
        """Return what was added behind a place."""
        skip = max(place - (self.added - len(self._notes)), 0)
        return list(islice(self._notes, skip, None))

    def ready(self, place: TracePlace, offsets: BitMap64) -> Iterator[tuple[BitMap64, int]]:
        """Yield messages with the moment from which on they could be delivered; 0 if unknown."""
        left = offsets
        for note in reversed(self._fired.get(place.tag, ())):
            here = left & note.offsets
            if here:
                yield here, note.at_ns
                left = left - here
        shelf = self._shelves.get(place.tag)
        if left and shelf is not None:
            # A list: who is told of one part may add a note, and older ones go.
            for note in list(shelf.over(left.min(), left.max())):
                here = left & note.offsets
                if here:
                    yield here, note.at_ns
                    left = left - here
                    if not left:
                        return
        if left:
            yield left, 0
