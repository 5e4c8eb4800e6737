"""Changes people make to JSON schemas, and what BACKWARD says of each."""

import json
from typing import Any

import pytest

from goqueue.core.schemas.json_definition import JsonDefinition
from goqueue.core.schemas.schema import read_schema

NEW_DRAFT = "https://json-schema.org/draft/2020-12/schema"
A = {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind"]}
B = {"properties": {"kind": {"const": "b"}, "y": {"type": "string"}}, "required": ["kind"]}
C = {"properties": {"kind": {"const": "c"}}, "required": ["kind"]}
OBJECT = {"type": "object"}
MENTIONED = {"type": "object", "anyOf": [A, {"properties": {"x": {"type": "string"}}}]}


def breaks(old: Any, new: Any) -> list[str]:
    writer, reader = (
        JsonDefinition(read_schema(json.dumps(one), "JSON"), ()) for one in (old, new)
    )
    return [str(one) for one in reader.breaks_reading(writer)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"enum": ["a", 1]}, {"type": ["string", "integer"]}),
        ({"type": "string"}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"type": ["string", "null"]}, {"oneOf": [{"type": "null"}, {"type": "string"}]}),
        ({"oneOf": [A, B], **OBJECT}, {"oneOf": [A, B, C], **OBJECT}),
        ({"minimum": 3, "type": "integer"}, {"exclusiveMinimum": 2, "type": "integer"}),
        ({"multipleOf": 4, "type": "integer"}, {"multipleOf": 2, "type": "integer"}),
        (OBJECT, {**OBJECT, "properties": {"new": {"type": "string"}}}),
        (
            {**OBJECT, "additionalProperties": False},
            {**OBJECT, "properties": {"n": {"minimum": 1}}},
        ),
        ({**OBJECT, "properties": {"a": {"type": "string"}}}, OBJECT),
        (
            {"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}, "type": "array"},
            {"items": {"type": "number"}, "type": "array"},
        ),
        (
            {"$schema": NEW_DRAFT, "type": "array", "prefixItems": [{"const": 1}], "items": False},
            {"$schema": NEW_DRAFT, "type": "array", "items": {"type": "integer"}, "maxItems": 1},
        ),
        (
            {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}], **OBJECT},
            {"properties": {"a": {"type": "number"}}, "required": ["a"]},
        ),
        # Everything and nothing, in each of their spellings.
        ({"not": True}, {"not": {}}),
        ({"not": {}}, {"not": True}),
        ({"not": {"title": "any"}}, False),
        ({"not": {}}, {"type": "string"}),
        ({"type": "string"}, {"not": {"not": {}}}),
        ({"items": {"not": True}}, {"items": False}),
        ({"items": {"not": True}, "type": "array"}, {"maxItems": 0}),
        (OBJECT, {**OBJECT, "additionalProperties": {"description": "any"}}),
        (
            {**OBJECT, "additionalProperties": {"not": {}}},
            {**OBJECT, "additionalProperties": False},
        ),
        ({"const": 1}, {"const": 1.0}),
    ],
)
def test_loosened(old: Any, new: Any) -> None:
    """Whatever fitted before fits now."""
    assert breaks(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"type": "number"}, {"type": "integer"}, "/: the type was number with a fraction"),
        ({"type": "string"}, {"type": "string", "pattern": "^a"}, "/: pattern '^a' was not"),
        ({"type": "string"}, {"type": "string", "format": "date"}, "/: format 'date' was not"),
        ({"type": "integer"}, {"enum": [1, 2]}, "/: only some values are allowed"),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, "/: uniqueItems was not"),
        ({"type": "array"}, {"type": "array", "items": {"type": "null"}}, "/*: the type was"),
        (OBJECT, {**OBJECT, "additionalProperties": False}, "/*: additionalProperties"),
        (OBJECT, {**OBJECT, "minProperties": 1}, "/: minProperties was 0 and is 1"),
        (OBJECT, {**OBJECT, "not": {"required": ["a"]}}, "/: not: it may refuse"),
        (OBJECT, {**OBJECT, "dependentRequired": {"a": ["b"]}, "$schema": NEW_DRAFT}, "/a: depend"),
        ({"oneOf": [A, B], **OBJECT}, {"oneOf": [A, C], **OBJECT}, "/: oneOf: no branch takes it"),
        ({"type": "integer"}, {"oneOf": [{"type": "integer"}, {"minimum": 3}]}, "/: oneOf: more"),
        (
            {**OBJECT, "required": ["a"]},
            {**OBJECT, "properties": {"a": {"type": "string"}}},
            "/a: the type was",
        ),
        # What only some branches of a choice name counts, too.
        (
            MENTIONED,
            {**OBJECT, "properties": {"x": {"type": "integer"}}},
            "/x: the type was string",
        ),
        (
            {**OBJECT, "if": {"required": ["b"]}, "then": {"properties": {"a": {"type": "null"}}}},
            {**OBJECT, "properties": {"a": {"type": "integer"}}},
            "/a: the type was",
        ),
        (
            {**OBJECT, "anyOf": [{"patternProperties": {"^z": {"type": "null"}}}, {}]},
            {**OBJECT, "patternProperties": {"^zz": {"type": "string"}}},
            "/",
        ),
        (OBJECT, {"not": {}}, "/: nothing is allowed here any more"),
        ({"type": "array"}, {"items": {"not": True}}, "/*: nothing is allowed here any more"),
        # In JSON true is not 1, though Python says it is.
        ({"const": True}, {"const": 1}, "/: the value true is not allowed"),
        ({"enum": [0, "a"]}, {"enum": [False, "a"]}, "/: the value 0 is not allowed"),
        ({"not": {"const": 1}}, {"not": {"const": True}}, "/: not: it may refuse"),
        ({"type": "array", "contains": {"const": 1}}, {"contains": {"const": True}}, "/: contains"),
        (
            {**OBJECT, "dependentSchemas": {"a": {"const": 1}}, "$schema": NEW_DRAFT},
            {**OBJECT, "dependentSchemas": {"a": {"const": True}}, "$schema": NEW_DRAFT},
            "/",
        ),
        # Equal words with references to definitions that differ.
        (
            {"$defs": {"n": {"const": 1}}, "type": "array", "contains": {"$ref": "#/$defs/n"}},
            {"$defs": {"n": {"const": 2}}, "type": "array", "contains": {"$ref": "#/$defs/n"}},
            "/: contains was not asked for in this way",
        ),
        (
            {"$defs": {"n": True}, "if": {"$ref": "#/$defs/n"}, "else": {"type": "null"}},
            {"$defs": {"n": False}, "if": {"$ref": "#/$defs/n"}, "else": {"type": "null"}},
            "/: the type was",
        ),
        (
            {"$defs": {"n": True}, **OBJECT, "propertyNames": {"$ref": "#/$defs/n"}},
            {"$defs": {"n": {"maxLength": 1}}, **OBJECT, "propertyNames": {"$ref": "#/$defs/n"}},
            "/(names): maxLength",
        ),
    ],
)
def test_tightened(old: Any, new: Any, told: str) -> None:
    """The break is found, and its path and reason are told."""
    found = breaks(old, new)

    assert found
    assert found[0].startswith(told)
