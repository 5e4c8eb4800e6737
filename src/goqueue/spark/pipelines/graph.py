"""How the parts of a pipeline hang together: who reads from whom, in order, and what streams.

Shape: calculator.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

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
    graph = survey(pipeline, mode, problems)
    problems.check(name=f"pipeline {pipeline.name}")
    return graph


def survey(
    pipeline: Pipeline, mode: Mode, problems: Problems, *, unreadable: Collection[str] = ()
) -> Graph:
    """Note all that does not fit together, and return what does.

    What follows from a part that is unreadable, reads from nobody or from itself is left out: it
    would only be the same problem once more.
    """
    inputs, faulty = _inputs(pipeline, unreadable, problems)
    whole, circular = _without_circles(inputs, problems)
    left_out = _descendants(whole, {*unreadable, *faulty, *circular})
    needed = _order(whole, pipeline)
    order = tuple(name for name in needed if name not in left_out)
    graph = Graph(
        pipeline=pipeline,
        order=order,
        inputs=whole,
        streams=_streams(pipeline, whole, order, mode),
        unused=tuple(name for name in whole if name not in needed),
    )
    _check_rules(graph, problems)
    if mode is not Mode.BATCH:
        _check_streams(graph, problems)
    return graph


def _inputs(
    pipeline: Pipeline, unreadable: Collection[str], problems: Problems
) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Return who reads from whom, and who reads from nobody there is.

    Names are compared as SQL does, without capitals.
    """
    names = (*pipeline.sources, *pipeline.steps, *unreadable)
    known = {name.lower(): name for name in names}
    inputs: dict[str, tuple[str, ...]] = dict.fromkeys((*pipeline.sources, *unreadable), ())
    faulty: set[str] = set()
    for step in pipeline.steps.values():
        for name in step.inputs:
            if name.lower() not in known:
                faulty.add(step.name)
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
    return inputs, faulty


def _without_circles(
    inputs: Mapping[str, tuple[str, ...]], problems: Problems
) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Return who reads from whom with every circle cut, and who was in one; each is noted."""
    whole = dict(inputs)
    circular: set[str] = set()
    while True:
        try:
            TopologicalSorter(whole).prepare()
        except CycleError as error:
            # It comes with its first part once more at the end, and each part is read by the next.
            found: list[str] = error.args[1][:0:-1]
        else:
            return whole, circular
        first = min(range(len(found)), key=lambda place: list(whole).index(found[place]))
        circle = [*found[first:], *found[:first], found[first]]
        problems.add(f"transforms.{circle[0]}", f"reads from itself: {' <- '.join(circle)}")
        circular |= set(circle)
        whole[circle[0]] = tuple(one for one in whole[circle[0]] if one != circle[1])


def _descendants(inputs: Mapping[str, tuple[str, ...]], roots: set[str]) -> set[str]:
    """Return some parts with all that read from them, near or far."""
    found = set(roots)
    for name in TopologicalSorter(inputs).static_order():
        if any(one in found for one in inputs[name]):
            found.add(name)
    return found


def _order(inputs: Mapping[str, tuple[str, ...]], pipeline: Pipeline) -> tuple[str, ...]:
    """Return what the sinks need, inputs first."""
    order: dict[str, None] = {}
    wanted = [sink.input for sink in pipeline.sinks.values()]
    # Expectations with a quarantine write to a topic, so they need their part, too.
    wanted += [
        name
        for name, rules in pipeline.expectations.items()
        if any(rule.otherwise is Otherwise.QUARANTINE for rule in rules)
    ]
    for name in wanted:
        if name in inputs:
            _visit(name, inputs, order)
    return tuple(order)


def _visit(start: str, inputs: Mapping[str, tuple[str, ...]], order: dict[str, None]) -> None:
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
        if name not in graph.order and name not in graph.unused:
            continue
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
        if sink.input in graph.order and sink.input not in graph.streams:
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
