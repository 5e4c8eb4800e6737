"""The alarm clock of delayed messages: wakes each queue when it has something to do."""

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from goqueue.base.units import SECOND_MS
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.queue.visibility import PartitionVisibility

SLEEP_MS_MAX: Final = SECOND_MS
"""The wall clock is looked at this often at least: it may have been set, or right again."""
HEAP_MIN: Final = 64
"""Fewer entries than these are not worth sweeping."""

log = get_logger("goqueue.schedule")


class DueTimer:
    """One alarm for all queues of a broker. It sleeps until the first of them is due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._armed: dict[PartitionVisibility, int] = {}
        self._paused: set[PartitionVisibility] = set()
        self._heap: list[tuple[int, int, PartitionVisibility]] = []
        self._numbers = count()
        self._shift_ms = clock.shift_ms()

    def __repr__(self) -> str:
        return f"<DueTimer of {len(self._armed)} queues>"

    def start(self) -> None:
        """Begin to wake queues, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._set_alarm()

    def stop(self) -> None:
        """Wake nobody any more."""
        self._loop = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def arm(self, queue: PartitionVisibility, at_ms: int) -> None:
        """Wake a queue at a time of ``Clock.steady_ms``, or earlier if that was asked before."""
        if queue in self._paused:
            return
        known_ms = self._armed.get(queue)
        if known_ms is None or at_ms < known_ms:
            self._armed[queue] = at_ms
            heappush(self._heap, (at_ms, next(self._numbers), queue))
            if len(self._heap) > HEAP_MIN + 2 * len(self._armed):
                self._sweep()
            self._set_alarm()

    def _sweep(self) -> None:
        """Keep one entry for each queue: a time that an earlier one has replaced is for nothing."""
        self._heap = [(at_ms, next(self._numbers), queue) for queue, at_ms in self._armed.items()]
        heapify(self._heap)

    def pause(self, queue: PartitionVisibility) -> None:
        """Do not wake a queue until it is resumed."""
        self.disarm(queue)
        self._paused.add(queue)

    def resume(self, queue: PartitionVisibility) -> None:
        """Wake a queue again, at once if something became due meanwhile."""
        if queue in self._paused:
            self._paused.discard(queue)
            queue.advance()

    def disarm(self, queue: PartitionVisibility) -> None:
        """Forget a queue: its partition is gone."""
        self._paused.discard(queue)
        if self._armed.pop(queue, None) is not None:
            self._heap = [entry for entry in self._heap if entry[2] is not queue]
            heapify(self._heap)

    def tick(self) -> None:
        """Advance every queue that is due by now."""
        self._look_at_the_wall()
        now_ms = self._clock.steady_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, queue = heappop(self._heap)
            if self._armed.get(queue) != at_ms:
                continue
            del self._armed[queue]
            try:
                queue.advance()
            except Exception:
                log.exception(LogEvent.TIMER_CRASHED, queue=repr(queue))

    def _wake(self) -> None:
        self._alarm = None
        self.tick()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._loop is None or not self._heap:
            return
        at_ms = self._heap[0][0]
        if self._alarm is not None:
            if self._alarm_ms <= at_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = at_ms
        # One more millisecond: woken just before its time it would have to sleep again.
        sleep_ms = min(max(at_ms - self._clock.steady_ms(), 0) + 1, SLEEP_MS_MAX)
        self._alarm = self._loop.call_later(sleep_ms / SECOND_MS, self._wake)

    def _look_at_the_wall(self) -> None:
        """Have every queue follow a wall clock that was set."""
        shift_ms = self._clock.shift_ms()
        if shift_ms != self._shift_ms:
            self._shift_ms = shift_ms
            for queue in list(self._armed):
                queue.turn()
