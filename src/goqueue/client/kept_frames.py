"""Frames a consumer keeps, because it will be leased more of their messages (ADR 0024)."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

from goqueue.base.errors import CorruptFrameError, ProtocolError
from goqueue.core.delivery.shelf import Shelf, room_for
from goqueue.core.log.scan import Span, Walk
from goqueue.core.record.batch import batch_fields, decode_batch
from goqueue.core.record.columns import fields_of

Place = tuple[str, int]
"""A topic and a partition."""

_HEADERS: Final = 3
"""Where the headers are among the fields."""


class KeptFrame:
    """A batch of the log. Its columns are read once, when a message of it is first handed out."""

    __slots__ = ("_columns", "_frame", "_header", "end_offset", "first_offset", "place")

    def __init__(self, place: Place, span: Span, frame: memoryview) -> None:
        self.place = place
        self.first_offset = span.header.offset
        self.end_offset = span.end_offset
        self._header = span.header
        self._frame: memoryview | None = frame
        self._columns: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<KeptFrame from {self.first_offset} to {self.end_offset}>"

    def fields(self, offsets: Sequence[int]) -> list[Iterable[Any]]:
        """Return the fields of some of its messages, column by column."""
        if (frame := self._frame) is not None:
            self._columns = fields_of(decode_batch(self._header, frame))
            # What was read from it has memory of its own.
            self._frame = None
        first = self.first_offset
        rows = [offset - first for offset in offsets]
        if len(rows) == 1:
            # Of one, an itemgetter returns the thing itself.
            rows *= 2
        pick = itemgetter(*rows)
        found = [column if isinstance(column, repeat) else pick(column) for column in self._columns]
        if not isinstance(found[_HEADERS], repeat):
            # A message that comes again has its own, whatever was done to those of before.
            found[_HEADERS] = [dict(one) if one else None for one in found[_HEADERS]]
        return found


class KeptFrames:
    """The frames of one connection. Told of replies in the order in which they come."""

    def __init__(self) -> None:
        self._shelf: Shelf[KeptFrame] = Shelf()

    def __repr__(self) -> str:
        return f"<KeptFrames: {self._shelf!r}>"

    def take(
        self, place: Place, numbers: Sequence[int], frames: memoryview
    ) -> tuple[list[KeptFrame], memoryview]:
        """Return a partition's frames with some numbers, and what is behind those that are new."""
        found: list[KeptFrame] = []
        walk = Walk(frames)
        spans = iter(walk)
        end = 0
        for number in numbers:
            kept = self._shelf.get(number)
            if number == self._shelf.next_number:
                span = next(spans, None)
                if span is None or not span.header.is_batch:
                    raise walk.fault or CorruptFrameError(f"frame {number} is no batch")
                end = span.end
                frame = frames[span.start : end]
                kept = KeptFrame(place, span, frame)
                room = room_for(batch_fields(span.header, frame), len(frame))
                self._shelf.put(kept, room)
            if kept is None or kept.place != place:
                raise ProtocolError(f"frame {number} is not kept here")
            found.append(kept)
        return found, frames[end:]
