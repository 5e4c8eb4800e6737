"""Running a pipeline: queries for its sinks and quarantines, watched until all are over."""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.base.units import SECOND_MS
from goqueue.spark.pipelines.bind import Bound, Surroundings
from goqueue.spark.pipelines.failure import brief
from goqueue.spark.pipelines.graph import Graph
from goqueue.spark.pipelines.lake import Lake
from goqueue.spark.pipelines.lake_compaction import compact
from goqueue.spark.pipelines.load import Loaded
from goqueue.spark.pipelines.outputs import analyse, has_no_memory, outputs
from goqueue.spark.pipelines.progress import Figures, advance
from goqueue.spark.pipelines.shared import OutputTask, SharedWriter
from goqueue.spark.pipelines.sharing import Reading, cuts_of, leavers, readings
from goqueue.spark.pipelines.sinks import Place, prepare_session, start, write
from goqueue.spark.pipelines.spec import LakeSink, Mode, Sink
from goqueue.spark.pipelines.state import QueryState, RunState, StateFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.2
REPORT_S: Final = 1.0
COMPACT_S: Final = 300.0
STARTS_MAX: Final = 20
SLOW_WORKER: Final = "Python worker failed to connect back"
GRACE_S: Final = 5.0
GRACE_POLL_S: Final = 0.01
PROGRESS_KEPT: Final = 100

Watch = Callable[[RunState], None]


class PipelineFailedError(GoQueueError):
    """A query of the pipeline ended with an error."""

    code = "pipeline_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run."""

    mode: Mode = Mode.AVAILABLE_NOW
    state_root: Path = Path("pipelines-state")
    file: str = ""
    watch: Watch = field(default=lambda _: None)
    stop: threading.Event = field(default_factory=threading.Event)
    is_over_when_idle: bool = False
    """End a continuous run when everything there was is read."""
    is_locked: bool = False
    """The caller holds the lock of the state folder, so as to know before Spark is started."""


def run(loaded: Loaded, around: Surroundings, options: RunOptions) -> RunState:
    """Run a pipeline until it is done or asked to stop; return how it ended."""
    folder = StateFolder(options.state_root.resolve(), loaded.pipeline.name)
    with nullcontext() if options.is_locked else folder.lock():
        prepare_session(around.spark)
        running = _Running(loaded, around, options, folder)
        try:
            if options.mode is Mode.BATCH:
                running.run_batch()
            else:
                running.run_stream()
        except BaseException as error:
            running.end("failed", brief(error))
            raise
        return running.state


def _place(loaded: Loaded, around: Surroundings, options: RunOptions, checkpoint: Path) -> Place:
    return Place(
        around=around,
        pipeline=loaded.pipeline.name,
        folder=loaded.pipeline.folder,
        checkpoint=checkpoint,
        mode=options.mode,
        trigger=loaded.pipeline.trigger,
    )


