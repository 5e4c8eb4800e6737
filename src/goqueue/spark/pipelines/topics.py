"""The topics a pipeline needs: which are missing, and which it makes by itself.

Shape: calculator, but for ``make_topics``, which makes them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from goqueue.base.limits import DLQ_RETENTION_MS
from goqueue.core.dlq.names import dlq_of, is_dlq
from goqueue.spark.pipelines.graph import Graph
from goqueue.spark.pipelines.problems import Problems, nearest
from goqueue.spark.pipelines.spec import Otherwise, TopicSink, TopicSource

if TYPE_CHECKING:
    import goqueue

NEW_PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that is made before the pipeline runs."""

    name: str
    partitions: int
    settings: Mapping[str, str | float]


def check_topics(graph: Graph, there: Mapping[str, int]) -> tuple[list[NewTopic], Problems]:
    """Return the topics to be made, and what is missing; ``there`` are topics with partitions."""
    problems = Problems()
    for source in graph.pipeline.sources.values():
        if isinstance(source, TopicSource) and source.name in graph.order:
            _check_source(source, there, problems)
    new = [*_sink_topics(graph, there, problems), *_quarantines(graph, there)]
    return list({one.name: one for one in new}.values()), problems


def _check_source(source: TopicSource, there: Mapping[str, int], problems: Problems) -> None:
    for topic in source.topics:
        if topic not in there:
            problems.unknown(f"sources.{source.name}", "topic", topic, there)
    if source.pattern:
        try:
            found = matching(source, there)
        except re.error as error:
            problems.add(f"sources.{source.name}.pattern", f"is no regular expression: {error}")
            return
        if not found:
            problems.add(f"sources.{source.name}.pattern", "no topic is called like that")


def matching(source: TopicSource, there: Mapping[str, int]) -> list[str]:
    """Return the topics a source reads now."""
    if source.topics:
        return [topic for topic in source.topics if topic in there]
    pattern = re.compile(source.pattern)
    return sorted(one for one in there if not one.startswith("__") and pattern.fullmatch(one))


def _sink_topics(graph: Graph, there: Mapping[str, int], problems: Problems) -> list[NewTopic]:
    new: list[NewTopic] = []
    for sink in graph.pipeline.sinks.values():
        if not isinstance(sink, TopicSink) or sink.topic == "*" or sink.topic in there:
            continue
        if sink.partitions:
            new.append(NewTopic(name=sink.topic, partitions=sink.partitions, settings={}))
            continue
        problems.add(
            f"sinks.{sink.name}",
            f"there is no topic {sink.topic[:80]!a}",
            f"{nearest(sink.topic, there)}; partitions: {NEW_PARTITIONS} would make it",
        )
    return new


def _quarantines(graph: Graph, there: Mapping[str, int]) -> list[NewTopic]:
    """Return the topics of dead letters, made like the broker's own."""
    new: list[NewTopic] = []
    for name, rules in graph.pipeline.expectations.items():
        if name not in graph.order:
            continue
        sources = [one for source in graph.topics_behind(name) for one in matching(source, there)]
        partitions = max((there[one] for one in sources), default=NEW_PARTITIONS)
        for rule in rules:
            if rule.otherwise is not Otherwise.QUARANTINE:
                continue
            wanted = (
                [rule.topic] if rule.topic else [dlq_of(one) for one in sources if not is_dlq(one)]
            )
            new += [
                NewTopic(
                    name=one,
                    partitions=there.get(one.removesuffix(".dlq"), partitions),
                    settings={"retention_ms": DLQ_RETENTION_MS} if is_dlq(one) else {},
                )
                for one in wanted
                if one not in there
            ]
    return new


def topics_on(client: "goqueue.Client") -> dict[str, int]:
    """Return the topics of a broker with their partitions."""
    return {topic.name: topic.partitions for topic in client.list_topics()}


def make_topics(client: "goqueue.Client", topics: list[NewTopic]) -> None:
    """Make what is missing."""
    for one in topics:
        client.create_topic(one.name, partitions=one.partitions, **one.settings)


def needs_broker(graph: Graph) -> bool:
    """Return True if a pipeline reads or writes topics."""
    is_read = any(isinstance(graph.part(name), TopicSource) for name in graph.order)
    is_written = any(isinstance(sink, TopicSink) for sink in graph.pipeline.sinks.values())
    rules = [rule for one in graph.pipeline.expectations.values() for rule in one]
    return is_read or is_written or any(rule.otherwise is Otherwise.QUARANTINE for rule in rules)
