"""One stream, several outputs: each batch is read once, kept, and given to all of them.

A batch that comes again after a crash is given again to all of them; each knows by its own count
which batches it has had (ADR 0034).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import inheritable_thread_target

from goqueue.spark.pipelines.bind import Bound, bind
from goqueue.spark.pipelines.graph import Graph
from goqueue.spark.pipelines.load import Loaded
from goqueue.spark.pipelines.outputs import outputs, quarantine_of
from goqueue.spark.pipelines.problems import PipelineError, Problem
from goqueue.spark.pipelines.rules import counts, kept
from goqueue.spark.pipelines.shared_state import Members
from goqueue.spark.pipelines.sharing import Reading, parts_between
from goqueue.spark.pipelines.sinks import Place, streamed, write_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


WRITERS_MAX: Final = 4
"""Outputs of a batch that are written at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTask:
    """What a shared reading has to do."""

    loaded: Loaded
    graph: Graph
    reading: Reading
    members: Members
    place: Place


class SharedWriter:
    """Takes the batches of a stream and writes all outputs."""

    def __init__(self, task: OutputTask) -> None:
        self._task = task
        self._graph = _graph_behind(task)
        self._tables: dict[str, tuple[DataFrame, DataFrame]] = {}
        """What is no stream, raw and clean: looked up with the first batch, and kept."""
        self.violations: dict[str, int] = {}
        """Rows that broke rules behind the stream, by ``part.rule``."""
        self.failed = ""
        """The output that failed first, if one has."""

    def start(self, rows: "DataFrame") -> "StreamingQuery":
        """Start the query."""
        writer = streamed(rows, self._task.reading.name, self._task.place)
        return writer.foreachBatch(self.write).start()

    def write(self, rows: "DataFrame", batch: int) -> None:
        """Write one batch to all outputs."""
        whole = rows.persist()
        try:
            self._write(whole, batch)
        finally:
            whole.unpersist()

    def _write(self, rows: "DataFrame", batch: int) -> None:
        task = self._task
        bound = self._bound(rows)
        found = outputs(task.loaded, self._graph, bound, [])

        def write(name: str) -> None:
            sink, chosen = found[name]
            writer = task.members.writer_of(name)
            try:
                _make_active(rows.sparkSession)
                write_once(sink, chosen, task.place, writer=writer, batch=batch)
            except BaseException:
                self.failed = self.failed or name
                raise

        # Side by side: much of a write is waiting for processes to start and for disks.
        with ThreadPoolExecutor(WRITERS_MAX, thread_name_prefix="goqueue-output") as pool:
            begun = [
                # Each with a copy of this thread's properties; one for all would be mixed up.
                pool.submit(inheritable_thread_target(rows.sparkSession)(write), name)
                for name in task.reading.outputs
            ]
        for one in begun:
            one.result()
        self._count(bound)

    def _count(self, bound: Bound) -> None:
        """Count the rows that broke rules behind the stream, whose own are counted as they pass.

        By itself, and not as they are written: Spark leaves out what it knows to be empty.
        """
        for part, rules in self._graph.pipeline.expectations.items():
            if part not in bound.clean or part == self._task.reading.part:
                continue
            if part in self._task.graph.streams:
                row: Any = bound.raw[part].agg(*counts(rules)).first()
                for place in range(len(rules)):
                    key = f"{part}.{place}"
                    self.violations[key] = self.violations.get(key, 0) + int(row[f"v_{place}"])

    def _bound(self, rows: "DataFrame") -> Bound:
        """Work out everything that is behind the stream."""
        task, part = self._task, self._task.reading.part
        clean = kept(rows, part, task.graph.pipeline.expectations.get(part, ()))
        given = Bound(
            raw={part: rows, **{name: raw for name, (raw, _) in self._tables.items()}},
            clean={part: clean, **{name: rows for name, (_, rows) in self._tables.items()}},
            counted={},
        )
        # A stream has a session of its own, in which its views disturb nobody.
        around = replace(task.place.around, spark=rows.sparkSession)
        problems: list[Problem] = []
        bound = bind(task.loaded, self._graph, around, problems, given)
        if problems:
            raise PipelineError(problems, name=f"pipeline {task.loaded.pipeline.name}")
        self._tables = {
            name: (bound.raw[name], bound.clean[name])
            for name in self._graph.order
            if name != part and name not in task.graph.streams
        }
        return bound


def _make_active(spark: "SparkSession") -> None:
    """Let what this thread does be done in the session of the stream, which knows our source."""
    session: Any = spark
    module = session._get_j_spark_session_class(session._jvm)  # noqa: SLF001 - no other way
    module.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _graph_behind(task: OutputTask) -> Graph:
    """Return the part of the graph that is worked out for each batch, in which nothing streams."""
    part = task.reading.part
    sinks = task.graph.pipeline.sinks
    wanted = {sinks[name].input for name in task.reading.outputs if name in sinks}
    between = parts_between(task.graph, part, {part, *wanted, *_quarantined(task)})
    return replace(
        task.graph,
        order=tuple(name for name in task.graph.order if name in between),
        streams=frozenset(),
    )


def _quarantined(task: OutputTask) -> set[str]:
    """Return the parts whose quarantines are among the outputs."""
    names = {*task.reading.outputs}
    return {part for part in task.graph.pipeline.expectations if quarantine_of(part) in names}
