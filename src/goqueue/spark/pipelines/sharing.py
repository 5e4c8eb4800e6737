"""Which outputs of a pipeline share one reading of their stream.

Shape: calculator. Outputs that descend from one part by nothing but steps without memory share it:
the part is a stream, and what follows is worked out for each of its batches (ADR 0034). Those that
began together stay together; one that comes later has the past to read, and does so by itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from goqueue.spark.pipelines.graph import Graph
from goqueue.spark.pipelines.spec import (
    ConsoleSink,
    LakeSink,
    OutputMode,
    Sink,
    SqlStep,
    TableSink,
    TopicSink,
)

SHARED_MIN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One query: the stream it reads, and what it writes."""

    name: str
    part: str
    outputs: tuple[str, ...]
    is_shared: bool


def cut_of(graph: Graph, part: str, plain: Collection[str]) -> str:
    """Return the part to read as a stream: the last one behind which no step has a memory."""
    while True:
        streams = [one for one in graph.inputs[part] if one in graph.streams]
        is_plain = part in plain and isinstance(graph.part(part), SqlStep)
        if not is_plain or len(streams) != 1:
            return part
        part = streams[0]


def can_share(sink: Sink) -> bool:
    """Return True if a sink takes batches of a stream that others take, too, each exactly once."""
    match sink:
        case TopicSink() | ConsoleSink() | TableSink():
            return sink.output_mode is OutputMode.APPEND
        case LakeSink():
            return "://" not in sink.path and sink.output_mode is OutputMode.APPEND
        case _:
            return False


def readings(
    graph: Graph,
    sinks: Mapping[str, Sink],
    plain: Collection[str],
    *,
    alone: Collection[str],
    together: Mapping[str, Collection[str]],
) -> list[Reading]:
    """Return the queries of a pipeline.

    ``alone`` have a checkpoint of their own, ``together`` are the shared readings there have been,
    with what they write. Nobody changes from one to the other.
    """
    found: list[Reading] = []
    taken: set[str] = set()
    cuts = cuts_of(graph, sinks, plain)
    for name, members in together.items():
        outputs = tuple(one for one in sinks if one in members and one not in taken)
        if outputs:
            part = part_of(name)
            found.append(Reading(name=name, part=part, outputs=outputs, is_shared=True))
            taken |= {*outputs}
    fresh: dict[str, list[str]] = {}
    for name, sink in sinks.items():
        if name in taken:
            continue
        if name in alone or not can_share(sink):
            found.append(_single(name, sink))
        else:
            fresh.setdefault(cuts[name], []).append(name)
    for cut, names in fresh.items():
        if len(names) < SHARED_MIN:
            found += [_single(name, sinks[name]) for name in names]
            continue
        name = free_name(cut, {*together, *(one.name for one in found)})
        found.append(Reading(name=name, part=cut, outputs=tuple(names), is_shared=True))
    return found


def _single(name: str, sink: Sink) -> Reading:
    return Reading(name=name, part=sink.input, outputs=(name,), is_shared=False)


def cuts_of(graph: Graph, sinks: Mapping[str, Sink], plain: Collection[str]) -> dict[str, str]:
    """Return for each output the part it is read from."""
    return {name: cut_of(graph, sink.input, plain) for name, sink in sinks.items()}


def leavers(
    cuts: Mapping[str, str], together: Mapping[str, Collection[str]]
) -> list[tuple[str, str, str]]:
    """Return who cannot go on in a shared reading: its name, the output, and what that reads now.

    The steps of an output may have changed, and one that is not there any more must not be taken
    along by those that are: put back, it goes on where it was.
    """
    found: list[tuple[str, str, str]] = []
    for name, members in together.items():
        here = part_of(name)
        is_used = any(cuts.get(one) == here for one in members)
        found += [
            (name, one, cuts.get(one, here))
            for one in members
            if cuts.get(one, here) != here or (one not in cuts and is_used)
        ]
    return found


def free_name(part: str, taken: Collection[str]) -> str:
    """Return a name for a reading of a part that no other one has."""
    number = 1
    while f"{part}-{number}" in taken:
        number += 1
    return f"{part}-{number}"


def part_of(name: str) -> str:
    """Return which part a shared reading reads; names of parts have no dashes."""
    return name.rpartition("-")[0]


def parts_between(graph: Graph, start: str, parts: Collection[str]) -> set[str]:
    """Return what must be worked out anew from a part to have others: all on the way to them."""
    found: set[str] = set()
    todo = list(parts)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += graph.inputs[name] if name != start else ()
    return found
