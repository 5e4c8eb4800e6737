"""JSON by its schema: which columns there are, and what becomes of values good and bad."""

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.schemas.schema import Schema, SchemaType
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.typed.decoded import UnreadableError
from goqueue.spark.connector.typed.fields import list_of, name_columns
from goqueue.spark.connector.typed.json_decoder import JsonDecoder
from goqueue.spark.connector.typed.readings import JsonReading
from tests.spark.connector.typed.decoding import decode, rows

Node = dict[str, Any]


def reading(root: Node) -> JsonReading:
    schema = Schema(type=SchemaType.JSON, text=json.dumps(root))
    return JsonReading(schema, (), label="subject s version 1")


def types(**properties: Node) -> dict[str, str]:
    kinds = reading({"type": "object", "properties": properties}).kinds
    return {name: str(kind.type) for name, kind in kinds.items()}


def decoder(**properties: Node) -> JsonDecoder:
    kinds = reading({"type": "object", "properties": properties}).kinds
    fields = name_columns({name: kind.type for name, kind in kinds.items()})
    return JsonDecoder(fields, kinds, latest_id=7, check_id=check_id)


def check_id(schema_id: int) -> None:
    if schema_id != 5:
        raise UnreadableError(f"there is no schema {schema_id}")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"], "format": "date-time"}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"type": "integer"}, "int64"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "bool"),
        ({"type": "array", "items": {"type": "integer"}}, str(list_of(pa.int64()))),
        ({"type": "array"}, str(list_of(pa.string()))),
        ({"type": "array", "items": [{"type": "integer"}]}, str(list_of(pa.string()))),
        (
            {"type": "object", "properties": {"x": {"type": "number"}}},
            "struct<x: double>",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "map<string, int64>",
        ),
        ({"type": "object"}, "string"),
        ({"type": ["string", "integer"]}, "string"),
        ({"type": "null"}, "string"),
        ({}, "string"),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": ["integer", "null"]}]}, "int64"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int64"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
    ],
)
def test_a_place_of_a_schema_has_a_type(node: Node, expected: str) -> None:
    assert types(field=node) == {"field": expected}


def test_references_choices_and_recursion() -> None:
    root = {
        "definitions": {
            "person": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "boss": {"$ref": "#/definitions/person"},
                },
            }
        },
        "type": "object",
        "properties": {"owner": {"$ref": "#/definitions/person"}},
        "oneOf": [
            {"properties": {"card": {"type": "string"}, "sum": {"type": "integer"}}},
            {"properties": {"iban": {"type": "string"}, "sum": {"type": "string"}}},
        ],
    }

    kinds = {name: str(kind.type) for name, kind in reading(root).kinds.items()}

    assert kinds == {
        "owner": "struct<name: string, boss: string>",
        "card": "string",
        "sum": "string",
        "iban": "string",
    }


@pytest.mark.parametrize("root", [{"type": "string"}, {"type": "object"}, {}])
def test_a_schema_without_properties_has_no_columns(root: Node) -> None:
    with pytest.raises(OptionsError, match="subject s version 1 names no properties"):
        reading(root)


ORDER: dict[str, Node] = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "price": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "at": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
FREE: dict[str, Node] = {
    **ORDER,
    "free": {},
    "counts": {"additionalProperties": {"type": "integer"}, "type": "object"},
}
GOOD = b'{"id": 1, "name": "a", "price": 2, "tags": ["x", null], "at": {"x": 5}, "more": [1]}'


def test_values_become_columns() -> None:
    """Tombstones are null, unknown fields are left out, missing ones are null."""
    decoded = decode(
        decoder(**ORDER), GOOD, None, b"{}", b'\0\0\0\0\x07{"id": 2}', b'{\n "id":\r\n 3\n}\n'
    )

    assert decoded.reasons == {}
    assert rows(decoded) == [
        (1, "a", 2.0, ["x", None], {"x": 5}),
        (None,) * 5,
        (None,) * 5,
        (2, None, None, None, None),
        (3, None, None, None, None),
    ]


