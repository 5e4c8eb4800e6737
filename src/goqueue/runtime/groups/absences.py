"""Members whose connections ended: they have a grace to come back, then they are removed."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from goqueue.base.ids import MemberId
from goqueue.base.units import SECOND_MS
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.hosted_group import HostedGroup

STALL_MS: Final = 2 * SECOND_MS
"""By so much later, and the broker could not hear anybody."""
RING_SECONDS: Final = 0.001
"""The time from the end of a grace to the removal: requests of the connection end before it."""

log = get_logger("goqueue.groups")


class Absences:
    """Watches the time for members that have lost their last connection."""

    def __init__(self, *, clock: Clock, remove: Callable[[HostedGroup], None]) -> None:
        self._clock = clock
        self._remove = remove
        self._groups: dict[HostedGroup, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at_ms = 0

    def __repr__(self) -> str:
        return f"<Absences in {len(self._groups)} groups>"

    def begin(self, places: Iterable[tuple[HostedGroup, MemberId]]) -> None:
        """Give members that have no connection any more their grace."""
        now_ms = self._clock.monotonic_ms()
        for hosted, member in places:
            hosted.sessions.lose(member, now_ms=now_ms)
            self._groups[hosted] = None
            self._arm(now_ms + hosted.options.disconnect_grace_ms)

    def forget(self, hosted: HostedGroup) -> None:
        """Forget a group that is not hosted here any more."""
        self._groups.pop(hosted, None)

    def stop(self) -> None:
        """Stop all timers."""
        self._groups.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._rings_at_ms <= due_ms:
                return
            self._timer.cancel()
        self._rings_at_ms = due_ms
        delay_s = max(due_ms - self._clock.monotonic_ms(), 0) / SECOND_MS + RING_SECONDS
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        try:
            self._end_due()
        except Exception:
            log.exception(LogEvent.GROUP_SWEEP_CRASHED)

    def _end_due(self) -> None:
        """Have those removed whose grace is over, and wait for the others.

        A process that stood still accepted nothing: time by which this is late does not count.
        """
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._rings_at_ms
        for hosted in list(self._groups):
            if late_ms > STALL_MS:
                hosted.sessions.excuse_lost(late_ms, now_ms=now_ms)
            if hosted.sessions.lost(now_ms=now_ms):
                self._remove(hosted)
            # A removal that could not be written is the sweep's.
            waiting = [at_ms for at_ms in hosted.sessions.grace_ends_ms if at_ms > now_ms]
            if waiting:
                self._arm(min(waiting))
            else:
                del self._groups[hosted]
