"""Pipeline files to start from, with blanks to be filled in."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from typing import Final

from goqueue.base.limits import PIPELINE_TEXT_CHARACTERS_MAX
from goqueue.spark.pipelines.problems import nearest

_BLANK: Final = re.compile(r"\$\{(\w+)\}")
DIGEST_CHARACTERS: Final = 8
_LISTS: Final = frozenset({"topics"})
_RAW: Final = frozenset({"where", "format", "rows_max"})
"""Blanks that are filled in as they are; all others become texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A file with blanks, each with what stands there if nothing is given; empty leaves it out."""

    name: str
    about: str
    blanks: Mapping[str, str]


TEMPLATES: Final[Mapping[str, Template]] = {
    one.name: one
    for one in (
        Template(
            name="orders",
            about="an example with everything: checks, SQL, windows, topic and lake",
            blanks={
                "name": "orders",
                "topic": "orders",
                "topic_out": "orders-enriched",
                "lake": "./lake",
            },
        ),
        Template(
            name="archive",
            about="topics to a Parquet lake, beyond their retention",
            blanks={"name": "archive", "topics": "orders", "lake": "./archive"},
        ),
        Template(
            name="replay",
            about="a lake to a topic, by time, key or any condition",
            blanks={
                "name": "replay",
                "lake": "./archive",
                "topic": "orders-replayed",
                "since": "",
                "until": "",
                "where": "true",
                "rows_max": "100000",
            },
        ),
        Template(
            name="materialize",
            about="the latest message of each key as a table",
            blanks={"name": "materialize", "topics": "orders", "table": "./table"},
        ),
        Template(
            name="backfill",
            about="files (json, csv, parquet, text) to a topic",
            blanks={
                "name": "backfill",
                "format": "json",
                "path": "./files",
                "topic": "orders",
                "key": "",
                "value": "",
            },
        ),
    )
}


def fill(kind: str, given: Mapping[str, str]) -> str:
    """Return a file with its blanks filled in, or raise ValueError saying what is wrong."""
    template = TEMPLATES.get(kind)
    if template is None:
        raise ValueError(f"there is no template {kind[:40]!a}; {nearest(kind, TEMPLATES)}")
    for name, value in given.items():
        if name not in template.blanks:
            raise ValueError(f"{kind} has no blank {name[:40]!a}; {nearest(name, template.blanks)}")
        if len(value) > PIPELINE_TEXT_CHARACTERS_MAX or "\n" in value:
            raise ValueError(f"{name}: must be one line of at most {PIPELINE_TEXT_CHARACTERS_MAX}")
    values = {**template.blanks, **given}
    text = files("goqueue.spark.pipelines").joinpath("starters", f"{kind}.yaml").read_text()
    kept = [line for line in text.splitlines(keepends=True) if _is_filled(line, values)]
    return _BLANK.sub(lambda match: _write(match[1], values[match[1]]), "".join(kept))


def _is_filled(line: str, values: Mapping[str, str]) -> bool:
    """Return True if a line stays: one whose blank is left empty does not."""
    return all(values[name] != "" for name in _BLANK.findall(line))


def _write(name: str, value: str) -> str:
    """Return a value as YAML; JSON is YAML, and quotes what must be."""
    if name in _RAW:
        return value
    if name in _LISTS:
        return json.dumps([one.strip() for one in value.split(",")])
    plain = re.fullmatch(r"[A-Za-z./][A-Za-z0-9_./-]*", value)
    return (
        value
        if plain and value not in {"true", "false", "null", "yes", "no"}
        else json.dumps(value)
    )


def replay_name(blanks: Mapping[str, str]) -> str:
    """Return a name for a replay that is the same for the same one only."""
    chosen = "\0".join(f"{name}={value}" for name, value in sorted(blanks.items()))
    digest = blake2b(chosen.encode(), digest_size=DIGEST_CHARACTERS // 2).hexdigest()
    return f"replay-{digest}"