class _Running:
    """One run."""

    def __init__(
        self, loaded: Loaded, around: Surroundings, options: RunOptions, folder: StateFolder
    ) -> None:
        self._loaded = loaded
        self._around = around
        self._options = options
        self._folder = folder
        self._figures: dict[str, Figures] = {}
        self._wanted: dict[str, tuple[Sink, DataFrame]] = {}
        self._readings: dict[str, Reading] = {}
        self._writers: dict[str, SharedWriter] = {}
        self._streams: dict[str, DataFrame] = {}
        self._starts: dict[str, int] = {}
        self._reported_s = 0.0
        self._compacted_s = time.monotonic()
        self.state = RunState(
            name=loaded.pipeline.name,
            file=options.file,
            mode=options.mode.value,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_ms=_now_ms(),
        )
        self._report(is_due=True)

    def _prepare(self) -> tuple[Graph, Bound, dict[str, tuple[Sink, "DataFrame"]]]:
        graph, bound = analyse(self._loaded, self._around, self._options.mode)
        return graph, bound, outputs(self._loaded, graph, bound, [])

    # Streams.

    def run_stream(self) -> None:
        """Start all queries and watch them."""
        graph, bound, self._wanted = self._prepare()
        self._share(graph, bound)
        queries: dict[str, StreamingQuery] = {}
        try:
            for name in self._readings:
                self._figures[name] = Figures()
                queries[name] = self._start(name)
            self._watch(queries)
        finally:
            for query in queries.values():
                _stop(query)
        for name, query in queries.items():
            self._follow(name, query)
        self._compact()
        is_stopped = self._is_asked_to_stop()
        self.end("stopped" if is_stopped else "done")

    def _share(self, graph: Graph, bound: Bound) -> None:
        """Find out which outputs are read together, and make ready what writes them."""
        shared, sinks = self._folder.shared, {name: one for name, (one, _) in self._wanted.items()}
        plain = {name for name in graph.order if has_no_memory(bound.clean[name])}
        for name, output, part in leavers(cuts_of(graph, sinks, plain), shared.all()):
            shared.leave(name, output, part)
        if not hasattr(self._around.spark, "_jvm"):
            # Batches are handed to functions in another process there.
            plain, sinks_alone = set(), set(sinks)
        else:
            sinks_alone = set(self._folder.alone())
        together = shared.all()
        for one in readings(graph, sinks, plain, alone=sinks_alone, together=together):
            self._readings[one.name] = one
            if one.is_shared:
                place = self._place(shared.checkpoint(one.name))
                members = shared.begin(one.name, list(one.outputs))
                task = OutputTask(
                    loaded=self._loaded, graph=graph, reading=one, members=members, place=place
                )
                self._writers[one.name] = SharedWriter(task)
                self._streams[one.name] = bound.counted[one.part]

    def _start(self, name: str) -> "StreamingQuery":
        self._starts[name] = self._starts.get(name, 0) + 1
        if name in self._writers:
            return self._writers[name].start(self._streams[name])
        sink, rows = self._wanted[name]
        return start(sink, rows, self._place(self._folder.checkpoint(name)))

    def _place(self, checkpoint: Path) -> Place:
        return _place(self._loaded, self._around, self._options, checkpoint)

    def _watch(self, queries: dict[str, "StreamingQuery"]) -> None:
        while True:
            for name, query in queries.items():
                self._follow(name, query)
            self._report()
            slow = [name for name, query in queries.items() if self._failed(name, query)]
            if slow:
                # One at a time: they would only keep each other from coming up.
                queries[slow[0]] = self._start(slow[0])
            is_over = self._options.is_over_when_idle and self._is_idle()
            if is_over or self._is_asked_to_stop():
                return
            if not any(one.isActive for one in queries.values()):
                return
            if time.monotonic() - self._compacted_s > COMPACT_S:
                self._compact()
            self._options.stop.wait(POLL_S)

    def _follow(self, name: str, query: "StreamingQuery") -> None:
        """Take the reports since the last look into account."""
        figures = self._figures[name]
        for progress in query.recentProgress[-PROGRESS_KEPT:]:
            report = _plain(progress)
            if int(report.get("batchId", -1)) >= figures.batch_id:
                figures = advance(figures, report)
        self._figures[name] = figures

    def _failed(self, name: str, query: "StreamingQuery") -> bool:
        """Return True if a query is worth another start; raise if it failed for good."""
        error = query.exception()
        if error is None:
            return False
        if SLOW_WORKER in str(error) and self._starts[name] < STARTS_MAX:
            # Spark gives a Python process ten seconds to come up, however busy the machine is.
            return True
        text = brief(error)
        writer = self._writers.get(name)
        failed = (writer.failed if writer else "") or name
        for output in self._readings[name].outputs:
            if failed in {output, name}:
                self.state.queries.setdefault(output, QueryState()).error = text
        raise PipelineFailedError(f"{failed}: {text}")

    def _is_idle(self) -> bool:
        return all(one.lag_rows == 0 for one in self._figures.values())

    def _is_asked_to_stop(self) -> bool:
        return self._options.stop.is_set() or self._folder.is_asked_to_stop()

    # Batches.

    def run_batch(self) -> None:
        """Write one sink after the other."""
        from pyspark.sql import Observation  # noqa: PLC0415
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        _, bound, wanted = self._prepare()
        for name, (sink, rows) in wanted.items():
            self._figures[name] = Figures(state="running")
            self._report(is_due=True)
            began_s = time.monotonic()
            seen = Observation(f"written_{name}")
            place = _place(self._loaded, self._around, self._options, Path("unused"))
            write(sink, rows.observe(seen, F.count(F.lit(1)).alias("rows")), place)
            passed_s = time.monotonic() - began_s
            count = int(seen.get["rows"])
            self._figures[name] = Figures(
                state="done",
                rows=count,
                batches=1,
                batch_ms=int(passed_s * SECOND_MS),
                rows_per_second=round(count / max(passed_s, 0.001), 1),
                violations=_observed(bound.observations),
            )
        self._compact()
        self.end("done")

    # Telling.

    def _compact(self) -> None:
        self._compacted_s = time.monotonic()
        for sink in self._loaded.pipeline.sinks.values():
            if not isinstance(sink, LakeSink) or not sink.compact or "://" in sink.path:
                continue
            path = Path(self._loaded.pipeline.folder, sink.path).resolve()
            if path.is_dir():
                compact(Lake(path))

    def end(self, state: str, error: str = "") -> None:
        """Say how it ended."""
        self.state.state = state
        self.state.error = error
        passed_s = max(_now_ms() - self.state.started_ms, 1) / SECOND_MS
        for name, figures in self._figures.items():
            if figures.state in {"running", "starting"}:
                # The last report is of an idle moment; the whole run says more.
                rate = round(figures.rows / passed_s, 1)
                self._figures[name] = replace(figures, state=state, rows_per_second=rate)
        self._report(is_due=True)

    def _report(self, *, is_due: bool = False) -> None:
        if not is_due and time.monotonic() - self._reported_s < REPORT_S:
            return
        self._reported_s = time.monotonic()
        self.state.updated_ms = _now_ms()
        self.state.violations = self._violations()
        for name, figures in self._by_output().items():
            before = self.state.queries.get(name, QueryState())
            self.state.queries[name] = QueryState(
                state=figures.state,
                rows=figures.rows,
                rows_per_second=figures.rows_per_second,
                batches=figures.batches,
                batch_ms=figures.batch_ms,
                lag_rows=figures.lag_rows,
                late_rows=figures.late_rows,
                error=before.error,
            )
        self._folder.write(self.state)
        self._options.watch(self.state)

    def _by_output(self) -> dict[str, Figures]:
        """Return how each output stands: as the query that writes it."""
        found = dict(self._figures)
        for name, reading in self._readings.items():
            figures = found.pop(name, None)
            if figures is not None:
                found |= dict.fromkeys(reading.outputs, figures)
        # In the order of the file, whoever is read together.
        return {name: found[name] for name in (*self._wanted, *found) if name in found}

    def _violations(self) -> dict[str, int]:
        """Return the broken rules by name; every query that reads a part counts the same rows."""
        most: dict[str, int] = {}
        counted = [figures.violations for figures in self._figures.values()]
        counted += [dict(writer.violations) for writer in self._writers.values()]
        for one in counted:
            for key, count in one.items():
                part, _, place = key.rpartition(".")
                rule = self._loaded.pipeline.expectations[part][int(place)]
                name = f"{part}: {rule.name}"
                most[name] = max(most.get(name, 0), count)
        return most


def _stop(query: "StreamingQuery") -> None:
    """End a query between two batches if that comes soon; in the middle of one is safe, too."""
    deadline_s = time.monotonic() + GRACE_S
    pause = threading.Event()
    while query.isActive and time.monotonic() < deadline_s and query.status["isTriggerActive"]:
        pause.wait(GRACE_POLL_S)
    if query.isActive:
        query.stop()


def _observed(observations: Mapping[str, Any]) -> dict[str, int]:
    """Return what was counted in a batch, by ``part.rule``."""
    return {
        f"{part}.{column.removeprefix('v_')}": int(value)
        for part, one in observations.items()
        for column, value in one.get.items()
        if column.startswith("v_")
    }


def _plain(progress: object) -> Mapping[str, Any]:
    """Return a report of Spark as plain values."""
    found: Mapping[str, Any] = msgspec.json.decode(str(getattr(progress, "json", "{}")))
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
