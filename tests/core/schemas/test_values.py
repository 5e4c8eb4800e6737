"""Messages tried on schemas: what fits, what does not, and bytes nobody should believe."""

import io
import json
from random import Random
from typing import Any

import fastavro
import pytest

from goqueue.core.schemas.avro_definition import AvroDefinition
from goqueue.core.schemas.definition import Definition
from goqueue.core.schemas.definitions import define
from goqueue.core.schemas.proto_definition import ProtoDefinition
from goqueue.core.schemas.schema import read_schema

RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": "double"},
        {"name": "is_paid", "type": "boolean"},
        {"name": "next", "type": ["null", "Order"]},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
    ],
}

PROTO = """
syntax = "proto2"; // a comment
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/any.proto";
option java_package = "com.shop";
option (custom).thing = { nested: [1, 2] text: "}" };
/* more
   comment */
enum Kind {
  option allow_alias = true;
  NONE = 0; ZERO = 0; MINUS = -1 [deprecated = true]; reserved 5 to 7;
}
message Order {
  option deprecated = false;
  required int64 id = 1;
  optional string note = 2 [default = "it's \\"quoted\\"", (custom) = true];
  repeated int32 counts = 3 [packed = true];
  map<string, .shop.v1.Order> others = 4;
  oneof choice { string text = 5; Inner inner = 6; }
  optional group Extra = 7 { optional fixed32 f = 1; }
  message Inner { optional Kind kind = 1; extensions 100 to max; }
  reserved 20, 30 to 40; reserved "old", "older";
  optional google.protobuf.Timestamp at = 8;
  optional int32 message = 9; optional int32 optional = 10; optional int32 reserved_ = 11;
}
extend Order.Inner { optional string more = 100; }
service Shop { rpc Buy (Order) returns (stream Order) { option level = NO_SIDE_EFFECTS; } }
"""


def avro(schema: Any) -> AvroDefinition:
    return AvroDefinition(read_schema(json.dumps(schema), "AVRO"), ())


def order(random: Random, depth: int = 3) -> dict[str, Any]:
    return {
        "id": random.randrange(-(2**62), 2**62),
        "note": random.choice([None, "", "text", "ü" * 40]),
        "kind": random.choice("AB"),
        "hash": random.randbytes(4),
        "tags": [random.choice(["x", "yy"]) for _ in range(random.randrange(4))],
        "counts": {str(n): random.randrange(-5, 300) for n in range(random.randrange(3))},
        "price": random.random(),
        "is_paid": random.random() < 0.5,
        "next": order(random, depth - 1) if depth and random.random() < 0.5 else None,
        "nothing": [None] * random.randrange(3),
    }


def encode(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def test_what_an_avro_library_writes_fits() -> None:
    """Any record fits; cut short or with a byte more it does not."""
    random, definition = Random(3), avro(RECORD)
    for _ in range(200):
        raw = encode(RECORD, order(random))

        assert definition.misfit(raw) is None
        assert definition.misfit(raw + b"\0") is not None
        assert definition.misfit(raw[: random.randrange(len(raw))]) is not None


def test_hostile_avro_is_refused_at_once() -> None:
    """Claims of any count, size or depth cost nothing: no crash, no memory, an answer."""
    random, definition = Random(4), avro(RECORD)
    raw = encode(RECORD, order(random))
    for _ in range(3_000):
        mutated = bytearray(raw)
        for _ in range(random.randint(1, 4)):
            mutated[random.randrange(len(mutated))] = random.randrange(256)
        definition.misfit(bytes(mutated))
    link = avro({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]})
    nulls = avro({"type": "array", "items": "null"})
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"

    assert str(link.misfit(b"\x02" * 100_000 + b"\0")) == "/: nested too deeply"
    assert nulls.misfit(many + b"\0") is None
    assert (
        str(avro({"type": "array", "items": "int"}).misfit(many))
        == "/0: the message ends too early"
    )
    assert "a size cannot be" in str(avro("bytes").misfit(b"\x01"))
    assert "a number is too long" in str(avro("long").misfit(b"\xff" * 20))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"\x02\x02\x02\xff", "/note: a string is not UTF-8"),
        (b"\x02\x04", "/note: the union has no branch 2"),
        (b"\x02\x00\x08", "/kind: the enum has no symbol 4"),
        (b"\x02\x00\x00ab", "/hash: the message ends too early"),
        (b"\x02\x00\x00abcd\x00\x00" + bytes(8) + b"\x07", "/is_paid: a boolean cannot be 7"),
        (b"\x02\x00\x00abcd\x02\x02x\x00\x02\x02k\xff\xff\xff\xff\x7f", "/counts/0: "),
    ],
)
def test_the_path_leads_to_what_is_wrong(raw: bytes, told: str) -> None:
    """Whoever wrote the message finds the field."""
    assert str(avro(RECORD).misfit(raw)).startswith(told)


def test_a_proto_file_is_understood() -> None:
    """Everything the language has is read; the messages are those the file describes."""
    definition = ProtoDefinition(read_schema(PROTO, "PROTOBUF"), ())
    again = ProtoDefinition(read_schema(PROTO.replace("// a comment", ""), "PROTOBUF"), ())
    order_type = definition.file.message_types_by_name["Order"]

    assert definition.record_name == "shop.v1.Order"
    assert definition.fingerprint == again.fingerprint
    assert definition.misfit(b"\x08\x05") is None
    assert str(definition.misfit(b"")) == "/id: a required field is missing"
    assert definition.misfit(b"\x08") is not None
    assert order_type.fields_by_name["note"].default_value == 'it\'s "quoted"'
    assert order_type.fields_by_name["others"].message_type.GetOptions().map_entry
    assert definition.breaks_reading(again) == []
    # A type by its place: the message inside the first one, then one that is not there.
    assert definition.framed_misfit(b"\x04\x00\x02\x08\x00") is None
    assert definition.framed_misfit(b"\x02\x08\x08\x00") is not None
    assert definition.framed_misfit(b"\xff" * 9) is not None


@pytest.mark.parametrize("kind", ["JSON", "AVRO", "PROTOBUF"])
def test_any_bytes_get_an_answer(kind: str) -> None:
    """No bytes, however odd, bring a validator down."""
    texts = {"JSON": '{"items": {"$ref": "#"}}', "AVRO": json.dumps(RECORD), "PROTOBUF": PROTO}
    definition: Definition = define(read_schema(texts[kind], kind), ())
    random = Random(5)
    odd = [
        b"",
        b"\0",
        b"[" * 100_000,
        b'"\\ud800"',
        b"\xff\xfe",
        b"1e999",
        b"nan",
        b'{"a":1,"a":2}',
    ]
    odd += [random.randbytes(random.randrange(60)) for _ in range(2_000)]

    found = definition.misfits(odd)
    assert set(found) <= set(range(len(odd)))
    assert all(definition.misfit(odd[row]) is not None for row in found)
