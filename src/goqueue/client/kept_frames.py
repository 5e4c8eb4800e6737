"""Frames a consumer keeps, because it will be leased more of their messages (ADR 0024)."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

from goqueue.base.errors import CorruptFrameError, ProtocolError
from goqueue.core.delivery.shelf import Shelf
from goqueue.core.log.scan import Span, Walk
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import fields_of


class KeptFrame:
    """A batch of the log. Its columns are read once, when a message of it is first handed out."""

    __slots__ = ("_columns", "_frame", "_header", "end_offset", "first_offset")

    def __init__(self, span: Span, frame: memoryview) -> None:
        self.first_offset = span.header.offset
        self.end_offset = span.end_offset
        self._header = span.header
        self._frame: memoryview | None = frame
        self._columns: tuple[Iterable[Any], ...] = ()

    def __repr__(self) -> str:
        return f"<KeptFrame from {self.first_offset} to {self.end_offset}>"

    def fields(self, offsets: Sequence[int]) -> list[Iterable[Any]]:
        """Return the fields of some of its messages, column by column."""
        if self._frame is not None:
            self._columns = fields_of(decode_batch(self._header, self._frame))
            # What was read from it has memory of its own.
            self._frame = None
        first = self.first_offset
        rows = [offset - first for offset in offsets]
        if len(rows) == 1:
            # Of one, an itemgetter returns the thing itself.
            rows *= 2
        pick = itemgetter(*rows)
        return [
            column if isinstance(column, repeat) else pick(column)  # type: ignore[arg-type]
            for column in self._columns
        ]


class KeptFrames:
    """The frames of one connection. Told of replies in the order in which they come."""

    def __init__(self) -> None:
        self._shelf: Shelf[KeptFrame] = Shelf()

    def __repr__(self) -> str:
        return f"<KeptFrames: {self._shelf!r}>"

    def take(
        self, numbers: Sequence[int], frames: memoryview
    ) -> tuple[list[KeptFrame], memoryview]:
        """Return the frames with some numbers, and what is left behind those that are new."""
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
                kept = KeptFrame(span, frames[span.start : end])
                self._shelf.put(kept, span.end - span.start)
            if kept is None:
                raise ProtocolError(f"frame {number} is not kept here")
            found.append(kept)
        return found, frames[end:]
