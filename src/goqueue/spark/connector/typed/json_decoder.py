"""JSON values as columns: a batch at once, or one by one where some of them are bad.

A batch is read by Arrow as one buffer of lines, each value wrapped in an object of its own. A line
then holds at least one object or cannot be read, so as many objects as lines means one in each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from goqueue.spark.connector.typed.decoded import (
    Decoded,
    Record,
    UnreadableError,
    cast,
    to_columns,
    told,
)
from goqueue.spark.connector.typed.fields import Field
from goqueue.spark.connector.typed.frames import FRAME_BYTES, MAGIC, schema_id
from goqueue.spark.connector.typed.json_fields import JsonKind, object_of, read_whole

_BEFORE: Final = pa.scalar(b'{"v":', pa.binary())
_AFTER: Final = pa.scalar(b"}\n", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())
_NULL: Final = pa.scalar(b"null", pa.binary())
_NOT_JSON: Final = (b"NaN", b"Inf")
"""Numbers that Arrow takes and JSON does not know; in a text they only cost time."""
DEPTH_MAX: Final = 500
"""Deeper values are left to what reads them one by one, and is bounded."""


class JsonDecoder:
    """Decodes the values of one schema."""

    def __init__(
        self,
        fields: Sequence[Field],
        kinds: Mapping[str, JsonKind],
        *,
        latest_id: int,
        check_id: Callable[[int], None],
    ) -> None:
        self._fields = fields
        self._known = {latest_id}
        self._check_id = check_id
        self._types = [kinds[field.name].type for field in fields]
        self._struct = pa.struct(
            [pa.field(field.name, kind) for field, kind in zip(fields, self._types, strict=True)]
        )
        self._is_columnar = all(kinds[field.name].is_columnar for field in fields)
        self._strict = msgspec.json.Decoder(
            object_of({field.name: kinds[field.name].strict for field in fields}),
            dec_hook=read_whole,
        )
        self._lenient = msgspec.json.Decoder(
            object_of({field.name: kinds[field.name].lenient for field in fields}),
            dec_hook=read_whole,
        )

    def __repr__(self) -> str:
        return f"<JsonDecoder of {len(self._fields)} columns>"

    def decode(self, values: pa.Array) -> Decoded:
        """Decode many values."""
        plain, unknown = self._without_frames(values)
        columns = self._at_once(plain) if self._is_columnar else None
        decoded = self._one_by_one(plain) if columns is None else Decoded(columns, {})
        decoded.reasons.update(unknown)
        return decoded

    def _without_frames(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Cut off the ids of schemas; values of a schema that cannot be theirs become null."""
        reasons: dict[int, str] = {}
        if not pc.any(pc.starts_with(values, pattern=MAGIC)).as_py():
            return values, reasons
        plain: list[bytes | None] = []
        for row, value in enumerate(values.to_pylist()):
            named = None if value is None else schema_id(value)
            if named is None:
                plain.append(value)
                continue
            try:
                self._check(named)
                plain.append(value[FRAME_BYTES:])
            except UnreadableError as error:
                plain.append(None)
                reasons[row] = str(error)
        # ``pc.binary_slice`` fails for some arrays with nulls.
        return pa.array(plain, pa.binary()), reasons

    def _check(self, named: int) -> None:
        """Raise UnreadableError unless there is such a JSON schema."""
        if named not in self._known:
            self._check_id(named)
            self._known.add(named)

    def _at_once(self, values: pa.Array) -> list[pa.Array] | None:
        """Return the columns, or None if a value is bad or Arrow might read it its own way."""
        if _may_be_deep(values):
            return None
        lines = pc.binary_join_element_wise(_BEFORE, pc.fill_null(values, _NULL), _AFTER, _NOTHING)
        try:
            pc.cast(lines, pa.string())
            raw = lines.buffers()[2]
            if any(word in memoryview(raw).tobytes() for word in _NOT_JSON):
                return None
            table = pj.read_json(
                pa.BufferReader(raw),
                read_options=pj.ReadOptions(use_threads=False, block_size=raw.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([pa.field("v", self._struct)]),
                    unexpected_field_behavior="ignore",
                ),
            )
        except pa.ArrowException:
            return None
        objects = table.column("v").combine_chunks()
        if len(objects) != len(values) or objects.null_count != values.null_count:
            return None
        return [
            cast(pc.struct_field(objects, place), field.type)
            for place, field in enumerate(self._fields)
        ]

    def _one_by_one(self, values: pa.Array) -> Decoded:
        records: list[Record] = []
        reasons: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            record: Record = None
            if value is not None:
                try:
                    record = self._strict.decode(value)
                except (ValueError, RecursionError) as error:
                    record = self._again(value)
                    if record is None:
                        reasons[row] = told(error)
            records.append(record)
        return Decoded(to_columns(records, self._fields, self._types, reasons), reasons)

    def _again(self, value: bytes) -> Record:
        try:
            record: Record = self._lenient.decode(value)
        except (ValueError, RecursionError):
            return None
        return record


def _may_be_deep(values: pa.Array) -> bool:
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest < DEPTH_MAX:
        return False
    opened = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    return bool(pc.max(opened).as_py() >= DEPTH_MAX)
