"""What a pipeline writes: the rows of its sinks and quarantines, looked at before it runs."""

from typing import TYPE_CHECKING, Any, Final

from goqueue.spark.pipelines.bind import Bound, Surroundings, bind
from goqueue.spark.pipelines.failure import brief
from goqueue.spark.pipelines.graph import Graph, plan
from goqueue.spark.pipelines.load import Loaded
from goqueue.spark.pipelines.problems import PipelineError, Problem
from goqueue.spark.pipelines.rules import quarantined
from goqueue.spark.pipelines.sinks import check_sink
from goqueue.spark.pipelines.spec import Mode, Otherwise, Sink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUARANTINE: Final = "quarantine_"
PLAIN_OPERATORS: Final = frozenset(
    {
        "Project", "Filter", "SubqueryAlias", "View", "CollectMetrics", "Generate", "Join",
        "EventTimeWatermark", "ResolvedHint",
    }
)  # fmt: skip
"""What does the same to each row of a stream, whatever came before it."""


def quarantine_of(part: str) -> str:
    """Return the name of the output to which the broken rows of a part go."""
    return f"{QUARANTINE}{part}"


def outputs(
    loaded: Loaded, graph: Graph, bound: Bound, problems: list[Problem]
) -> dict[str, tuple[Sink, "DataFrame"]]:
    """Return what is written: the rows of each sink, and those of each quarantine.

    What is left out is noted, here or when it was bound.
    """
    found: dict[str, tuple[Sink, DataFrame]] = {}
    for sink in graph.pipeline.sinks.values():
        if sink.input in bound.clean:
            found[sink.name] = (sink, bound.clean[sink.input])
    for part, rules in graph.pipeline.expectations.items():
        if part not in bound.clean or all(
            rule.otherwise is not Otherwise.QUARANTINE for rule in rules
        ):
            continue
        topics = [topic for one in graph.topics_behind(part) for topic in one.topics]
        try:
            rows = quarantined(
                bound.raw[part], part, rules, pipeline=loaded.pipeline.name, topics=topics
            )
        except PipelineError as error:
            problems += error.problems
            continue
        name = quarantine_of(part)
        found[name] = (TopicSink(name=name, input=part, topic="*"), rows)
    return found


def analyse(loaded: Loaded, around: Surroundings, mode: Mode) -> tuple[Graph, Bound]:
    """Have Spark look at everything without running it; raise PipelineError with all problems."""
    graph = plan(loaded.pipeline, mode)
    problems: list[Problem] = []
    bound = bind(loaded, graph, around, problems)
    for name, (sink, rows) in outputs(loaded, graph, bound, problems).items():
        try:
            shaped = check_sink(sink, rows)
            if shaped.isStreaming:
                _check_streaming(shaped, sink)
        except Exception as error:  # noqa: BLE001 - Spark's own, of many classes
            problems.append(Problem(path=f"sinks.{name}", message=brief(error)))
    if problems:
        raise PipelineError(problems, name=f"pipeline {loaded.pipeline.name}")
    return graph, bound


def _check_streaming(rows: "DataFrame", sink: Sink) -> None:
    """Ask Spark whether it can run a query as a stream; only a session in this machine tells."""
    frame: Any = rows
    if not hasattr(frame, "_jdf"):
        return
    jvm = frame.sparkSession._jvm  # noqa: SLF001 - there is no other way without starting it
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    checker.checkForStreaming(analysed, mode[sink.output_mode.value]())


def has_no_memory(rows: "DataFrame") -> bool:
    """Return True if a stream is worked out row by row; only a session in this machine tells.

    A join with another stream remembers rows, one with a table does not. What is not known here
    is taken to have a memory.
    """
    frame: Any = rows
    if not hasattr(frame, "_jdf"):
        return False
    todo = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001 - there is no other way
    while todo:
        node = todo.pop()
        children = node.children()
        streams = [
            children.apply(place)
            for place in range(children.size())
            if children.apply(place).isStreaming()
        ]
        is_source = children.isEmpty()
        if not is_source and (node.nodeName() not in PLAIN_OPERATORS or len(streams) != 1):
            return False
        todo += streams
    return True
