"""Looking through dead letters without taking them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import DLQ_SCAN_MESSAGES_MAX, MOVE_MESSAGES_MAX
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.record import Story, read_story, redrives_of
from goqueue.core.record.message import Message
from goqueue.runtime.dlq.dead_letter_index import DeadLetterIndex
from goqueue.runtime.queue.read_offsets import read_offsets


class DeadLetterRow(NamedTuple):
    """A dead letter."""

    message: Message
    story: Story

    @property
    def redrives(self) -> int:
        """Return how often it went back before."""
        return redrives_of(self.message.headers)


class Search:
    """Goes through shelves in order and yields the letters that are meant."""

    def __init__(
        self, shelves: Sequence[DeadLetterIndex], wanted: Filter, *, from_offset: int = 0
    ) -> None:
        self._shelves = shelves
        self._wanted = wanted
        self._from_offset = from_offset
        self._looked = 0
        self.is_cut = False
        """Whether it ended before it had seen everything."""

    async def letters(self) -> AsyncGenerator[DeadLetterRow, None]:
        """Yield what is meant, until everything or as much as may be was looked at."""
        for shelf in self._shelves:
            async with aclosing(letters_on(shelf, from_offset=self._from_offset)) as letters:
                async for letter in letters:
                    if self._looked == DLQ_SCAN_MESSAGES_MAX:
                        self.is_cut = True
                        return
                    self._looked += 1
                    if self._wanted.matches(letter.message, letter.story):
                        yield letter


async def letters_on(
    shelf: DeadLetterIndex, *, from_offset: int = 0
) -> AsyncGenerator[DeadLetterRow, None]:
    """Yield what is on a shelf now, from an offset on."""
    left = shelf.left(from_offset=from_offset)
    end = Offset(left.max() + 1) if left else Offset(0)
    while left:
        wanted = first_of(left, MOVE_MESSAGES_MAX)
        plucked = await read_offsets(shelf.partition, wanted, end_offset=end)
        for message in plucked.messages:
            if not shelf.ledger.is_settled(message.offset):
                yield DeadLetterRow(message, read_story(message.headers))
        left.remove_range(left.min(), min(plucked.next_offset, wanted.max() + 1))
        # Others get their turn, however much of it is in memory.
        await asyncio.sleep(0)


def first_of(offsets: BitMap64, count: int) -> BitMap64:
    """Return the lowest of some offsets."""
    if len(offsets) <= count:
        return offsets
    first = BitMap64()
    first.add_range(offsets.min(), offsets[count])
    return first & offsets
