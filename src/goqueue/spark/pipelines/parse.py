"""From the content of a pipeline file to a pipeline, with every problem found at once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from goqueue.base.limits import PIPELINE_NAME_CHARACTERS_MAX, PIPELINE_PARTS_MAX
from goqueue.spark.pipelines.fields import Fields, check_identifier, kind_of
from goqueue.spark.pipelines.graph import survey
from goqueue.spark.pipelines.parse_rules import parse_expectations
from goqueue.spark.pipelines.parse_sinks import parse_sink
from goqueue.spark.pipelines.parse_sources import parse_source
from goqueue.spark.pipelines.parse_steps import parse_step
from goqueue.spark.pipelines.problems import Problems
from goqueue.spark.pipelines.spec import Mode, Pipeline, Sink, Source, Step

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
SECTIONS: Final = ("sources", "transforms", "expectations", "sinks")
HEAD: Final = ("name", "description", "servers", "trigger", "conf")

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A pipeline as far as it could be read, and what is wrong with it so far."""

    pipeline: Pipeline
    unreadable: frozenset[str]
    """Sources and transforms that are there, but not in the pipeline."""
    problems: Problems


def parse(raw: object, *, default_name: str, folder: str = ".") -> Pipeline:
    """Return the pipeline, or raise PipelineError with all that is wrong with it."""
    parsed = read(raw, default_name=default_name, folder=folder)
    check(parsed)
    return parsed.pipeline


def check(parsed: Parsed) -> None:
    """Raise what is wrong with a pipeline, with what does not fit together in it."""
    if parsed.problems.found:
        survey(parsed.pipeline, Mode.BATCH, parsed.problems, unreadable=parsed.unreadable)
    parsed.problems.check(name=f"pipeline {parsed.pipeline.name}")


def read(raw: object, *, default_name: str, folder: str = ".") -> Parsed:
    """Return what can be read of a pipeline; only what is none at all raises PipelineError."""
    problems = Problems()
    fields = Fields(raw, "", problems)
    if not fields.is_usable:
        problems.found[-1:] = []
        problems.add("", f"a pipeline is a mapping with sources and sinks, not {kind_of(raw)}")
        problems.check(name=default_name)
    fields.take_for(*SECTIONS, *HEAD)
    name = _name(fields, default_name)
    pipeline = _parts(fields, name, folder)
    fields.finish()
    there = {*_names(fields, "sources"), *_names(fields, "transforms")}
    readable = {*pipeline.sources, *pipeline.steps}
    return Parsed(pipeline=pipeline, unreadable=frozenset(there - readable), problems=problems)


def _names(fields: Fields, section: str) -> list[str]:
    raw = fields.raw(section)
    return [str(name) for name in raw] if isinstance(raw, Mapping) else []


def _name(fields: Fields, default: str) -> str:
    name = fields.text("name") or default
    if _NAME.fullmatch(name) is None or len(name) > PIPELINE_NAME_CHARACTERS_MAX:
        fields.problems.add(
            "name",
            f"{name[:40]!a} must be 1 to {PIPELINE_NAME_CHARACTERS_MAX} letters, digits, - or _",
            "it is the name of a folder",
        )
        return "unnamed"
    return name


def _parts(fields: Fields, name: str, folder: str) -> Pipeline:
    problems = fields.problems
    sources: dict[str, Source] = _section(fields, "sources", parse_source)
    known = {*_names(fields, "sources"), *_names(fields, "transforms")}
    steps: dict[str, Step] = _section(
        fields, "transforms", lambda at, one: parse_step(at, one, known)
    )
    sinks: dict[str, Sink] = _section(fields, "sinks", parse_sink)
    if not sources and not fields.has("sources"):
        problems.add("sources", "is required")
    if not sinks and not fields.has("sinks"):
        problems.add("sinks", "is required")
    _check_together(problems, sources, steps, sinks)
    return Pipeline(
        name=name,
        description=fields.text("description"),
        servers=fields.text("servers"),
        trigger=fields.interval("trigger", default="1 second"),
        folder=folder,
        conf=fields.mapping("conf"),
        sources=sources,
        steps=steps,
        expectations=parse_expectations(fields),
        sinks=sinks,
    )


def _section(
    fields: Fields, section: str, parse_one: Callable[[Fields, str], Part | None]
) -> dict[str, Part]:
    raw = fields.raw(section)
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        fields.problems.add(section, f"must be a mapping of names, not {kind_of(raw)}")
        return {}
    if len(raw) > PIPELINE_PARTS_MAX:
        fields.problems.add(section, f"has {len(raw)} entries; the limit is {PIPELINE_PARTS_MAX}")
        return {}
    found: dict[str, Part] = {}
    for name, one in raw.items():
        path = f"{section}.{str(name)[:80]}"
        if not check_identifier(name, path, fields.problems):
            continue
        part_fields = Fields(one, path, fields.problems)
        part = parse_one(part_fields, name) if part_fields.is_usable else None
        if part is not None:
            found[name] = part
    return found


def _check_together(problems: Problems, *sections: Mapping[str, object]) -> None:
    """Note names that differ in capitals only, which SQL does not tell, and too many parts."""
    sources, steps, sinks = sections
    seen: dict[str, str] = {}
    for path, name in [
        *(("sources", name) for name in sources),
        *(("transforms", name) for name in steps),
    ]:
        other = seen.setdefault(name.lower(), f"{path}.{name}")
        if other != f"{path}.{name}":
            problems.add(f"{path}.{name}", f"has the name of {other}", "capitals do not count")
    count = len(sources) + len(steps) + len(sinks)
    if count > PIPELINE_PARTS_MAX:
        problems.add("", f"{count} parts; the limit is {PIPELINE_PARTS_MAX}")
