"""Reading messages as objects, a bounded page at a time, where a transport cannot take frames."""

import time
from collections.abc import Iterable
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import TopicNotFoundError
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset
from goqueue.base.units import KiB
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import messages_of
from goqueue.core.record.frame import CONTROL, FrameHeader, read_header
from goqueue.core.record.message import Message
from goqueue.core.record.row import Row
from goqueue.runtime.log.isolation import PLAIN, Isolation, VisibleFrames, look
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.turns import TURN_MESSAGES, Turns
from goqueue.storage.log_notes import Gap

PIECE_BYTES: Final = 256 * KiB
"""What is read from the log in one go; a larger frame comes whole all the same."""


HIDDEN_MAX: Final = 10_000
"""A page ends when it has passed over so many hidden messages: looking at them takes time, too."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in the order of their offsets, where to go on, and the range there is.

    ``expired`` are the offsets asked for that retention has deleted, ``unreadable`` those whose
    frames are bad, ``hidden`` those left out because they are delayed or were cancelled.
    """

    messages: list[Message]
    size: int
    """Bytes of their keys and values."""
    next_offset: Offset
    start_offset: Offset
    end_offset: Offset
    expired: Gap | None = None
    unreadable: tuple[Gap, ...] = ()
    hidden: tuple[Gap, ...] = ()


async def read_page(
    grant: Grant,
    topic: Topic,
    number: int,
    *,
    offset: Offset,
    count_max: int,
    bytes_max: int,
    lens: Isolation = PLAIN,
    turns: Turns | None = None,
) -> Page:
    """Return what lies at an offset and behind it, beginning at the earliest that is still there.

    One message at least is returned whatever its size. Behind the end there is nothing, and the
    same offset is where to go on. Pieces that are large wait for their turn.
    """
    assert grant.deed is Deed.FETCH, "a grant to fetch"
    started = time.perf_counter()
    partition = topic.partition(number)
    partition.leadership.check_led()
    reading = _Reading(partition, offset, count_max=count_max, bytes_max=bytes_max, lens=lens)
    await reading.run(turns or Turns())
    topic.meter.fetch_seconds.observe(time.perf_counter() - started)
    topic.meter.consumed.inc(len(reading.messages))
    topic.meter.consumed_bytes.inc(reading.size)
    begun = Offset(max(offset, reading.first_offset))
    return Page(
        messages=reading.messages,
        size=reading.size,
        next_offset=reading.next_offset,
        start_offset=partition.log.start_offset,
        end_offset=partition.visible_offset,
        expired=Gap(offset, begun) if offset < begun else None,
        unreadable=tuple(reading.gaps),
        hidden=tuple(reading.hidden),
    )


class _Reading:
    """One read under way."""

    def __init__(
        self,
        partition: Partition,
        offset: Offset,
        *,
        count_max: int,
        bytes_max: int,
        lens: Isolation,
    ) -> None:
        self._partition = partition
        self._lens = lens
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.first_offset = partition.log.start_offset
        self.next_offset = Offset(max(offset, self.first_offset))
        self.messages: list[Message] = []
        self.gaps: list[Gap] = []
        self.hidden: list[Gap] = []
        self._hidden_count = 0
        self.size = 0
        self._is_cut = False

    @property
    def _is_full(self) -> bool:
        return (
            self._is_cut
            or len(self.messages) >= self._count_max
            or self.size >= self._bytes_max
            or self._hidden_count >= HIDDEN_MAX
        )

    async def run(self, turns: Turns) -> None:
        """Read until the page is full or the log ends."""
        partition = self._partition
        end = self._lens.end_of(partition)
        while self.next_offset < end and not self._is_full:
            if partition.is_closed:
                raise TopicNotFoundError(f"topic not found: {self._partition.name.topic}")
            offset = self.next_offset
            if offset < partition.log.start_offset:
                # Retention overtook this read: the page ends here and the next one says so.
                return
            if self.messages or min(end - offset, self._count_max) > TURN_MESSAGES:
                await turns.take()
            piece = await partition.read(offset, end_offset=end, bytes_max=PIECE_BYTES)
            self.gaps += piece.gaps
            if len(piece.frames) > PIECE_BYTES:
                # One frame of many messages: unpacking it takes long, however few are wanted.
                await turns.take()
            sight = look(partition.queue, piece, offset, self._lens)
            self._take(sight.frames, end)
            if not self._is_full:
                self.next_offset = Offset(max(self.next_offset, min(sight.next_offset, end)))
            self._note_hidden(sight)
            if self.next_offset <= offset:
                return

    def _note_hidden(self, sight: VisibleFrames) -> None:
        """Keep what was left out before the place where the page ends."""
        for start, end in sight.hidden:
            if start < self.next_offset:
                gap = Gap(start, min(end, self.next_offset))
                self.hidden.append(gap)
                self._hidden_count += gap.end_offset - gap.start_offset

    def _take(self, frames: memoryview, end: Offset) -> None:
        position = 0
        while position < len(frames) and not self._is_full:
            header = read_header(frames, position)
            frame = frames[position : position + header.size]
            position += header.size
            if header.flags & CONTROL:
                continue
            if header.is_batch:
                self._take_batch(header, frame, end)
            elif header.offset < end:
                self._keep([Row(header, frame).message(*self._partition.name)])

    def _take_batch(self, header: FrameHeader, frame: memoryview, end: Offset) -> None:
        batch = decode_batch(header, frame)
        skip = max(self.next_offset - header.offset, 0)
        count = min(batch.num_rows, end - header.offset) - skip
        count = min(count, self._count_max - len(self.messages))
        if count <= 0:
            self.next_offset = Offset(max(self.next_offset, header.offset + batch.num_rows))
            return
        part = batch.slice(skip, count)
        left = self._bytes_max - self.size
        if part.nbytes > left:
            # Not all of the batch has room, so whatever is left of it begins the next page.
            self._is_cut = True
            part = part.slice(0, max(count * left // part.nbytes, 1))
        topic, partition = self._partition.name
        first = Offset(header.offset + skip)
        self._keep(messages_of(part, topic=topic, partition=partition, first_offset=first))

    def _keep(self, messages: Iterable[Message]) -> None:
        kept = list(messages)
        self.messages += kept
        self.size += sum([len(one.value or b"") + len(one.key or b"") for one in kept])
        self.next_offset = Offset(self.messages[-1].offset + 1)
