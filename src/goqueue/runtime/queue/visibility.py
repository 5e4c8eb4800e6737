"""What the queue knows of a partition beside its log: lanes by priority, and what is delayed.

Noted at append, before anybody can read the messages; kept beside the log like the producers, so
that a start replays a short tail only.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import PRIORITIES
from goqueue.base.units import MINUTE_MS
from goqueue.core.delivery.runs import Written, count_of, set_of
from goqueue.core.offset_sets import cut_from
from goqueue.core.record.control import Control
from goqueue.core.record.frame import PRIORITY_NORMAL
from goqueue.core.record.queue_rows import Delays, QueueRows
from goqueue.core.schedule.leads import sender_shift_ms
from goqueue.core.schedule.schedule import Schedule
from goqueue.core.tracing.caller_index import CallerIndex
from goqueue.core.tx.index import TxIndex
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock

Offsets = Callable[[BitMap64], None]

log = get_logger("goqueue.queue")


class Timer(Protocol):
    """Calls ``PartitionVisibility.advance`` when it has something to do."""

    def arm(self, queue: "PartitionVisibility", at_ms: int) -> None:
        """Wake a queue at a time of ``Clock.steady_ms``."""
        ...


class _NoTimer:
    """A timer of nothing: somebody else advances the queue."""

    def arm(self, queue: "PartitionVisibility", at_ms: int) -> None:
        pass


STILL: Final = _NoTimer()


class PartitionVisibility:
    """The lanes and the schedule of one partition. Only the event loop's thread calls it."""

    def __init__(self, clock: Clock, *, life: int, timer: Timer = STILL) -> None:
        self._clock = clock
        self._timer = timer
        self.schedule = Schedule(life=life, now_ms=clock.steady_ms(), shift_ms=clock.shift_ms())
        self.lanes: tuple[BitMap64, ...] = tuple(BitMap64() for _ in range(PRIORITIES))
        """Offsets by priority; a message that is in no lane is normal."""
        self.empty = BitMap64()
        """Offsets that hold no message: ends of transactions, and what compaction has removed."""
        self.consumed = [0] * PRIORITIES
        """Messages settled by groups, by priority; whoever settles them counts."""
        self.tx = TxIndex()
        """The transactions that are open or were aborted here."""
        self.callers = CallerIndex()
        """The messages that carry a trace of their sender's."""
        self.on_fired: Offsets | None = None
        """Is told what became due by the clock."""
        self._released: list[tuple[int, int]] = []
        self._on_due: list[Offsets] = []
        self._on_cancelled: list[Offsets] = []

    def __repr__(self) -> str:
        lanes = "/".join(str(len(lane)) for lane in self.lanes)
        return f"<PartitionVisibility lanes {lanes}, {self.schedule.pending} delayed>"

    @property
    def hidden(self) -> BitMap64:
        """The offsets that are delayed and not yet due; always the same object."""
        return self.schedule.hidden

    @property
    def cancelled(self) -> BitMap64:
        """The offsets that are never to be delivered; always the same object."""
        return self.schedule.cancelled

    @property
    def has_special(self) -> bool:
        """Whether any message is urgent or patient, delayed, cancelled or in a transaction."""
        schedule, tx = self.schedule, self.tx
        hides = schedule.hidden or schedule.cancelled or tx.uncommitted or tx.aborted
        return bool(hides) or any(self.lanes)

    # Watching.

    def use_timer(self, timer: Timer) -> None:
        """Be advanced by a timer from now on."""
        self._timer = timer
        self.arm()

    def watch_due(self, callback: Offsets) -> None:
        """Call back with the offsets that become due, whenever some do."""
        self._on_due.append(callback)

    def unwatch_due(self, callback: Offsets) -> None:
        """Stop calling back."""
        self._on_due.remove(callback)

    def watch_cancelled(self, callback: Offsets) -> None:
        """Call back with the offsets that are cancelled, whenever some are."""
        self._on_cancelled.append(callback)

    def unwatch_cancelled(self, callback: Offsets) -> None:
        """Stop calling back."""
        self._on_cancelled.remove(callback)

    # Changing.

    def note(
        self, base_offset: Offset, rows: QueueRows, sent_ms: tuple[int, int] | None = None
    ) -> None:
        """Take what is special in a frame that was appended.

        ``sent_ms`` are the first and the last time of its messages: they show its sender's clock.
        """
        if rows.priorities is not None:
            for lane in np.unique(rows.priorities).tolist():
                if lane != PRIORITY_NORMAL:
                    offsets = np.flatnonzero(rows.priorities == lane) + base_offset
                    self.lanes[lane].update(offsets.tolist())
        if rows.delays is not None:
            self._note_delays(base_offset, rows.delays, sent_ms)
        if rows.callers is not None:
            self.callers.note(base_offset, rows.callers)

    def _note_delays(
        self, base_offset: Offset, delays: Delays, sent_ms: tuple[int, int] | None
    ) -> None:
        self.turn()
        steady_ms = self._clock.steady_ms()
        sender_ms = None
        if sent_ms is not None and self.schedule.shift_ms:
            first_ms, last_ms = sent_ms
            sender_ms = sender_shift_ms(
                self.schedule.shift_ms, steady_ms=steady_ms, first_ms=first_ms, last_ms=last_ms
            )
        self.schedule.note(base_offset, delays, now_ms=steady_ms, sender_ms=sender_ms)
        self.arm()

    def turn(self) -> None:
        """Follow the wall clock if somebody has set it."""
        if self.schedule.turn(self._clock.shift_ms(), now_ms=self._clock.steady_ms()):
            self.arm()

    def arm(self) -> None:
        """Ask to be advanced when there is something to do."""
        at_ms = self.schedule.next_ms
        if at_ms is not None:
            self._timer.arm(self, at_ms)

    def advance(self) -> BitMap64:
        """Release what is due by now and tell those who watch."""
        self.schedule.turn(self._clock.shift_ms(), now_ms=self._clock.steady_ms())
        due = self.schedule.advance(self._clock.steady_ms())
        self.arm()
        if due:
            self._note_release(due)
            if self.on_fired is not None:
                self.on_fired(due)
            self._tell_due(due)
        return due

    def _tell_due(self, due: BitMap64) -> None:
        """Tell of what may be delivered now; the end of its transaction tells of the rest."""
        if self.tx.uncommitted or self.tx.aborted:
            due = due - self.tx.uncommitted - self.tx.aborted
        if due:
            _tell(self._on_due, due)

    def _note_release(self, due: BitMap64) -> None:
        """Remember by the minute which offsets became due, for retention's sake."""
        minute = self._clock.steady_ms() // MINUTE_MS
        first = due.min()
        if self._released and self._released[-1][0] == minute:
            first = min(first, self._released.pop()[1])
        self._released.append((minute, first))

    def held_from(self, *, retention_ms: int) -> Offset | None:
        """Return the first offset that retention by time keeps: a delay does not use up its time.

        What waits is kept, and what was released as long as any other message since then.
        """
        oldest = (self._clock.steady_ms() - retention_ms) // MINUTE_MS
        while self._released and self._released[0][0] < oldest:
            del self._released[0]
        held = [first for _, first in self._released]
        if self.schedule.hidden:
            held.append(self.schedule.hidden.min())
        return Offset(min(held)) if held else None

    def tell_cancelled(self, offsets: BitMap64) -> None:
        """Tell those who watch of messages that were just cancelled."""
        _tell(self._on_cancelled, offsets)

    def end_transaction(self, control: Control) -> None:
        """Let the messages of a transaction be seen, or never, and tell those who watch."""
        offsets = self.tx.end(control.number, is_commit=control.is_commit)
        if not offsets:
            return
        if control.is_commit:
            offsets -= self.schedule.hidden
        _tell(self._on_due if control.is_commit else self._on_cancelled, offsets)

    def not_yet(self) -> BitMap64:
        """Return what may not be delivered yet: delayed, or of an open transaction."""
        tx = self.tx.uncommitted
        return self.schedule.hidden | tx if tx else self.schedule.hidden

    def never(self) -> BitMap64:
        """Return what may never be delivered: cancelled, or of an aborted transaction."""
        aborted = self.tx.aborted
        return self.schedule.cancelled | aborted if aborted else self.schedule.cancelled

    def trim(self, start_offset: Offset) -> None:
        """Forget messages that are no longer in the log."""
        for offsets in (*self.lanes, self.empty):
            offsets.remove_range(0, start_offset)
        self.schedule.trim(start_offset)
        self.tx.trim(start_offset)
        self.callers.trim(start_offset)

    def truncate(self, end_offset: Offset, tx: TxIndex) -> None:
        """Forget the messages from an offset on; ``tx`` has the transactions of those before it.

        What people changed of earlier messages stays: it is not in the log.
        """
        for offsets in (*self.lanes, self.empty):
            cut_from(offsets, end_offset)
        self.schedule.truncate(end_offset)
        self.callers.truncate(end_offset)
        self.tx = tx
        self.arm()

    def count_consumed(self, acked: Written) -> None:
        """Count messages that a group has acked, by priority."""
        normal = count_of(acked)
        if any(self.lanes):
            offsets = set_of(acked)
            for lane, known in enumerate(self.lanes):
                count = known.intersection_cardinality(offsets)
                self.consumed[lane] += count
                normal -= count
        self.consumed[PRIORITY_NORMAL] += normal

    # Reading.

    @property
    def is_clear(self) -> bool:
        """Tell that plain readers get everything."""
        return not self.schedule.hidden and not self.schedule.cancelled

    def unseen(self, start_offset: Offset, end_offset: Offset) -> BitMap64 | None:
        """Return the offsets of a range that plain readers do not get, or None for none."""
        found: BitMap64 | None = None
        for offsets in (self.schedule.hidden, self.schedule.cancelled):
            if offsets and offsets.range_cardinality(start_offset, end_offset):
                here = BitMap64()
                here.add_range(start_offset, end_offset)
                here &= offsets
                found = here if found is None else found | here
        return found

    def aborted(self, start_offset: Offset, end_offset: Offset) -> BitMap64 | None:
        """Return the offsets of a range whose transactions were aborted, or None for none."""
        offsets = self.tx.aborted
        if not offsets or not offsets.range_cardinality(start_offset, end_offset):
            return None
        here = BitMap64()
        here.add_range(start_offset, end_offset)
        return here & offsets


def _tell(callbacks: Sequence[Offsets], offsets: BitMap64) -> None:
    """Call everybody; one who fails does not keep the news from the others."""
    for callback in tuple(callbacks):
        try:
            callback(offsets)
        except Exception:
            log.exception(LogEvent.WATCHER_CRASHED)
