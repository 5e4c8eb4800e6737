"""How the parts of a pipeline hang together: who reads from whom, in order, and what streams.

Shape: calculator.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.spark.pipelines.problems import Problems
from goqueue.spark.pipelines.spec import (
    DedupStep,
    Mode,
    Otherwise,
    Pipeline,
    Source,
    Step,
    TopicSource,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A pipeline whose parts are known to fit together."""

    pipeline: Pipeline
    order: tuple[str, ...]
    """Sources and steps, each behind everything it reads from; only those a sink needs."""
    inputs: Mapping[str, tuple[str, ...]]
    streams: frozenset[str]
    unused: tuple[str, ...]

    def part(self, name: str) -> Source | Step:
        """Return a source or step by its name."""
        found = self.pipeline.sources.get(name)
        return found if found is not None else self.pipeline.steps[name]

    def topics_behind(self, name: str) -> tuple[TopicSource, ...]:
        """Return the topic sources a part descends from."""
        found = [self.pipeline.sources[one] for one in sorted(self.ancestors(name))
                 if one in self.pipeline.sources]  # fmt: skip
        return tuple(one for one in found if isinstance(one, TopicSource))

    def ancestors(self, name: str) -> frozenset[str]:
        """Return a part with everything it descends from."""
        found = {name}
        todo = [name]
        while todo:
            for one in self.inputs[todo.pop()]:
                if one not in found:
                    found.add(one)
                    todo.append(one)
        return frozenset(found)


def plan(pipeline: Pipeline, mode: Mode) -> Graph:
    """Return how a pipeline hangs together, or raise PipelineError with all that does not fit."""
    problems = Problems()
    inputs = _inputs(pipeline, problems)
    problems.check(name=f"pipeline {pipeline.name}")
    order = _order(inputs, pipeline, problems)
    problems.check(name=f"pipeline {pipeline.name}")
    streams = _streams(pipeline, inputs, order, mode)
    graph = Graph(
        pipeline=pipeline,
        order=order,
        inputs=inputs,
        streams=streams,
        unused=tuple(name for name in inputs if name not in order),
    )
    _check_rules(graph, problems)
    if mode is not Mode.BATCH:
        _check_streams(graph, problems)
    problems.check(name=f"pipeline {pipeline.name}")
    return graph


def _inputs(pipeline: Pipeline, problems: Problems) -> dict[str, tuple[str, ...]]:
    """Return who reads from whom; names are compared as SQL does, without capitals."""
    known = {name.lower(): name for name in (*pipeline.sources, *pipeline.steps)}
    inputs: dict[str, tuple[str, ...]] = dict.fromkeys(pipeline.sources, ())
    for step in pipeline.steps.values():
        for name in step.inputs:
            if name.lower() not in known:
                problems.unknown(
                    f"transforms.{step.name}.from", "source or transform", name, known.values()
                )
        inputs[step.name] = tuple(
            known[name.lower()] for name in step.inputs if name.lower() in known
        )
    for sink in pipeline.sinks.values():
        if sink.input and sink.input not in inputs:
            problems.unknown(f"sinks.{sink.name}.from", "source or transform", sink.input, inputs)
    for name in pipeline.expectations:
        if name not in inputs:
            problems.unknown(f"expectations.{name}", "source or transform", name, inputs)
    return inputs


def _order(
    inputs: Mapping[str, tuple[str, ...]], pipeline: Pipeline, problems: Problems
) -> tuple[str, ...]:
    """Return what the sinks need, inputs first; a circle is noted with everybody in it."""
    order: dict[str, None] = {}
    for sink in pipeline.sinks.values():
        _visit(sink.input, inputs, order, problems)
    # Expectations with a quarantine write to a topic, so they need their part, too.
    for name, rules in pipeline.expectations.items():
        if any(rule.otherwise is Otherwise.QUARANTINE for rule in rules):
            _visit(name, inputs, order, problems)
    return tuple(order)


def _visit(
    start: str,
    inputs: Mapping[str, tuple[str, ...]],
    order: dict[str, None],
    problems: Problems,
) -> None:
    """Walk down from a part without recursion: a chain may be as long as a pipeline."""
    path = [start]
    pending = {start: list(reversed(inputs[start]))}
    while path:
        top = path[-1]
        if top in order:
            path.pop()
            continue
        if not pending[top]:
            order[top] = None
            path.pop()
            continue
        child = pending[top].pop()
        if child in path:
            circle = [*path[path.index(child) :], child]
            problems.add(f"transforms.{child}", f"reads from itself: {' <- '.join(circle)}")
            return
        if child not in order:
            path.append(child)
            pending.setdefault(child, list(reversed(inputs[child])))


def _streams(
    pipeline: Pipeline,
    inputs: Mapping[str, tuple[str, ...]],
    order: tuple[str, ...],
    mode: Mode,
) -> frozenset[str]:
    if mode is Mode.BATCH:
        return frozenset()
    streams: set[str] = set()
    for name in order:
        source = pipeline.sources.get(name)
        is_stream = source.is_stream if source else any(one in streams for one in inputs[name])
        if is_stream:
            streams.add(name)
    return frozenset(streams)


def _check_rules(graph: Graph, problems: Problems) -> None:
    for name, rules in graph.pipeline.expectations.items():
        for place, rule in enumerate(rules):
            if rule.otherwise is not Otherwise.QUARANTINE or rule.topic:
                continue
            if not graph.topics_behind(name):
                problems.add(
                    f"expectations.{name}[{place}].else",
                    "there are no dead letters to go to: the rows come from no topic",
                    "name one with topic:",
                )


def _check_streams(graph: Graph, problems: Problems) -> None:
    for sink in graph.pipeline.sinks.values():
        if sink.input not in graph.streams:
            problems.add(
                f"sinks.{sink.name}",
                f"{sink.input} is no stream",
                "add stream: true to a source of it, or run with --mode batch",
            )
    for name in graph.order:
        above = [
            one for one in sorted(graph.ancestors(name) - {name}) if _has_watermark(graph, one)
        ]
        if _has_watermark(graph, name) and above:
            problems.add(
                f"transforms.{name}.watermark",
                f"{above[0]} has one already, and a stream has one",
                "leave one of them out",
            )
        if isinstance(graph.part(name), DedupStep) and name in graph.streams:
            _check_dedup(graph, name, problems, is_marked=bool(above))


def _check_dedup(graph: Graph, name: str, problems: Problems, *, is_marked: bool) -> None:
    if not is_marked and not _has_watermark(graph, name):
        problems.add(
            f"transforms.{name}.watermark",
            "is required in a stream, which would remember every key for ever",
            "for example {column: timestamp, delay: 1h}",
        )


def _has_watermark(graph: Graph, name: str) -> bool:
    return name in graph.streams and graph.part(name).watermark is not None
