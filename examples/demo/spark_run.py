"""The Spark side of the demonstration: a session and its queries, in a thread of their own."""

import csv
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from examples.demo import topics
from examples.demo.orders import PRODUCTS, Product
from goqueue.base.errors import GoQueueError
from goqueue.spark.java import JavaMissingError
from goqueue.spark.pipelines.load import load
from goqueue.spark.pipelines.progress import Figures, advance
from goqueue.spark.pipelines.spec import Mode
from goqueue.spark.pipelines.state import QueryState, RunState
from goqueue.spark.session import SparkMissingError, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PIPELINE: Final = "pipeline.yaml"
FIRST_QUERY: Final = "clean_orders"
TOTALS: Final = "totals"
ATTEMPTS_MAX: Final = 3
SETTINGS: Final = {
    # Few rows in little state: each part of it costs a task and files in every batch.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.driver.memory": "1g",
}
Reached = Mapping[str, Mapping[str, Mapping[str, int]]]
"""By query and topic: up to which offset each partition is done."""


class PipelineEndedError(GoQueueError):
    """The pipeline ended before it was asked to."""

    code = "pipeline_ended"


class SparkRun:
    """Starts Spark, runs the pipeline until it is stopped, and ends Spark."""

    def __init__(self, root: Path, servers: str, *, tell: Callable[[str], None]) -> None:
        self._root = root
        self._tell = tell
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo-spark", daemon=True)
        self._spark: SparkSession | None = None
        self._totals: StreamingQuery | None = None
        self._totals_figures = Figures()
        self.phase = "starting Spark"
        """What it is doing, for people."""
        self.queries: dict[str, QueryState] = {}
        """How each query stands."""
        self.violations: dict[str, int] = {}
        """Rows by the rule they broke."""
        self.absent = ""
        """Why there is no Spark on this machine."""
        self.failure: BaseException | None = None

    def __repr__(self) -> str:
        return f"<SparkRun: {self.phase}>"

    def start(self) -> None:
        """Begin, without waiting for anything."""
        write_files(self._root)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Tell whether nothing runs any more."""
        return not self._thread.is_alive()

    @property
    def is_up(self) -> bool:
        """Tell whether every query has done its first rows."""
        states = self.queries.values()
        return bool(states) and all(one.batches for one in states)

    def stop(self) -> None:
        """End the queries and Spark, and wait for that."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise what ended it, if it was an error."""
        if self.failure is not None:
            raise self.failure

    def reached(self) -> Reached:
        """Return how far each query is, with everything before it written."""
        spark = self._spark
        if spark is None:
            return {}
        return {str(query.name): offsets_of(_last(query)) for query in spark.streams.active}

    def _work(self) -> None:
        try:
            with self._started() as spark:
                self._spark = spark
                self.phase = "planning"
                self._run(spark)
                self._spark = None
                self.phase = "stopped"
        except (JavaMissingError, SparkMissingError) as error:
            self.absent = error.message
            self.phase = "absent"
        except BaseException as error:  # noqa: BLE001 - raised by who watches
            self._spark = None
            self.failure = error
            self.phase = "failed"

    @contextmanager
    def _started(self) -> Iterator["SparkSession"]:
        made = session("goqueue demo", conf=SETTINGS)
        try:
            yield made
        finally:
            made.stop()

    def _run(self, spark: "SparkSession") -> None:
        """Run the pipeline; what breaks is started again, and goes on where it was."""
        from goqueue.spark.pipelines.run import PipelineFailedError  # noqa: PLC0415 - PySpark

        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._attempt(spark)
            except (PipelineFailedError, PipelineEndedError) as error:
                if self._stop.is_set() or attempt == ATTEMPTS_MAX:
                    raise
                self._tell(f"spark     {_first_line(error)}; starting its queries again")
            else:
                return

    def _attempt(self, spark: "SparkSession") -> None:
        from goqueue.spark.pipelines.bind import Surroundings  # noqa: PLC0415 - loads PySpark
        from goqueue.spark.pipelines.run import RunOptions, run  # noqa: PLC0415

        options = RunOptions(
            mode=Mode.CONTINUOUS,
            state_root=self._root / "state",
            file=PIPELINE,
            watch=lambda state: self._watch(spark, state),
            stop=self._stop,
        )
        try:
            run(
                load(self._root / PIPELINE),
                Surroundings(spark=spark, servers=self._servers),
                options,
            )
        finally:
            totals, self._totals = self._totals, None
            if totals is not None:
                totals.stop()

    def _watch(self, spark: "SparkSession", state: RunState) -> None:
        self.violations = dict(state.violations)
        self.queries = {**state.queries, TOTALS: self._totals_state()}
        first = state.queries.get(FIRST_QUERY)
        if first is None:
            return
        self.phase = "running" if first.batches else "waiting for the first results"
        if self._totals is None and not self._stop.is_set():
            self._totals = self._start_totals(spark)

    def _start_totals(self, spark: "SparkSession") -> "StreamingQuery":
        from examples.demo.totals import start_totals  # noqa: PLC0415 - loads PySpark

        return start_totals(
            spark,
            name=TOTALS,
            servers=self._servers,
            source=topics.CLEAN,
            target=topics.TOTALS,
            checkpoint=self._root / "state" / TOTALS,
        )

    def _totals_state(self) -> QueryState:
        if self._totals is not None:
            error = self._totals.exception()
            if error is not None:
                raise PipelineEndedError(f"{TOTALS}: {error}")
            for progress in self._totals.recentProgress:
                self._totals_figures = advance(self._totals_figures, plain(progress))
        figures = self._totals_figures
        return QueryState(
            state=figures.state,
            rows=figures.rows,
            rows_per_second=figures.rows_per_second,
            batches=figures.batches,
            batch_ms=figures.batch_ms,
            lag_rows=figures.lag_rows,
        )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def write_files(root: Path) -> None:
    """Put the pipeline and the products where they are read, and where people can see them."""
    shutil.copy(Path(__file__).with_name(PIPELINE), root)
    with (root / "products.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Product))
        writer.writerows(astuple(one) for one in PRODUCTS)


def plain(progress: object) -> Mapping[str, Any]:
    """Return a report of Spark as plain values."""
    found: Mapping[str, Any] = msgspec.json.decode(str(getattr(progress, "json", "{}")))
    return found


def _last(query: "StreamingQuery") -> Mapping[str, Any]:
    progress = query.lastProgress
    return {} if progress is None else plain(progress)


def offsets_of(progress: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return up to where a query has read each topic, from its last report."""
    found: dict[str, dict[str, int]] = {}
    for source in progress.get("sources") or ():
        end = source.get("endOffset")
        parts = msgspec.json.decode(end) if isinstance(end, str) else end
        if isinstance(parts, dict):
            found |= {topic: dict(offsets) for topic, offsets in parts.items()}
    return found


def is_behind(reached: Reached, query: str, topic: str, ends: Mapping[int, int]) -> bool:
    """Tell whether a query has not read a topic up to these ends."""
    offsets = reached.get(query, {}).get(topic, {})
    return any(offsets.get(str(partition), 0) < end for partition, end in ends.items())
