"""The delayed messages of one partition: which are hidden, until when, and which were cancelled.

Shape: stepper. The log itself says what was delayed (``note``), the clock what became due
(``advance``); only what people changed since, cancellations and new times, is decided, and made
true by ``apply``. ``hidden`` is the truth: a time that comes up in the wheel for an offset that is
not in it means nothing.

Messages say when they are due by a wall clock. The wheel turns by steady time, which nobody can
set; when the wall clock is set (``turn``), what waits is sorted into it anew.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from pyroaring import BitMap64

from goqueue.base.errors import DelayedNotFoundError, OverloadedError
from goqueue.base.ids import Offset
from goqueue.base.limits import RESCHEDULED_MAX
from goqueue.core.decision import Decision
from goqueue.core.offset_sets import cut_from, each
from goqueue.core.record.queue_rows import Delays, Numbers
from goqueue.core.schedule.leads import Leads, late_shift_ms, lead_ms
from goqueue.core.schedule.table import DelayTable
from goqueue.core.schedule.wheel import TICK_MS, Wheel

_EVENT_OFFSETS_MAX: Final = 100_000
"""Cancelled offsets in one event of a snapshot."""
SWEPT_MIN: Final = 4_096
"""Times in the wheel beside those of hidden messages that are not worth sweeping."""


class Cancelled(msgspec.Struct, frozen=True, tag="c", array_like=True, gc=False):
    """Messages will never be delivered. ``offsets`` is a bitmap; ``life`` is the topic's."""

    life: int
    offsets: bytes


class Rescheduled(msgspec.Struct, frozen=True, tag="r", array_like=True, gc=False):
    """A message is due at another time than its record says."""

    life: int
    offset: Offset
    due_ms: int
    first_due_ms: int


class DelayHeld(msgspec.Struct, frozen=True, tag="h", array_like=True, gc=False):
    """A message is about to be replaced by one of its name, from an offset of a partition on.

    Until that is certain or given up, it is not delivered.
    """

    life: int
    offset: Offset
    due_ms: int
    name: bytes
    partition: int
    from_offset: Offset


class DelayReleased(msgspec.Struct, frozen=True, tag="k", array_like=True, gc=False):
    """A message that was held is not replaced."""

    life: int
    offset: Offset


Event = Cancelled | Rescheduled | DelayHeld | DelayReleased