@pytest.mark.parametrize("properties", [ORDER, FREE], ids=["columnar", "one by one"])
def test_a_value_of_an_unknown_schema_is_corrupt(properties: dict[str, Node]) -> None:
    """Ids are checked though JSON could be read without; the rows beside it are read."""
    decoded = decode(
        decoder(**properties), GOOD, b'\0\0\0\0\x63{"id": 2}', b'\0\0\0\0\x05{"id": 3}', b"", None
    )

    assert decoded.reasons[1] == "there is no schema 99"
    assert decoded.reasons.keys() == {1, 3}
    assert [row[0] for row in rows(decoded)] == [1, None, 3, None, None]


@pytest.mark.parametrize("properties", [ORDER, FREE], ids=["columnar", "one by one"])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "truncated"),
        (b" \n ", "truncated"),
        (b"not json", "malformed"),
        (b"5", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b'[{"id": 1}]', "Expected `object`"),
        (b'{"id": 1}{"id": 2}', "trailing"),
        (b'{"id": 1}} {"v":{"id": 2}', "trailing"),
        (b'{"id": 1},"v":{"id": 2}', "trailing"),
        (b'{"id": "1"}', r"got `str` - at `\$.id`"),
        (b'{"id": 1.5}', r"at `\$.id`"),
        (b'{"id": 9223372036854775808}', r"at `\$.id`"),
        (b'{"id": true}', r"at `\$.id`"),
        (b'{"name": 5}', r"at `\$.name`"),
        (b'{"name": "\xff"}', "utf-8"),
        (b'{"name": "a\nb"}', "invalid"),
        (b'{"price": NaN}', "malformed"),
        (b'{"price": Infinity}', "malformed"),
        (b'{"price": 1e999}', "out of range"),
        (b'{"tags": {}}', r"at `\$.tags`"),
        (b'{"at": {"x": "y"}}', r"at `\$.at.x`"),
        (b'{"deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
        (b'\0\0\0\0\x07{"id": "1"}', r"at `\$.id`"),
        (b"\0\0", "malformed"),
    ],
)
def test_a_bad_value_spoils_no_other(properties: dict[str, Node], bad: bytes, reason: str) -> None:
    one = decoder(**properties)

    decoded = decode(one, GOOD, bad, None, GOOD)

    found = rows(decoded)
    assert list(decoded.reasons) == [1]
    assert re.search(reason, decoded.reasons[1])
    assert found[1] == found[2] == (None,) * len(properties)
    assert found[0] == found[3] == rows(decode(one, GOOD))[0]


def test_whole_numbers_are_written_in_many_ways() -> None:
    decoded = decode(decoder(**ORDER), b'{"id": 1.0}', b'{"id": 1e2}', b'{"id": 1, "id": 2}')

    assert decoded.reasons == {}
    assert decoded.columns[0].to_pylist() == [1, 100, 2]


def test_what_has_no_type_is_text() -> None:
    decoded = decode(
        decoder(**FREE),
        b'{"free": {"a": [1, 2.5]}, "counts": {"a": 1}}',
        b'{"free": "s"}',
        b'{"free": null}',
    )

    assert decoded.columns[5].to_pylist() == ['{"a":[1,2.5]}', '"s"', None]
    assert decoded.columns[6].to_pylist() == [[("a", 1)], None, None]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "name", "tags", "at", "x", "v"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
TEXTS = (
    st.none()
    | st.binary(max_size=20)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.sampled_from([GOOD, b"{}", b'{"id": 1}', b"}", b'{"id"', b'"', b'{"id": 1}\n{"v":{}}'])
)


@given(st.lists(TEXTS, max_size=6))
def test_together_or_alone_values_are_read_alike(values: list[bytes | None]) -> None:
    """Whatever stands beside a value, and whichever way is taken, it is read the same."""
    one = decoder(**ORDER)
    together = decode(one, *values)

    alone = [decode(one, value) for value in values]
    slow = decode(decoder(**FREE), *values)

    assert repr(rows(together)) == repr([rows(single)[0] for single in alone])
    assert repr([row[:5] for row in rows(slow)]) == repr(rows(together))
    assert set(together.reasons) == {row for row, single in enumerate(alone) if single.reasons}
