"""How much earlier by steady time than by its own a delayed message is due.

Shape: calculator. A time of delivery is one of a wall clock, and a wall clock is set. A message is
due when as much time has really passed as its sender asked for, by the clock the sender had, and,
if the broker's wall clock was set back since, when that shows the time as well:

    due by steady time = deliver_at - lead
    lead               = shift of the sender's clock - how far ours was set back since it came

Whose clock the sender had is seen in the times of its messages: one that agrees with our wall
clock was set as ours was, one that agrees with steady time was not. In doubt the later counts.
"""

from bisect import bisect_left, bisect_right
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

from goqueue.base.units import SECOND_MS
from goqueue.core.offset_sets import cut_from

Numbers = np.ndarray[Any, Any]

_AGREE_MS: Final = 10 * SECOND_MS
"""Two clocks agree within this, or within half of the shift; sending takes its time, too."""


def sender_shift_ms(shift_ms: int, *, steady_ms: int, first_ms: int, last_ms: int) -> int:
    """Return the shift of a sender's clock, by the first and the last time of its messages."""
    if shift_ms == 0:
        return 0
    # The one that makes messages due earlier must be certain.
    early_ms, late_ms = max(shift_ms, 0), min(shift_ms, 0)
    apart_ms = min(_AGREE_MS, abs(shift_ms) // 2)
    now_ms = steady_ms + early_ms
    is_early = now_ms - apart_ms <= first_ms and last_ms <= now_ms + apart_ms
    return early_ms if is_early else late_ms


class Leads:
    """The shifts under which messages came: of our clock by ranges of offsets, of senders'."""

    def __init__(self, shift_ms: int) -> None:
        self._first_offsets = [0]
        self._shifts_ms = [shift_ms]
        self._strangers = BitMap64()
        """Messages whose senders had unset clocks while ours was set."""

    def __repr__(self) -> str:
        return f"<Leads of {len(self._shifts_ms)} shifts, {len(self._strangers)} strangers>"

    def note(self, offsets: Numbers, *, shift_ms: int, sender_ms: int) -> None:
        """Take messages that came under a shift, from a sender whose clock has its own."""
        if shift_ms != self._shifts_ms[-1]:
            self._first_offsets.append(int(offsets[0]))
            self._shifts_ms.append(shift_ms)
        if sender_ms != shift_ms:
            self._strangers.update(offsets.tolist())

    def of(self, offset: int, *, shift_ms: int) -> int:
        """Return the lead of a message under the shift that is in force."""
        came_ms = self._shifts_ms[bisect_right(self._first_offsets, offset) - 1]
        sender_ms = 0 if self._strangers and offset in self._strangers else came_ms
        return lead_ms(came_ms, sender_ms, shift_ms)

    def of_all(self, offsets: Numbers, *, shift_ms: int) -> Numbers:
        """Return the leads of messages under the shift that is in force."""
        places = np.searchsorted(np.array(self._first_offsets), offsets, side="right") - 1
        came_ms = np.array(self._shifts_ms, np.int64)[places]
        sender_ms = came_ms
        if self._strangers:
            is_stranger = np.array([one in self._strangers for one in offsets.tolist()], bool)
            sender_ms = np.where(is_stranger, 0, came_ms)
        leads: Numbers = sender_ms - np.maximum(came_ms - shift_ms, 0)
        return leads

    def keep(self, waiting: BitMap64) -> None:
        """Forget what is only of use to messages that no longer wait."""
        self._strangers &= waiting
        ends = [*self._first_offsets[1:], None]
        kept = [
            (first, shift_ms)
            for first, end, shift_ms in zip(self._first_offsets, ends, self._shifts_ms, strict=True)
            if end is None or waiting.range_cardinality(first, end)
        ]
        self._first_offsets = [0, *(first for first, _ in kept[1:])]
        self._shifts_ms = [shift_ms for _, shift_ms in kept]

    def truncate(self, end_offset: int) -> None:
        """Forget the messages from an offset on."""
        cut_from(self._strangers, end_offset)
        kept = max(bisect_left(self._first_offsets, end_offset), 1)
        del self._first_offsets[kept:]
        del self._shifts_ms[kept:]


def lead_ms(came_ms: int, sender_ms: int, shift_ms: int) -> int:
    """Return a lead: ours and the sender's shift when the message came, and ours as it is now."""
    return sender_ms - max(came_ms - shift_ms, 0)


def late_shift_ms(shift_ms: int) -> int:
    """Return the shift to count on for a sender that is not known."""
    return min(shift_ms, 0)