class Delayed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message that waits. ``due_ms`` is as people said it, ``release_ms`` by steady time."""

    offset: Offset
    due_ms: int
    release_ms: int


class _NewTime(msgspec.Struct, frozen=True, gc=False):
    """The time a message was given, the one it had first, and the shift when it was moved."""

    due_ms: int
    first_due_ms: int
    shift_ms: int


class Schedule:
    """Hides messages until they are due. ``life`` tells a topic from a deleted one of its name."""

    def __init__(self, *, life: int, now_ms: int, shift_ms: int = 0) -> None:
        self._life = life
        self._now_ms = now_ms
        self._shift_ms = shift_ms
        self._leads = Leads(shift_ms)
        # One tick behind, so that what is already due comes up at the first advance.
        self._wheel = Wheel(now_ms - TICK_MS)
        self._table = DelayTable()
        self._moved: dict[int, _NewTime] = {}
        self._is_whole = True
        self._known = BitMap64()
        self.held: dict[int, DelayHeld] = {}
        """Messages that are about to be replaced."""
        self.hidden = BitMap64()
        self.cancelled = BitMap64()
        self.pending = 0
        self.recovered = 0
        self.scheduled_total = 0
        self.fired_total = 0
        self.cancelled_total = 0

    def __repr__(self) -> str:
        return f"<Schedule of {self.pending} pending, {len(self.cancelled)} cancelled>"

    @property
    def next_ms(self) -> int | None:
        """Return when ``advance`` has something to do."""
        return self._wheel.next_ms

    @property
    def shift_ms(self) -> int:
        """Return how far the wall clock was set from steady time, as of the last turn."""
        return self._shift_ms

    @property
    def wheel_tick(self) -> int:
        """Return how far the wheel has turned."""
        return self._wheel.tick

    @property
    def reached(self) -> Offset:
        """Return an offset behind every message that people changed something of."""
        changed = self.cancelled.max() + 1 if self.cancelled else 0
        return Offset(max(changed, max(self._moved, default=-1) + 1))

    # What the log says.

    def note(
        self, base_offset: Offset, delays: Delays, *, now_ms: int, sender_ms: int | None = None
    ) -> None:
        """Hide the messages of a frame that are not due yet.

        ``sender_ms`` is the shift of the clock the sender reckoned by; without it, ours.
        """
        sender_ms = self._shift_ms if sender_ms is None else sender_ms
        is_later = delays.due_ms > now_ms + sender_ms
        if not is_later.any():
            return
        offsets, due_ms = delays.rows + base_offset, delays.due_ms
        if not is_later.all():
            offsets, due_ms = offsets[is_later], due_ms[is_later]
        self._hide(offsets)
        self._table.add(offsets, due_ms)
        self._leads.note(offsets, shift_ms=self._shift_ms, sender_ms=sender_ms)
        if len(offsets) == 1:
            self._wheel.add(int(due_ms[0]) - sender_ms, int(offsets[0]))
        else:
            self._wheel.add_many(due_ms - sender_ms if sender_ms else due_ms, offsets)
        self.scheduled_total += len(offsets)
        if delays.ids:
            names = ((row + base_offset, name) for row, name in delays.ids)
            self._table.name((at, name) for at, name in names if at in self.hidden)

    def _hide(self, offsets: Numbers) -> None:
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first == len(offsets) - 1:
            self.hidden.add_range(first, last + 1)
        else:
            self.hidden.update(offsets.tolist())
        self.pending += len(offsets)

    # What the clock says.

    def turn(self, shift_ms: int, *, now_ms: int) -> bool:
        """Take how far the wall clock is set from steady time; tell whether that is news."""
        if shift_ms == self._shift_ms:
            return False
        self._shift_ms = shift_ms
        self._wheel = Wheel(now_ms - TICK_MS)
        self._leads.keep(self.hidden)
        self._fill_wheel()
        return True

    def _release_ms(self, offset: int, due_ms: int) -> int:
        """Return when a message is due by steady time."""
        return due_ms - self._leads.of(offset, shift_ms=self._shift_ms)

    def _moved_ms(self, moved: _NewTime) -> int:
        """Return when a message that was given another time is due by steady time."""
        sender_ms = late_shift_ms(moved.shift_ms)
        return moved.due_ms - lead_ms(moved.shift_ms, sender_ms, self._shift_ms)

    @property
    def _wall_ms(self) -> int:
        """Return the earlier of the wall clock and steady time, as of the last advance."""
        return self._now_ms + late_shift_ms(self._shift_ms)

    def advance(self, now_ms: int) -> BitMap64:
        """Return the messages that became due and are hidden no longer."""
        self._now_ms = max(self._now_ms, now_ms)
        due = BitMap64()
        if not self._is_whole or not len(offsets := self._wheel.advance(now_ms)):
            return due
        due.update(offsets.tolist())
        due &= self.hidden
        for offset in self.held:
            due.discard(offset)
        if self._moved:
            # The first time of a message comes up, too, when it was given a later one.
            for offset in each(due):
                moved = self._moved.get(offset)
                if moved is not None and self._moved_ms(moved) > now_ms:
                    due.discard(offset)
        if due:
            self.hidden -= due
            self.pending -= len(due)
            self.fired_total += len(due)
            self._sweep()
            self._forget_moves()
        return due

    def _sweep(self) -> None:
        """Forget what is no longer hidden, once it is most of what is kept."""
        self._table.sweep(self.hidden, self.pending)
        if len(self._wheel) > 2 * self.pending + SWEPT_MIN:
            self._wheel.clear()
            self._fill_wheel()

    def _fill_wheel(self) -> None:
        """Add one time for each hidden message to an empty wheel: the one at which it is due."""
        offsets, due_ms, *_ = self._table.columns(self.hidden)
        moved = {at: times for at, times in self._moved.items() if at in self.hidden}
        if moved:
            is_unmoved = ~np.isin(offsets, list(moved))
            offsets, due_ms = offsets[is_unmoved], due_ms[is_unmoved]
        if len(offsets):
            leads_ms = self._leads.of_all(offsets, shift_ms=self._shift_ms)
            self._wheel.add_many(due_ms - leads_ms, offsets)
        for offset, times in moved.items():
            self._wheel.add(self._moved_ms(times), offset)

    def _forget_moves(self) -> None:
        """Drop changed times that can no longer differ from what the log and the clock say."""
        if self._moved and len(self._moved) > 2 * self.pending:
            self._moved = {
                offset: moved
                for offset, moved in self._moved.items()
                if offset in self.hidden or self._differs(moved)
            }

    def _differs(self, moved: _NewTime) -> bool:
        """Tell whether the log alone would say something else of a message at a start."""
        return max(moved.due_ms, moved.first_due_ms) > self._wall_ms

    # What people say.

    def find(self, offset: int) -> Delayed:
        """Return a message that waits, or raise."""
        if offset < 0 or offset not in self.hidden:
            raise DelayedNotFoundError("delayed message not found or already delivered")
        moved = self._moved.get(offset)
        due_ms = moved.due_ms if moved is not None else self._table.due_of(offset)
        assert due_ms is not None, "what is hidden has a time"
        release_ms = self._release_ms(offset, due_ms) if moved is None else self._moved_ms(moved)
        return Delayed(offset=Offset(offset), due_ms=due_ms, release_ms=release_ms)

    def named(self, name: bytes) -> list[Offset]:
        """Return the waiting messages that may have a name; the log tells whether they do."""
        return [Offset(offset) for offset in self._table.named(name) if offset in self.hidden]

    def page(self, *, skip: int, limit: int) -> Iterator[Delayed]:
        """Yield waiting messages in the order of their offsets."""
        last = min(skip + limit, len(self.hidden))
        return (self.find(offset) for offset in each(self.hidden[skip:last]))

    def cancel(self, offset: int) -> Decision[Event, Delayed]:
        """Have a waiting message never delivered."""
        found = self.find(offset)
        event = Cancelled(self._life, BitMap64([offset]).serialize())
        return Decision((event,), found)

    def hold(
        self, offset: int, *, name: bytes, partition: int, from_offset: Offset
    ) -> Decision[Event, None]:
        """Keep a waiting message from being delivered while one of its name takes its place."""
        found = self.find(offset)
        held = DelayHeld(self._life, found.offset, found.due_ms, name, partition, from_offset)
        return Decision((held,), None)

    def release(self, offset: int) -> Decision[Event, None]:
        """Let a message that was held be delivered after all."""
        if offset not in self.held:
            return Decision((), None)
        return Decision((DelayReleased(self._life, Offset(offset)),), None)

    def replace(self, offsets: Iterable[int]) -> Decision[Event, BitMap64]:
        """Have held messages never delivered: others have taken their places."""
        gone = BitMap64([offset for offset in offsets if offset in self.hidden])
        return Decision((Cancelled(self._life, gone.serialize()),) if gone else (), gone)

    def reschedule(self, offset: int, *, due_ms: int) -> Decision[Event, Delayed]:
        """Give a waiting message another time."""
        found = self.find(offset)
        moved = self._moved.get(offset)
        if moved is None and len(self._moved) >= RESCHEDULED_MAX:
            raise OverloadedError(
                f"{RESCHEDULED_MAX} messages of this partition were rescheduled and wait"
            )
        first_ms = found.due_ms if moved is None else moved.first_due_ms
        event = Rescheduled(self._life, Offset(offset), due_ms, first_ms)
        release_ms = due_ms - late_shift_ms(self._shift_ms)
        reply = Delayed(offset=Offset(offset), due_ms=due_ms, release_ms=release_ms)
        return Decision((event,), reply)

    def apply(self, event: Event) -> None:
        """Make a decision true. One about another topic of the same name says nothing here."""
        if event.life != self._life:
            return
        match event:
            case Cancelled():
                offsets = BitMap64.deserialize(event.offsets)
                waiting = self.hidden.intersection_cardinality(offsets)
                self.pending -= waiting
                self.cancelled_total += waiting
                self.hidden -= offsets
                self.cancelled |= offsets
                for offset in each(offsets) if self._moved or self.held else ():
                    self._moved.pop(offset, None)
                    self.held.pop(offset, None)
                self._sweep()
            case DelayHeld():
                self._hold(event)
            case DelayReleased(offset=offset):
                self._release(offset)
            case Rescheduled():
                moved = _NewTime(event.due_ms, event.first_due_ms, self._shift_ms)
                if event.offset not in self.hidden and self._moved_ms(moved) <= self._now_ms:
                    # Loaded again behind its time: it was released before.
                    self._moved[event.offset] = moved
                    return
                self._move(event.offset, moved)
                self._wheel.add(self._moved_ms(moved), event.offset)
                self._sweep()

    def _move(self, offset: int, moved: _NewTime) -> None:
        self._moved[offset] = moved
        if offset not in self.hidden:
            # Recovered from a log that says it was due long ago.
            self.hidden.add(offset)
            self.pending += 1

    def _hold(self, event: DelayHeld) -> None:
        self.held[event.offset] = event
        if event.offset not in self.hidden and event.offset not in self.cancelled:
            self._move(event.offset, _NewTime(event.due_ms, event.due_ms, self._shift_ms))

    def _release(self, offset: int) -> None:
        if self.held.pop(offset, None) is not None and offset in self.hidden:
            self._wheel.add(self.find(offset).release_ms, offset)

    def snapshot(self) -> Sequence[Event]:
        """Return the events that rebuild what people changed."""
        events: list[Event] = [
            Cancelled(self._life, self.cancelled[start : start + _EVENT_OFFSETS_MAX].serialize())
            for start in range(0, len(self.cancelled), _EVENT_OFFSETS_MAX)
        ]
        for offset, moved in self._moved.items():
            if offset in self.hidden or self._differs(moved):
                times = (moved.due_ms, moved.first_due_ms)
                events.append(Rescheduled(self._life, Offset(offset), *times))
        return [*events, *self.held.values()]

    def unload(self) -> None:
        """Forget what people changed: from now on it is changed elsewhere, or taken back.

        Until ``load`` nothing may be released; what was cancelled is hidden.
        """
        self._known = self.cancelled.copy()
        self.hidden |= self.cancelled
        self.cancelled.clear()
        self.pending = len(self.hidden)
        self._moved = {}
        self.held = {}
        self._is_whole = False

    def load(self, events: Sequence[Event], *, now_ms: int) -> BitMap64:
        """Take what people changed up to now; return what was cancelled meanwhile."""
        self._now_ms = max(self._now_ms, now_ms)
        for event in _lasting(events):
            self.apply(event)
        if self._is_whole:
            return BitMap64()
        self._is_whole = True
        self._wheel.clear()
        self._fill_wheel()
        known, self._known = self._known, BitMap64()
        # These were counted when they were cancelled here.
        self.cancelled_total -= len(self.cancelled & known)
        return self.cancelled - known

    def unlisted(self) -> BitMap64:
        """Return what only a change has hidden: its first time and its name are in the log."""
        return self._table.missing(self.hidden)

    def is_timeless(self, offset: Offset) -> bool:
        """Return True if only the log knows the time of such a message: the change is gone."""
        return offset not in self._moved

    def name(self, offset: Offset, name: bytes) -> None:
        """Have a hidden message found by the name that the log says."""
        if offset not in self._table.named(name):
            self._table.name([(offset, name)])

    def set_time(self, offset: Offset, due_ms: int) -> None:
        """Have a hidden message due when the log says."""
        assert offset in self.hidden, "of those without a time"
        moved = _NewTime(due_ms, due_ms, self._shift_ms)
        self._moved[offset] = moved
        self._wheel.add(self._moved_ms(moved), offset)

    # Keeping.

    def start_counting(self) -> None:
        """Count from here on: what was recovered is what there is."""
        self.recovered = self.pending
        self.scheduled_total = self.fired_total = self.cancelled_total = 0

    def trim(self, start_offset: Offset) -> None:
        """Forget messages that are no longer in the log."""
        gone = self.hidden.range_cardinality(0, start_offset) if start_offset else 0
        self.pending -= gone
        for offsets in (self.hidden, self.cancelled):
            offsets.remove_range(0, start_offset)
        self._moved = {at: moved for at, moved in self._moved.items() if at >= start_offset}
        self.held = {at: held for at, held in self.held.items() if at >= start_offset}
        self._sweep()

    def truncate(self, end_offset: Offset) -> None:
        """Forget the messages from an offset on, whose offsets will be given to others.

        Their times leave the wheel, too: one of them would make another message due early.
        """
        for offsets in (self.hidden, self.cancelled, self._known):
            cut_from(offsets, end_offset)
        self.pending = len(self.hidden)
        self._moved = {at: moved for at, moved in self._moved.items() if at < end_offset}
        self.held = {at: held for at, held in self.held.items() if at < end_offset}
        self._leads.truncate(end_offset)
        self._table.keep(self.hidden)
        self._wheel.clear()
        self._fill_wheel()

    def dump(self) -> tuple[Numbers, ...]:
        """Return the columns of what waits, as numbers, each with the time it is due now."""
        offsets, due_ms, *names = self._table.columns(self.hidden)
        moved = sorted((at, one.due_ms) for at, one in self._moved.items() if at in self.hidden)
        if not moved:
            return offsets, due_ms, *names
        places, times = np.array(moved, np.int64).T
        together = np.union1d(offsets, places)
        due = np.empty(len(together), np.int64)
        due[np.searchsorted(together, offsets)] = due_ms
        due[np.searchsorted(together, places)] = times
        return together, due, *names

    def restore_cancelled(self, offsets: BitMap64) -> None:
        """Take back what was cancelled, whether or not the events of it are still there."""
        self.cancelled |= offsets
        self.hidden -= offsets
        self.pending = len(self.hidden)

    def restore(self, columns: Sequence[Numbers]) -> None:
        """Take back what ``dump`` gave, before anything else is noted."""
        offsets, due_ms, *_ = columns
        self._table = DelayTable.of(columns)
        self.hidden |= BitMap64(array("Q", offsets.tobytes()))
        self.pending = len(self.hidden)
        self._wheel.add_many(due_ms - self._shift_ms, offsets)


def _lasting(events: Sequence[Event]) -> Iterator[Event]:
    """Return the events that still count, in order.

    A time that was changed again, or a hold that was released, would hide a message that was
    released since.
    """
    last: dict[tuple[bool, int], Event] = {}
    for event in events:
        if not isinstance(event, Cancelled):
            last[isinstance(event, Rescheduled), event.offset] = event
    kept = {id(event) for event in last.values() if not isinstance(event, DelayReleased)}
    return (event for event in events if isinstance(event, Cancelled) or id(event) in kept)
