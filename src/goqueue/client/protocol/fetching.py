"""Reading a topic: what to ask for next, and what comes back as chunks of frames."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypedDict

import msgspec

from goqueue.base.errors import (
    DataLossError,
    GoQueueError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    from_code,
)
from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.base.units import MiB
from goqueue.client.protocol.chunk import Chunk
from goqueue.client.protocol.cluster_view import MOVED
from goqueue.client.protocol.exchange import Answer, decode
from goqueue.client.protocol.positions import Position
from goqueue.core.log.scan import Span, Walk
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

FETCH_BYTES: Final = 4 * MiB
IN_PLACE_BYTES: Final = 32 * MiB
"""What is asked for at once where it is read in place, ``FETCH_BYTES`` at a time."""
FOLLOW_WAIT_MS: Final = 1_000


UNKNOWN: Final = -1
TAKEN_BACK: Final = (
    "were read and are lost: a leader was elected that did not have them (unclean election)"
)

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

OnHidden = Callable[[int, list[tuple[int, int]]], None]
"""Called with a partition and the half-open ranges a reader passed without getting them."""


class NotInPlaceError(Exception):
    """Frames are not where they were said to be, or not to be had there."""


class ReadFields(TypedDict, total=False):
    """What readers take, as ReadOptions explains it."""

    start: Position
    end: Position | None
    partitions: Sequence[int] | None
    follow: bool
    on_gap: str
    delayed: str
    on_hidden: OnHidden | None
    isolation: str


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to read. Without ``end`` a reader that does not follow stops at the latest.

    Messages that are delayed and not yet due, and those that were cancelled, are left out unless
    ``delayed`` is "show"; ``on_hidden`` is told of them. Messages of transactions come when those
    are committed, unless ``isolation`` is "read_uncommitted".
    """

    start: Position = "earliest"
    end: Position | None = None
    partitions: Sequence[int] | None = None
    follow: bool = False
    on_gap: str = "raise"
    timeout_s: float = 30.0
    delayed: str = "hide"
    on_hidden: OnHidden | None = None
    isolation: str = READ_COMMITTED
    must_reach_end: bool = False
    """Raise if the log ends before ``end``, instead of stopping there."""

    def __post_init__(self) -> None:
        """Refuse contradictions."""
        if self.follow and self.end is not None:
            raise InvalidRequestError("a reader that follows has no end")
        if self.on_gap not in ("raise", "skip"):
            raise InvalidRequestError("on_gap must be 'raise' or 'skip'")
        if self.delayed not in ("hide", "show"):
            raise InvalidRequestError("delayed must be 'hide' or 'show'")
        if self.isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise InvalidRequestError(
                f"isolation must be '{READ_COMMITTED}' or '{READ_UNCOMMITTED}'"
            )

    @property
    def is_committed(self) -> bool:
        """Return True if open and aborted transactions are left out."""
        return self.isolation == READ_COMMITTED

    @property
    def last(self) -> Position:
        """Return where to stop."""
        return "latest" if self.end is None else self.end


