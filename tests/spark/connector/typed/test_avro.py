"""Avro by its schema: which columns there are, and what becomes of values good and bad."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from goqueue.core.schemas.schema import Schema, SchemaType
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.typed.avro_decoder import AvroDecoder, AvroReading
from goqueue.spark.connector.typed.decoded import UnreadableError
from goqueue.spark.connector.typed.fields import list_of, name_columns
from tests.spark.connector.typed.decoding import decode, rows

Node = Any
LATEST = 9


def record(*fields: tuple[str, Node]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def reading(root: Node) -> AvroReading:
    schema = Schema(type=SchemaType.AVRO, text=json.dumps(root))
    return AvroReading(schema, (), label="subject s version 1")


def encode(root: Node, value: dict[str, Any], schema_id: int | None = None) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(root), value)
    framed = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return framed + stream.getvalue()


def decoder(root: Node, **others: Node) -> AvroDecoder:
    """A decoder by the latest schema that knows others by their ids."""
    latest = reading(root)

    def find(schema_id: int) -> AvroReading:
        if f"v{schema_id}" not in others:
            raise UnreadableError(f"there is no schema {schema_id}")
        return reading(others[f"v{schema_id}"])

    fields = name_columns({name: kind.type for name, kind in latest.kinds.items()})
    return AvroDecoder(fields, latest, latest_id=LATEST, find=find)


def logical(base: str, name: str, **more: int) -> Node:
    return {"type": base, "logicalType": name, **more}


EPOCH_AND_1_US = datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("node", "expected", "value", "read"),
    [
        ("boolean", "bool", True, True),
        ("int", "int32", 5, 5),
        ("long", "int64", 2**40, 2**40),
        ("float", "float", 0.5, 0.5),
        ("double", "double", 0.1, 0.1),
        ("bytes", "binary", b"\0\xff", b"\0\xff"),
        ("string", "string", "ä", "ä"),
        ("null", "string", None, None),
        (["null", "string"], "string", None, None),
        (["int", "long", "null"], "int64", 3, 3),
        (["float", "double"], "double", 0.5, 0.5),
        (["string", "int"], "string", 7, "7"),
        (["string", "int"], "string", "s", '"s"'),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab", b"ab"),
        ({"type": "array", "items": "int"}, str(list_of(pa.int32())), [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, "map<string, int32>", {"a": 1}, [("a", 1)]),
        (
            {"type": "array", "items": ["string", "int"]},
            str(list_of(pa.string())),
            ["a", 1],
            ['"a"', "1"],
        ),
        (
            {"type": "map", "values": logical("long", "timestamp-millis")},
            "map<string, timestamp[us, tz=UTC]>",
            {"a": MOMENT},
            [("a", MOMENT)],
        ),
        (logical("int", "date"), "date32[day]", date(2026, 1, 2), date(2026, 1, 2)),
        (logical("int", "time-millis"), "int32", 5, 5),
        (logical("long", "timestamp-millis"), "timestamp[us, tz=UTC]", MOMENT, MOMENT),
        (logical("long", "timestamp-micros"), "timestamp[us, tz=UTC]", MOMENT, MOMENT),
        (logical("long", "timestamp-nanos"), "timestamp[us, tz=UTC]", 1_999, EPOCH_AND_1_US),
        (
            logical("long", "local-timestamp-micros"),
            "timestamp[us]",
            MOMENT.replace(tzinfo=None),
            MOMENT.replace(tzinfo=None),
        ),
        (
            logical("bytes", "decimal", precision=10, scale=2),
            "decimal128(10, 2)",
            Decimal("12.50"),
            Decimal("12.50"),
        ),
        (logical("string", "uuid"), "string", "a-b", "a-b"),
    ],
)
def test_a_type_becomes_a_column(node: Node, expected: str, value: Any, read: Any) -> None:
    root = record(("field", node))
    one = reading(root)
    raw = fastavro.parse_schema(root)
    stream = io.BytesIO()
    if isinstance(value, int | str) and isinstance(node, dict) and "logicalType" in node:
        raw = fastavro.parse_schema(record(("field", node["type"])))
    fastavro.schemaless_writer(stream, raw, {"field": value})

    decoded = decode(decoder(root), stream.getvalue())

    assert str(one.kinds["field"].type) == expected
    assert (decoded.reasons, rows(decoded)) == ({}, [(read,)])


def test_a_record_in_itself_is_text() -> None:
    root = record(("name", "string"), ("inside", ["null", "Order"]))
    value = {"name": "a", "inside": {"name": "b", "inside": {"name": "c", "inside": None}}}

    decoded = decode(decoder(root), encode(root, value))

    assert rows(decoded) == [("a", '{"name":"b","inside":{"name":"c","inside":null}}')]


def test_a_value_nested_without_end_is_only_corrupt() -> None:
    """The library that reads records would end the process."""
    root = record(("inside", ["null", "Order"]))

    decoded = decode(decoder(root), b"\x02" * 3_000_000 + b"\0", encode(root, {"inside": None}))

    assert decoded.reasons == {0: "/: nested too deeply"}
    assert rows(decoded) == [(None,), (None,)]


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "F", "size": 0}, {**record(), "name": "E"}]
)
def test_values_that_take_no_bytes_have_no_number(items: Node) -> None:
    """A few bytes could claim any number of them."""
    with pytest.raises(OptionsError, match="an array of values that take no bytes"):
        reading(record(("field", {"type": "map", "values": {"type": "array", "items": items}})))


def test_what_is_no_record_has_no_columns() -> None:
    for root in ("string", record(), {"type": "array", "items": "int"}):
        with pytest.raises(OptionsError, match="subject s version 1 is no record with fields"):
            reading(root)


V1 = record(("id", "int"), ("gone", "string"), ("at", logical("long", "timestamp-millis")))
V2 = record(
    ("id", "long"),
    ("at", logical("long", "timestamp-micros")),
    ("note", ["null", "string"]),
)


def test_old_versions_are_read_with_the_latest_columns() -> None:
    """By the schema a value names; what it does not have is null, what is gone is left out."""
    old = encode(V1, {"id": 1, "gone": "x", "at": MOMENT}, 4)
    new = encode(V2, {"id": 2**40, "at": MOMENT, "note": "n"}, LATEST)
    plain = encode(V2, {"id": 3, "at": MOMENT, "note": None})

    decoded = decode(decoder(V2, v4=V1), old, new, None, plain, old)

    assert decoded.reasons == {}
    assert rows(decoded) == [
        (1, MOMENT, None),
        (2**40, MOMENT, "n"),
        (None, None, None),
        (3, MOMENT, None),
        (1, MOMENT, None),
    ]


def test_records_inside_evolve_too() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "a", "type": "int"}]}
    more = {**inner, "fields": [{"name": "b", "type": ["null", "string"]}, *inner["fields"]]}
    old = encode(record(("in", inner)), {"in": {"a": 1}}, 4)
    new = encode(record(("in", more)), {"in": {"a": 2, "b": "x"}}, LATEST)

    decoded = decode(decoder(record(("in", more)), v4=record(("in", inner))), old, new)

    assert decoded.reasons == {}
    assert rows(decoded) == [({"b": None, "a": 1},), ({"b": "x", "a": 2},)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "/id: the message ends too early"),
        (b"\x02", "/at: the message ends too early"),
        (b"\x02\x02\x00\x00", "1 bytes are left over"),
        (b"\x02\x02\x08", "/note: the union has no branch 4"),
        (b"\x02\x02\x02\x04\xff\xff", "/note: a string is not UTF-8: invalid start byte"),
        (b"\x02\x02\x02\x01", "/note: a size cannot be -1"),
        (b"\x02" + b"\xff" * 12, "/at: a number is too long"),
        (b"\0\0\0\0\x05\x02\x02\x00", "there is no schema 5"),
        (encode(V2, {"id": 3, "at": 2**62, "note": None}, 4), "out of bounds"),
    ],
)
def test_a_bad_value_spoils_no_other(bad: bytes, reason: str) -> None:
    good = encode(V2, {"id": 7, "at": MOMENT, "note": "n"})
    millis = record(
        ("id", "long"), ("at", logical("long", "timestamp-millis")), ("note", ["null", "string"])
    )

    decoded = decode(decoder(V2, v4=millis), good, bad, None, good)

    assert list(decoded.reasons) == [1]
    assert reason in decoded.reasons[1]
    assert rows(decoded) == [(7, MOMENT, "n"), (None,) * 3, (None,) * 3, (7, MOMENT, "n")]
