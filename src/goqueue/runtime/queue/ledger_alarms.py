"""The alarm clock of ledgers: calls back with those that time has brought something to."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.queue.hosted_ledger import HostedLedger

ALARMS_MIN: Final = 64

log = get_logger("goqueue.delivery")


class LedgerAlarms:
    """One timer for all ledgers of a broker. It sleeps until the first of them is due."""

    def __init__(self, clock: Clock, on_due: Callable[[HostedLedger], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._alarms: list[tuple[int, int, HostedLedger]] = []
        self._alarms_max = ALARMS_MIN
        self._ordinals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<LedgerAlarms: {len(self._alarms)}>"

    def watch(self, hosted: HostedLedger) -> None:
        """Call back when the next thing happens to a ledger by itself."""
        due_ms = hosted.ledger.first_due_ms()
        if due_ms is None or not hosted.is_known or hosted.is_closed:
            return
        due_ms = max(due_ms, hosted.quiet_until_ms)
        if hosted.alarm_ms is not None and hosted.alarm_ms <= due_ms:
            return
        hosted.alarm_ms = due_ms
        heapq.heappush(self._alarms, (due_ms, next(self._ordinals), hosted))
        if len(self._alarms) > self._alarms_max:
            self._sweep()
        self._arm()

    def stop(self) -> None:
        """Ring no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Call back with every ledger that is due by now."""
        now_ms = self._clock.monotonic_ms()
        due: dict[int, HostedLedger] = {}
        while self._alarms and self._alarms[0][0] <= now_ms:
            due_ms, _, hosted = heapq.heappop(self._alarms)
            if hosted.alarm_ms == due_ms and not hosted.is_closed:
                hosted.alarm_ms = None
                due[id(hosted)] = hosted
        for hosted in due.values():
            self._on_due(hosted)
            self.watch(hosted)

    def _sweep(self) -> None:
        """Keep one alarm for each ledger: what an earlier one has replaced is for nothing."""
        live = {
            id(hosted): (due_ms, ordinal, hosted)
            for due_ms, ordinal, hosted in self._alarms
            if hosted.alarm_ms == due_ms and not hosted.is_closed
        }
        self._alarms = sorted(live.values(), key=lambda alarm: alarm[:2])
        self._alarms_max = max(ALARMS_MIN, 2 * len(self._alarms))

    def _arm(self) -> None:
        if self._is_stopped or not self._alarms:
            return
        due_ms = self._alarms[0][0]
        loop = asyncio.get_running_loop()
        at = loop.time() + max(due_ms - self._clock.monotonic_ms(), 0) / 1_000 + 0.001
        if self._timer is not None:
            # Kept here: what uvloop returns for a time that is now has none.
            if self._rings_at <= at and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._ring)
        self._rings_at = at

    def _ring(self) -> None:
        self._timer = None
        try:
            self.tick()
        except Exception:
            log.exception(LogEvent.LEASE_EXPIRY_CRASHED)
        self._arm()