class Fetching:
    """Where a reader is in each partition: says what to ask next, takes what comes back.

    Does no I/O, so it serves the asynchronous and the blocking reader alike.
    """

    def __init__(self, topic: str, options: ReadOptions) -> None:
        self._topic = topic
        self._options = options
        self._next: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        """The leader epoch of the last message that was taken of each partition, where known."""
        self._asked_epochs: dict[int, int] = {}
        self._end: dict[int, int | None] = {}
        self.in_place = False
        """Whether the broker may say where frames lie instead of sending them."""
        self.follows_leaders = False
        """Whether partitions may move to other nodes while they are read."""
        self.moved: dict[int, GoQueueError] = {}
        """Partitions another node leads by now, and what was said; they are where they were."""

    def pick(self, parts: list[calls.OffsetsPart]) -> list[calls.OffsetsPart]:
        """Return the partitions that are to be read."""
        if self._options.partitions is None:
            return parts
        wanted = set(self._options.partitions)
        unknown = sorted(wanted - {part.partition for part in parts})
        if unknown:
            raise PartitionNotFoundError(
                f"invalid partition {unknown[0]} (topic has {len(parts)} partitions)"
            )
        return [part for part in parts if part.partition in wanted]

    def begin(
        self, parts: list[calls.OffsetsPart], *, start: dict[int, int], end: dict[int, int] | None
    ) -> None:
        """Take the offsets to begin and end at; without an end the reader follows."""
        if parts and all(start[part.partition] > part.end_offset for part in parts):
            part = max(parts, key=lambda part: part.end_offset)
            raise OffsetOutOfRangeError(
                f"{self._topic}/{part.partition}: offset {start[part.partition]} is not between"
                f" {part.start_offset} (earliest) and {part.end_offset} (latest)"
            )
        self._next = dict(start)
        self._end = dict.fromkeys(start)
        if end is not None:
            limits = {part.partition: part.end_offset for part in parts}
            if self._options.must_reach_end:
                self._check_ends(end, limits)
            self._end = {p: min(offset, limits[p]) for p, offset in end.items()}

    def _check_ends(self, end: dict[int, int], limits: dict[int, int]) -> None:
        for partition, offset in end.items():
            if offset > limits[partition]:
                raise DataLossError(
                    f"{self._topic}/{partition}: the log ends at {limits[partition]}, and it was"
                    f" to be read up to {offset}"
                )

    @property
    def is_over(self) -> bool:
        """Return True if every partition was read to its end."""
        return not self._open_partitions(self._next)

    def request(self) -> calls.Fetch:
        """Return the next request: every partition that is not at its end."""
        self._asked, self._asked_epochs = dict(self._next), dict(self._epochs)
        request = self._request(self._open_partitions(self._asked))
        assert request is not None, "not over"
        return request

    @property
    def open_partitions(self) -> list[int]:
        """The partitions that are not at their end, those first that were not asked for lately."""
        return self._open_partitions(self._next)

    def request_of(self, partitions: Collection[int]) -> calls.Fetch:
        """Return the next request for some partitions that are not at their end."""
        self._asked |= {partition: self._next[partition] for partition in partitions}
        self._asked_epochs |= {one: self._epochs.get(one, UNKNOWN) for one in partitions}
        chosen = [one for one in self.open_partitions if one in partitions]
        request = self._request(chosen)
        assert request is not None, "not over"
        return request

    def request_behind(self, header: Buffer) -> calls.Fetch | None:
        """Return the request that will follow a reply of which only the header is there.

        None where it cannot be known yet or there is none. Nothing is taken before ``take``.
        """
        parts = decode(header, calls.Fetched).parts
        if any(part.failure is not None for part in parts):
            return None
        self._asked.update((part.partition, part.next_offset) for part in parts)
        self._asked_epochs.update((part.partition, part.epoch) for part in parts)
        return self._request(self._open_partitions(self._asked))

    def _request(self, partitions: list[int]) -> calls.Fetch | None:
        if not partitions:
            return None
        # Whoever comes first this time is last next time, so none is starved.
        first = partitions[0]
        self._next[first] = self._next.pop(first)
        self._asked[first] = self._asked.pop(first)
        return calls.Fetch(
            self._topic,
            IN_PLACE_BYTES if self.in_place else FETCH_BYTES,
            FOLLOW_WAIT_MS if self._options.follow else 0,
            [
                calls.FetchPart(p, self._asked[p], self._end[p], self._asked_epochs.get(p, UNKNOWN))
                for p in partitions
            ],
            self._options.delayed == "show",
            self._options.is_committed,
            FETCH_BYTES if self.in_place else 0,
        )

    @property
    def backlog(self) -> int:
        """How many messages there are up to the ends; none where a reader follows."""
        ends = [(offset, self._end[partition]) for partition, offset in self._next.items()]
        return sum(max(end - offset, 0) for offset, end in ends if end is not None)

    def take(self, answer: Answer) -> list[Chunk]:
        """Take a reply; return its chunks."""
        return [
            chunk for part, frames in parts_of(answer) for chunk in self.take_part(part, frames)
        ]

    def take_in_place(self, part: calls.FetchedPart, frames: memoryview) -> list[Chunk]:
        """Take a part that was read in place; where it is not good nothing of it was taken."""
        walk = Walk(frames)
        spans = list(walk)
        is_whole = walk.position == len(frames) and bool(spans)
        is_meant = (
            is_whole
            and spans[0].header.offset <= self._next[part.partition]
            and spans[-1].end_offset == part.next_offset
        )
        if not is_meant:
            raise NotInPlaceError("the frames are not those that were to be there")
        return self.take_part(part, frames, spans)

    def _open_partitions(self, following: dict[int, int]) -> list[int]:
        return [
            partition
            for partition, offset in following.items()
            if (end := self._end[partition]) is None or offset < end
        ]

    def take_part(
        self, part: calls.FetchedPart, frames: memoryview, spans: list[Span] | None = None
    ) -> list[Chunk]:
        """Take a part of a reply; return its chunk, if there is anything in it."""
        start = self._next[part.partition]
        end = self._end[part.partition]
        if part.failure is not None:
            self._next[part.partition] = self._after_failure(part, part.failure, start)
            if self._next[part.partition] != start:
                self._epochs.pop(part.partition, None)
            return []
        if part.taken_back is not None:
            self._report(part.partition, *part.taken_back, TAKEN_BACK)
        for gap_start, gap_end in part.gaps:
            self._report(part.partition, gap_start, gap_end, "cannot be read: bad checksum")
        self._next[part.partition] = part.next_offset
        self._epochs[part.partition] = part.epoch
        if part.hidden and self._options.on_hidden is not None:
            self._options.on_hidden(part.partition, part.hidden)
        if not frames:
            return []
        stop = part.next_offset if end is None else min(part.next_offset, end)
        return [
            Chunk(
                TopicName(self._topic),
                PartitionId(part.partition),
                frames,
                Offset(start),
                Offset(stop),
                spans,
                part.aborted,
            )
        ]

    def _after_failure(self, part: calls.FetchedPart, failure: calls.Failure, start: int) -> int:
        """Return where to go on in a partition that was not read, or raise."""
        error = from_code(failure.code, failure.message)
        if self.follows_leaders and isinstance(error, MOVED):
            self.moved[part.partition] = error
            return start
        if not isinstance(error, OffsetOutOfRangeError):
            raise error
        if start > part.end_offset:
            raise error
        self._report(part.partition, start, part.start_offset, "were deleted by retention")
        return part.start_offset

    def _report(self, partition: int, start: int, end: int, reason: str) -> None:
        if self._options.on_gap == "raise":
            raise DataLossError(
                f"{self._topic}/{partition}: offsets {start} to {end - 1} {reason};"
                " read with on_gap='skip' to go on behind them"
            )


def parts_of(answer: Answer) -> Iterator[tuple[calls.FetchedPart, memoryview]]:
    """Yield the parts of a reply, each with the frames that came with it."""
    position = 0
    for part in decode(answer.header, calls.Fetched).parts:
        end = position if part.place is not None else position + part.size
        yield part, answer.payload[position:end]
        position = end
