"""Columns of an Avro schema.

Shape: calculator. Numbers that mean times are read as numbers and become times as whole columns.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from goqueue.base.limits import SPARK_DEPTH_MAX
from goqueue.core.schemas.avro_definition import AvroDefinition
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.typed.fields import TEXT, Growth, json_text, list_of, nullable_struct

Convert = Callable[[Any], Any]
DECIMAL_DIGITS_MAX: Final = 38


class AvroKind(NamedTuple):
    """What a place of a schema is as a column."""

    type: pa.DataType
    stored: pa.DataType
    """What its values are as they are read."""
    convert: Convert | None = None
    """What is done to each value before."""


def _plain(kind: pa.DataType, stored: pa.DataType | None = None) -> AvroKind:
    return AvroKind(kind, kind if stored is None else stored)


_ANY: Final = AvroKind(TEXT, TEXT, lambda value: None if value is None else json_text(value))
_PRIMITIVES: Final = {
    "null": _plain(TEXT),
    "boolean": _plain(pa.bool_()),
    "int": _plain(pa.int32()),
    "long": _plain(pa.int64()),
    "float": _plain(pa.float32()),
    "double": _plain(pa.float64()),
    "bytes": _plain(pa.binary()),
    "string": _plain(TEXT),
}
_MOMENT: Final = pa.timestamp("us", "UTC")
_LOCAL: Final = pa.timestamp("us")
_LOGICAL: Final = {
    ("int", "date"): _plain(pa.date32()),
    ("long", "timestamp-millis"): _plain(_MOMENT, pa.timestamp("ms", "UTC")),
    ("long", "timestamp-micros"): _plain(_MOMENT),
    ("long", "timestamp-nanos"): _plain(_MOMENT, pa.timestamp("ns", "UTC")),
    ("long", "local-timestamp-millis"): _plain(_LOCAL, pa.timestamp("ms")),
    ("long", "local-timestamp-micros"): _plain(_LOCAL),
    ("long", "local-timestamp-nanos"): _plain(_LOCAL, pa.timestamp("ns")),
}
_NUMBERS: Final = ({"int", "long"}, "long"), ({"float", "double"}, "double")


def avro_kinds(definition: AvroDefinition, growth: Growth, *, label: str) -> dict[str, AvroKind]:
    """Return the fields of a record."""
    root = definition.root
    if not isinstance(root, dict) or root["type"] not in {"record", "error"} or not root["fields"]:
        raise OptionsError(f"schema: {label} is no record with fields, so there are no columns")
    _refuse_endless(definition, label)
    return AvroWalk(definition, growth).fields(root, above=frozenset(), depth=0)


class AvroWalk:
    """Walks a schema; ``above`` are the records on the way, ``depth`` their number."""

    def __init__(self, definition: AvroDefinition, growth: Growth) -> None:
        self._names = definition.names
        self._growth = growth

    def fields(
        self, node: dict[str, Any], *, above: frozenset[str], depth: int
    ) -> dict[str, AvroKind]:
        """Return the fields of a record."""
        self._growth.add(len(node["fields"]))
        above |= {node["name"]}
        return {one["name"]: self._kind(one["type"], above, depth) for one in node["fields"]}

    def _kind(self, node: Any, above: frozenset[str], depth: int) -> AvroKind:  # noqa: ANN401 - as parsed
        if isinstance(node, list):
            return self._union(node, above, depth)
        kind = node["type"] if isinstance(node, dict) else node
        if isinstance(kind, dict | list):
            return self._kind(kind, above, depth)
        if kind in _PRIMITIVES or kind == "fixed":
            return _scalar(kind, node if isinstance(node, dict) else {})
        if kind == "enum":
            return _PRIMITIVES["string"]
        return self._nested(kind, node, above, depth)

    def _nested(self, kind: str, node: Any, above: frozenset[str], depth: int) -> AvroKind:  # noqa: ANN401 - as parsed
        if depth >= SPARK_DEPTH_MAX:
            return _ANY
        match kind:
            case "array":
                inside = self._kind(node["items"], above, depth + 1)
                return AvroKind(list_of(inside.type), list_of(inside.stored), _each(inside.convert))
            case "map":
                inside = self._kind(node["values"], above, depth + 1)
                return AvroKind(
                    pa.map_(TEXT, inside.type),
                    pa.map_(TEXT, inside.stored),
                    _each_value(inside.convert),
                )
            case "record" | "error":
                return self._record(node, above, depth)
            case name:
                return _ANY if name in above else self._kind(self._names[name], above, depth)

    def _record(self, node: dict[str, Any], above: frozenset[str], depth: int) -> AvroKind:
        if node["name"] in above or not node["fields"]:
            return _ANY
        kinds = self.fields(node, above=above, depth=depth + 1)
        converts = {name: kind.convert for name, kind in kinds.items() if kind.convert is not None}
        return AvroKind(
            nullable_struct((name, kind.type) for name, kind in kinds.items()),
            nullable_struct((name, kind.stored) for name, kind in kinds.items()),
            in_record(converts) if converts else None,
        )

    def _union(self, branches: list[Any], above: frozenset[str], depth: int) -> AvroKind:
        found = [branch for branch in branches if branch != "null"]
        if not found:
            return _PRIMITIVES["null"]
        if len(found) == 1:
            return self._kind(found[0], above, depth)
        if all(isinstance(branch, str) for branch in found):
            for numbers, widest in _NUMBERS:
                if numbers >= set(found):
                    return _PRIMITIVES[widest]
        return _ANY


def _scalar(kind: str, node: dict[str, Any]) -> AvroKind:
    logical = node.get("logicalType")
    if logical == "decimal" and is_decimal(node):
        return _plain(pa.decimal128(node["precision"], node.get("scale", 0)))
    return _LOGICAL.get((kind, str(logical))) or _PRIMITIVES["bytes" if kind == "fixed" else kind]


def is_decimal(node: dict[str, Any]) -> bool:
    """Return True if a node is a decimal that a column can hold."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    return (
        node.get("logicalType") == "decimal"
        and node.get("type") in {"bytes", "fixed"}
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
        and 0 < precision <= DECIMAL_DIGITS_MAX
    )


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: None if values is None else [convert(value) for value in values]


