"""Watches the streaming queries of a session: says why one failed, and counts rows dropped as late.

Sessions of ours are quiet, and a query fails in a thread of Spark: without this, a program that
does not wait for its query would never hear of it.
"""

import threading
from collections import Counter
from logging import getLogger
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = getLogger("goqueue.spark")


class QueryWatch(StreamingQueryListener):
    """Hears of all queries of the sessions it was added to."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._dropped: Counter[str] = Counter()
        # Guards both between the thread that Spark calls from and those that ask.
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"<QueryWatch of {len(self._names)} queries>"

    def rows_dropped(self, query: "StreamingQuery") -> int:
        """Return how many rows a watermark has dropped since the query was started."""
        with self._guard:
            return self._dropped[str(query.runId)]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the name of a query, which its end does not say."""
        with self._guard:
            self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Count the rows that came too late; say so of the first."""
        report = event.progress
        dropped = sum(one.numRowsDroppedByWatermark for one in report.stateOperators)
        if not dropped:
            return
        run_id = str(report.runId)
        with self._guard:
            is_first = not self._dropped[run_id]
            self._dropped[run_id] += dropped
        if is_first:
            name = report.name or str(report.id)
            log.warning(
                "query %s: %d rows of batch %d came later than the watermark and were dropped;"
                " the total is logged when the query ends",
                name,
                dropped,
                report.batchId,
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no news."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Say why a query failed, and how many rows were dropped."""
        # Loaded for the few queries that end badly; it reads only text.
        from goqueue.spark.pipelines.failure import brief  # noqa: PLC0415

        run_id = str(event.runId)
        with self._guard:
            name = self._names.pop(run_id, str(event.id))
            dropped = self._dropped[run_id]
        if event.exception is not None:
            log.error("query %s failed and has ended: %s", name, brief(event.exception))
        if dropped:
            log.warning("query %s: %d rows were dropped as too late in all", name, dropped)


WATCH: Final = QueryWatch()
"""The one of this process."""


def watch(spark: "SparkSession") -> QueryWatch:
    """Let the watch of this process hear of a session's queries; once is enough."""
    spark.streams.addListener(WATCH)
    return WATCH
