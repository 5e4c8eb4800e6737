"""Whoever is told that a JSON schema is compatible can rely on it."""

import json
import os
from random import Random
from typing import Any

from goqueue.base.errors import InvalidSchemaError
from goqueue.core.schemas.json_definition import JsonDefinition
from goqueue.core.schemas.schema import read_schema
from tests.core.schemas.evolutions import SchemaMaker, ValueMaker, closed

EVOLUTIONS = int(os.environ.get("GOQUEUE_EVOLUTIONS", "10000"))
VALUES = 12


def define(schema: Any) -> JsonDefinition | None:
    """Return a schema understood, or None where a change made nonsense of it."""
    try:
        return JsonDefinition(read_schema(json.dumps(schema), "JSON"), ())
    except InvalidSchemaError:
        return None


def test_a_verdict_holds_for_data() -> None:
    """Data of the old schema fits the new one whenever that is called BACKWARD compatible.

    Data with properties the old schema does not name is left out: see ADR 0010.
    """
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
        strict = define(closed(old))
        assert strict is not None
        for _ in range(VALUES):
            value = values.value(old)
            raw = json.dumps(value).encode()
            if writer.misfit(raw) is not None or strict.misfit(raw) is not None:
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
