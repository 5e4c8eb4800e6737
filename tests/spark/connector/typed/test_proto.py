"""Protobuf by its schema: which columns there are, and what becomes of values good and bad."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from goqueue.core.schemas.proto_definition import ProtoDefinition
from goqueue.core.schemas.schema import Schema, SchemaType
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.typed.decoded import UnreadableError
from goqueue.spark.connector.typed.fields import list_of, name_columns
from goqueue.spark.connector.typed.proto_decoder import ProtoDecoder, ProtoReading
from tests.spark.connector.typed.decoding import decode, rows

LATEST = 9
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)

EVERYTHING = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message All {
  enum Color { RED = 0; BLUE = 1; }
  message Point { int32 x = 1; optional int32 y = 2; }
  int32 a = 1; uint32 b = 2; int64 c = 3; uint64 d = 4; float e = 5; double f = 6;
  bool g = 7; string h = 8; bytes i = 9; Color j = 10; Point k = 11;
  repeated Point l = 12; map<string, int64> m = 13; optional string n = 14;
  google.protobuf.Timestamp o = 15; google.protobuf.Duration p = 16;
  google.protobuf.Int32Value q = 17; google.protobuf.Struct r = 18; All s = 19;
  oneof choice { string t = 20; int32 u = 21; }
  repeated Color v = 22; map<int32, Point> w = 23;
}
"""


def schema(text: str) -> Schema:
    return Schema(type=SchemaType.PROTOBUF, text=text)


def reading(text: str) -> ProtoReading:
    return ProtoReading(schema(text), (), label="subject s version 1")


def message(text: str, **fields: Any) -> Any:
    kind = ProtoDefinition(schema(text), ()).message_class((0,))
    assert kind is not None
    return kind(**fields)


def decoder(text: str, **others: str) -> ProtoDecoder:
    latest = reading(text)

    def find(schema_id: int) -> ProtoReading:
        if f"v{schema_id}" not in others:
            raise UnreadableError(f"there is no schema {schema_id}")
        return reading(others[f"v{schema_id}"])

    fields = name_columns({name: kind.type for name, kind in latest.kinds.items()})
    return ProtoDecoder(fields, latest, latest_id=LATEST, find=find)


def test_every_type_becomes_a_column() -> None:
    one = reading(EVERYTHING)

    point = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    assert {name: kind.type for name, kind in one.kinds.items()} == {
        "a": pa.int32(),
        "b": pa.int64(),
        "c": pa.int64(),
        "d": pa.decimal128(20, 0),
        "e": pa.float32(),
        "f": pa.float64(),
        "g": pa.bool_(),
        "h": pa.string(),
        "i": pa.binary(),
        "j": pa.string(),
        "k": point,
        "l": list_of(point),
        "m": pa.map_(pa.string(), pa.int64()),
        "n": pa.string(),
        "o": pa.timestamp("us", "UTC"),
        "p": pa.duration("us"),
        "q": pa.int32(),
        "r": pa.string(),
        "s": pa.string(),
        "t": pa.string(),
        "u": pa.int32(),
        "v": list_of(pa.string()),
        "w": pa.map_(pa.int32(), point),
    }


def test_values_become_columns() -> None:
    """What knows whether it was set is null where it was not; the rest has its default."""
    full = message(
        EVERYTHING, a=-1, b=2**32 - 1, c=-(2**63), d=2**64 - 1, e=0.5, f=0.1, g=True, h="ä",
        i=b"\0", j=1, k={"x": 1}, l=[{"y": 2}, {}], m={"a": 5}, n="", q={"value": 0},
        s={"a": 7}, u=0, v=[0, 1, 9], w={3: {"x": 4}},
    )  # fmt: skip
    full.o.FromDatetime(MOMENT)
    full.p.FromTimedelta(timedelta(seconds=-1, microseconds=5))
    full.r.update({"k": [1, None]})
    empty = message(EVERYTHING)

    decoded = decode(decoder(EVERYTHING), full.SerializeToString(), empty.SerializeToString(), None)

    assert decoded.reasons == {}
    first, second, third = rows(decoded)
    assert first == (
        -1, 2**32 - 1, -(2**63), Decimal(2**64 - 1), 0.5, 0.1, True, "ä", b"\0", "BLUE",
        {"x": 1, "y": None}, [{"x": 0, "y": 2}, {"x": 0, "y": None}], [("a", 5)], "", MOMENT,
        timedelta(seconds=-1, microseconds=5), 0, '{"k": [1.0, null]}', '{"a": 7}', None, 0,
        ["RED", "BLUE", "9"], [(3, {"x": 4, "y": None})],
    )  # fmt: skip
    assert second == (
        0, 0, 0, Decimal(0), 0.0, 0.0, False, "", b"", "RED", None, [], [], None, None, None,
        None, None, None, None, None, [], [],
    )  # fmt: skip
    assert third == (None,) * 23


V1 = 'syntax = "proto3"; message Order { int32 id = 1; string gone = 2; string title = 3; }'
V2 = """syntax = "proto3";
message Order { int64 id = 1; string name = 3; optional string note = 4; }
message Other { int32 id = 1; }"""


def test_fields_are_known_by_their_numbers() -> None:
    """A field that was renamed is the same one; what is new and can tell is null."""
    old = message(V1, id=5, gone="x", title="t").SerializeToString()
    new = message(V2, id=6, name="n", note="m").SerializeToString()

    decoded = decode(decoder(V2, v4=V1), old, b"\0\0\0\0\x04\0" + old, b"\0\0\0\0\x09\0" + new, new)

    assert decoded.reasons == {}
    assert rows(decoded) == [(5, "t", None), (5, "t", None), (6, "n", "m"), (6, "n", "m")]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\xff", "it is no Order"),
        (b"\x1a\x01\xff", "it is no Order"),
        (b"\0\0\0\0\x05\0", "there is no schema 5"),
        (b"\0\0\0\0\x09\x02\x02\x08\x01", "it is a Other, not a Order"),
        (b"\0\0\0\0\x09", "does not say which type"),
        (b"\0\0\0\0\x09\x02\x08\x08\x01", "it is a [4], not a Order"),
    ],
)
def test_a_bad_value_spoils_no_other(bad: bytes, reason: str) -> None:
    good = message(V2, id=6).SerializeToString()

    decoded = decode(decoder(V2), good, bad, None, good)

    assert list(decoded.reasons) == [1]
    assert reason in decoded.reasons[1]
    assert rows(decoded) == [(6, "", None), (None,) * 3, (None,) * 3, (6, "", None)]


def test_required_fields_and_bounds() -> None:
    text = 'syntax = "proto2"; message Order { required int32 id = 1; optional Order in = 2; }'
    deep = b""
    for _ in range(150):
        size = len(deep)
        head = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        deep = b"\x08\x01\x12" + head + deep

    decoded = decode(decoder(text), b"", deep)

    assert decoded.reasons[0] == "/id: a required field is missing"
    assert "it is no Order" in decoded.reasons[1]
    with pytest.raises(OptionsError, match="has no message with fields"):
        reading('syntax = "proto3"; enum E { A = 0; }')