def _each_value(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: (
        None if values is None else {key: convert(value) for key, value in values.items()}
    )


def in_record(converts: dict[str, Convert]) -> Convert:
    """Return what converts some fields of a record, in place."""

    def convert(record: dict[str, Any] | None) -> dict[str, Any] | None:
        if record is not None:
            for name, one in converts.items():
                record[name] = one(record[name])
        return record

    return convert


def is_recursive(definition: AvroDefinition) -> bool:
    """Return True if values may be nested as deeply as they like."""

    def leads_back(node: Any, above: frozenset[str]) -> bool:  # noqa: ANN401 - as parsed
        if isinstance(node, str):
            if node in above:
                return True
            return node in definition.names and leads_back(definition.names[node], above)
        if isinstance(node, list):
            return any(leads_back(branch, above) for branch in node)
        if node["type"] in {"record", "error"}:
            if node["name"] in above:
                return True
            inside = above | {node["name"]}
            return any(leads_back(field["type"], inside) for field in node["fields"])
        parts = (node["type"], node.get("items"), node.get("values"))
        return any(leads_back(part, above) for part in parts if part is not None)

    try:
        return leads_back(definition.root, frozenset())
    except RecursionError:
        return True


def _refuse_endless(definition: AvroDefinition, label: str) -> None:
    """Refuse arrays of values without bytes: a few bytes may claim any number of them."""
    for node in _nodes([definition.root, *definition.names.values()]):
        if node.get("type") == "array" and _is_empty(node["items"], definition.names, frozenset()):
            raise OptionsError(f"schema: {label} has an array of values that take no bytes")


def _nodes(roots: list[Any]) -> Iterator[dict[str, Any]]:
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            yield node
            waiting += [node[key] for key in ("type", "items", "values", "fields") if key in node]


def _is_empty(node: Any, names: dict[str, Any], above: frozenset[str]) -> bool:  # noqa: ANN401 - as parsed
    if isinstance(node, list):
        return False
    kind = node["type"] if isinstance(node, dict) else node
    if isinstance(kind, dict | list):
        return _is_empty(kind, names, above)
    if kind in {"record", "error"}:
        name = node["name"]
        inside = above | {name}
        return name in above or all(_is_empty(one["type"], names, inside) for one in node["fields"])
    if kind == "fixed":
        return bool(node["size"] == 0)
    if kind in names and kind not in _PRIMITIVES:
        return _is_empty(names[kind], names, above)
    return bool(kind == "null")
