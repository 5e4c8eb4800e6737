"""Whoever is told that a JSON schema is compatible can rely on it."""

import json
import os
from random import Random
from typing import Any

from goqueue.base.errors import InvalidSchemaError
from goqueue.core.schemas.json_definition import JsonDefinition
from goqueue.core.schemas.schema import read_schema
from tests.core.schemas.evolutions import NAMES, SchemaMaker, ValueMaker

EVOLUTIONS = int(os.environ.get("GOQUEUE_EVOLUTIONS", "10000"))
VALUES = 12


def define(schema: Any) -> JsonDefinition | None:
    """Return a schema understood, or None where a change made nonsense of it."""
    try:
        return JsonDefinition(read_schema(json.dumps(schema), "JSON"), ())
    except InvalidSchemaError:
        return None


def is_undeclared(value: Any, schema: Any) -> bool:
    """Tell whether data holds a property its schema does not speak of; see ADR 0010."""
    if isinstance(value, list):
        return any(is_undeclared(one, schema) for one in value)
    if not isinstance(value, dict):
        return False
    named = set(_declared(schema))
    return any(name in NAMES and name not in named for name in value) or any(
        is_undeclared(one, schema) for one in value.values()
    )


def _declared(schema: Any) -> list[str]:
    """Return every name a schema declares anywhere: enough for data made from it."""
    if isinstance(schema, list):
        return [name for one in schema for name in _declared(one)]
    if not isinstance(schema, dict):
        return []
    return [*schema.get("properties", {})] + [
        name for part in schema.values() for name in _declared(part)
    ]


def test_a_verdict_holds_for_data() -> None:
    """Data of the old schema fits the new one whenever that is called BACKWARD compatible."""
    random = Random(20_26)
    schemas, values = SchemaMaker(random), ValueMaker(random)
    compatible = judged = 0
    for number in range(EVOLUTIONS):
        old = schemas.schema()
        new = schemas.change(old)
        writer, reader = define(old), define(new)
        if writer is None or reader is None:
            continue
        verdict = reader.breaks_reading(writer)
        if verdict:
            continue
        compatible += 1
        for _ in range(VALUES):
            value = values.value(old)
            raw = json.dumps(value).encode()
            if writer.misfit(raw) is not None or is_undeclared(value, old):
                continue
            judged += 1
            told = reader.misfit(raw)
            assert told is None, f"evolution {number}: {old} -> {new}: {value}: {told}"

    assert compatible > EVOLUTIONS // 10
    assert judged > EVOLUTIONS // 4


def test_what_says_the_same_is_compatible() -> None:
    """A schema is compatible with itself, whatever is in it."""
    random = Random(7)
    schemas = SchemaMaker(random)
    for _ in range(EVOLUTIONS // 20):
        one = define(schemas.schema())
        if one is not None:
            assert one.breaks_reading(one) == []
