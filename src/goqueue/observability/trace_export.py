"""One exporter at work: a bounded queue, and a thread that empties it.

The broker only ever adds to the queue. What finds no room is dropped and counted; a sink that
hangs or fails delays nobody but itself.
"""

import threading
import time
from collections import deque
from itertools import islice
from typing import Final

from goqueue.base.limits import TRACE_QUEUE_SPANS_MAX
from goqueue.core.tracing.note import Note, TraceSpan, spans_of
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.trace_metrics import TraceMetrics
from goqueue.observability.trace_sink import Sink

BATCH_SPANS_MIN: Final = 100
"""So many spans do not wait for the interval."""
BATCH_SPANS_MAX: Final = 512

log = get_logger("goqueue.tracing")


class TraceExport:
    """Hands notes to a sink as spans, a batch at a time."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        *,
        metrics: TraceMetrics,
        interval_ms: int,
        spans_max: int = TRACE_QUEUE_SPANS_MAX,
    ) -> None:
        self.name = name
        self._sink = sink
        self._interval_seconds = interval_ms / 1_000
        self._spans_max = spans_max
        self._exported = metrics.exported.labels(name)
        self._dropped = metrics.dropped.labels(name)
        self._failed = metrics.failed.labels(name)
        self._queue: deque[Note] = deque()
        # Each is changed by one thread only: what was put in, and what was taken out.
        self._offered = 0
        self._taken = 0
        self._wake = threading.Event()
        self._is_stopping = False
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name=f"traces to {name}", daemon=True)

    def __repr__(self) -> str:
        return f"<TraceExport to {self.name}: {self.waiting} spans wait>"

    @property
    def waiting(self) -> int:
        """Return how many spans wait."""
        return self._offered - self._taken

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def offer(self, note: Note) -> None:
        """Take a note, or count its spans as dropped."""
        count = note.count
        if self.waiting + count > self._spans_max:
            self._dropped.inc(count)
            return
        self._offered += count
        self._queue.append(note)
        if self.waiting >= BATCH_SPANS_MIN and not self._wake.is_set():
            self._wake.set()

    def stop(self, timeout_seconds: float) -> None:
        """Export what waits, within a time. Any thread."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            log.warning(LogEvent.SPANS_LOST_AT_STOP, exporter=self.name, spans=self.waiting)

    def _run(self) -> None:
        deadline = time.monotonic() + self._interval_seconds
        while not self._is_stopping:
            self._wake.wait(max(deadline - time.monotonic(), 0.0))
            self._wake.clear()
            self._empty()
            deadline = time.monotonic() + self._interval_seconds
        self._empty()
        try:
            self._sink.close()
        except Exception:
            log.exception(LogEvent.EXPORTER_CLOSE_FAILED, exporter=self.name)

    def _empty(self) -> None:
        batch: list[TraceSpan] = []
        while self._queue:
            note = self._queue.popleft()
            spans = spans_of(note)
            while part := list(islice(spans, BATCH_SPANS_MAX - len(batch))):
                batch += part
                self._taken += len(part)
                if len(batch) == BATCH_SPANS_MAX:
                    self._write(batch)
                    batch = []
        if batch:
            self._write(batch)

    def _write(self, batch: list[TraceSpan]) -> None:
        try:
            self._sink.write(batch)
        except Exception as error:  # noqa: BLE001 - whatever a sink meets hurts nobody else
            self._failed.inc()
            self._dropped.inc(len(batch))
            if not self._is_failing:
                log.warning(LogEvent.SPANS_NOT_EXPORTED, exporter=self.name, error=str(error))
            self._is_failing = True
        else:
            self._exported.inc(len(batch))
            if self._is_failing:
                log.info(LogEvent.SPANS_EXPORTED_AGAIN, exporter=self.name)
            self._is_failing = False
