"""What time brings to transactions: those open for too long end, and who is gone is forgotten."""

import asyncio
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.limits import TX_IDLE_MS_MAX, TX_SESSION_MS
from goqueue.base.units import MINUTE_MS, SECOND_MS
from goqueue.core.tx.producer import ABORT
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.tx_metrics import TxMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.machine import unawaited
from goqueue.runtime.tx.finisher import TxFinisher
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.roster import Roster
from goqueue.runtime.tx.strays import Strays

SWEEP_INTERVAL_MS: Final = SECOND_MS
REVIEW_INTERVAL_MS: Final = MINUTE_MS
"""How often those who have nothing open are looked at, to forget who is gone."""

log = get_logger("goqueue.transactions")


class TxSweep:
    """Looks at every producer that has something open, again and again."""

    def __init__(
        self, roster: Roster, endings: TxFinisher, strays: Strays, clock: Clock, metrics: TxMetrics
    ) -> None:
        self._roster = roster
        self._endings = endings
        self._strays = strays
        self._clock = clock
        self._metrics = metrics
        self._next_review_ms = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<TxSweep over {self._roster!r}>"

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._sweep_on())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def sweep(self) -> None:
        """Abort what was open for too long or whose producer fell silent; forget who is gone."""
        now_ms = self._clock.monotonic_ms()
        if self._strays.are_left and self._roster.is_whole:
            self._strays.abort()
        for hosted in self._watched(now_ms):
            try:
                self._look_after(hosted, now_ms)
            except GoQueueError as error:
                name = hosted.producer.name
                log.warning(LogEvent.TX_TIMEOUT_NOT_PERSISTED, id=name, error=error.message)

    def _look_after(self, hosted: HostedTxProducer, now_ms: int) -> None:
        producer = hosted.producer
        if producer.is_detached and not self._roster.is_whole:
            # Whoever adopted it may be elsewhere.
            return
        deadline_ms, silent_ms = hosted.deadline_ms(), hosted.silent_ms(now_ms)
        if deadline_ms is not None:
            if now_ms >= deadline_ms:
                self._give_up(hosted, "its time was over")
            elif silent_ms >= TX_SESSION_MS and not producer.is_detached:
                self._give_up(hosted, "its producer fell silent")
        elif producer.is_busy:
            self._endings.ensure_progress(hosted)
        elif silent_ms >= TX_IDLE_MS_MAX:
            unawaited(self._roster.forget(hosted))

    def _watched(self, now_ms: int) -> list[HostedTxProducer]:
        """Return who is to be looked at: those who have work, and now and then all."""
        if now_ms < self._next_review_ms:
            return list(self._roster.busy.values())
        self._next_review_ms = now_ms + REVIEW_INTERVAL_MS
        return list(self._roster)

    def _give_up(self, hosted: HostedTxProducer, reason: str) -> None:
        hosted.commit(hosted.producer.give_up(reason).events)
        log.info(LogEvent.TX_ABORTED, id=hosted.producer.name, reason=reason)
        self._metrics.ended(ABORT, seconds=0)
        self._endings.carry_out_later(hosted, pause_seconds=0)

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_MS / 1_000)
            try:
                self.sweep()
            except Exception:
                log.exception(LogEvent.TX_SWEEP_CRASHED)
