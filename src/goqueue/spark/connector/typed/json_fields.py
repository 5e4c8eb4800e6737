"""Columns of a JSON schema.

Shape: calculator. A place of the schema becomes a type of Arrow, and a type that checks and reads
JSON. What has no type of its own (several types, no names, itself inside itself) is text: JSON.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import msgspec
import pyarrow as pa

from goqueue.base.limits import SPARK_DEPTH_MAX
from goqueue.core.schemas.json_definition import JsonDefinition
from goqueue.core.schemas.json_view import NUMBERS, SchemaView, flatten, hidden_in, types_of
from goqueue.spark.connector.options import OptionsError
from goqueue.spark.connector.typed.fields import (
    TEXT,
    Growth,
    json_text,
    list_of,
    nullable_struct,
)

_WHOLE_MIN: Final = -(2**63)
_WHOLE_MAX: Final = 2**63 - 1


class JsonText(str):
    """Any value, written as JSON."""

    __slots__ = ()


class Whole(int):
    """A whole number, which JSON also writes as 1.0 or 1e2."""


class JsonKind(NamedTuple):
    """What a place of a schema is as a column."""

    type: pa.DataType
    strict: Any
    """How most values are written, as a type for ``msgspec``."""
    lenient: Any
    """How they may be written."""
    is_columnar: bool
    """Whether Arrow reads it by itself."""


def _plain(kind: pa.DataType, reads: Any, lenient: Any = None) -> JsonKind:  # noqa: ANN401 - a type
    return JsonKind(kind, reads | None, (lenient or reads) | None, is_columnar=True)


_ANY: Final = JsonKind(TEXT, JsonText | None, JsonText | None, is_columnar=False)
_STRING: Final = _plain(TEXT, str)
_BOOLEAN: Final = _plain(pa.bool_(), bool)
_DOUBLE: Final = _plain(pa.float64(), float)
_BIGINT: Final = _plain(
    pa.int64(), Annotated[int, msgspec.Meta(ge=_WHOLE_MIN, le=_WHOLE_MAX)], Whole
)
_SCALARS: Final = {
    frozenset({"string"}): _STRING,
    frozenset({"boolean"}): _BOOLEAN,
    frozenset({"integer"}): _BIGINT,
}


def json_kinds(definition: JsonDefinition, growth: Growth, *, label: str) -> dict[str, JsonKind]:
    """Return the fields of a schema of objects."""
    document = definition.document
    views = flatten([SchemaView(document, document.root)]) or []
    kinds: dict[str, JsonKind] = {}
    if "object" in types_of(views):
        kinds = _Walk(growth).properties(views, above=frozenset(), depth=0)
    if not kinds:
        raise OptionsError(f"schema: {label} names no properties, so there are no columns")
    return kinds


def read_whole(kind: type, value: object) -> object:
    """Make what ``msgspec`` does not know by itself."""
    if kind is JsonText:
        return JsonText(json_text(value))
    assert kind is Whole, "there are only these two"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != (whole := int(value)) or not _WHOLE_MIN <= whole <= _WHOLE_MAX:  # type: ignore[call-overload]
        raise ValueError(f"{str(value)[:40]} is no whole number of 64 bits")
    return Whole(whole)


class _Walk:
    """Walks a schema; ``above`` are the places on the way, ``depth`` their number."""

    def __init__(self, growth: Growth) -> None:
        self._growth = growth

    def properties(
        self, flat: Sequence[SchemaView], *, above: frozenset[int], depth: int
    ) -> dict[str, JsonKind]:
        """Return the named properties of an object; where choices disagree, one is text."""
        above |= {id(view.node) for view in flat}
        named: dict[str, list[SchemaView]] = {}
        for name, view in _named(flat):
            named.setdefault(name, []).append(view)
        perhaps: dict[str, list[SchemaView]] = {}
        for name, view in _named(hidden_in(flat) or ()):
            if name not in named:
                perhaps.setdefault(name, []).append(view)
        self._growth.add(len(named) + len(perhaps))
        kinds = {name: self._kind(views, above, depth) for name, views in named.items()}
        for name, views in perhaps.items():
            choices = [self._kind([view], above, depth) for view in views]
            is_one = all(choice.type == choices[0].type for choice in choices)
            kinds[name] = choices[0] if is_one else _ANY
        return kinds

    def _kind(self, views: Sequence[SchemaView], above: frozenset[int], depth: int) -> JsonKind:
        flat = flatten(views)
        if flat is None or depth >= SPARK_DEPTH_MAX or above & {id(view.node) for view in flat}:
            return _ANY
        types = types_of(flat) - {"null"}
        if types and types <= NUMBERS:
            return _SCALARS.get(types, _DOUBLE)
        if types == {"array"}:
            return self._array(flat, above, depth)
        if types == {"object"}:
            return self._object(flat, above, depth)
        return _SCALARS.get(types, _ANY)

    def _array(self, flat: Sequence[SchemaView], above: frozenset[int], depth: int) -> JsonKind:
        above |= {id(view.node) for view in flat}
        items = [view.inside(node) for view in flat if isinstance(node := view.get("items"), dict)]
        is_tuple = any(view.get("prefixItems") is not None for view in flat)
        inside = _ANY if is_tuple or not items else self._kind(items, above, depth + 1)
        return JsonKind(
            list_of(inside.type),
            list[inside.strict] | None,  # type: ignore[name-defined]
            list[inside.lenient] | None,  # type: ignore[name-defined]
            inside.is_columnar,
        )

    def _object(self, flat: Sequence[SchemaView], above: frozenset[int], depth: int) -> JsonKind:
        kinds = self.properties(flat, above=above, depth=depth + 1)
        if kinds:
            return JsonKind(
                nullable_struct((name, kind.type) for name, kind in kinds.items()),
                object_of({name: kind.strict for name, kind in kinds.items()}) | None,
                object_of({name: kind.lenient for name, kind in kinds.items()}) | None,
                all(kind.is_columnar for kind in kinds.values()),
            )
        return self._map(flat, above | {id(view.node) for view in flat}, depth)

    def _map(self, flat: Sequence[SchemaView], above: frozenset[int], depth: int) -> JsonKind:
        others = [
            view.inside(node)
            for view in flat
            if isinstance(node := view.get("additionalProperties"), dict)
        ]
        if not others or any(view.get("patternProperties") for view in flat):
            return _ANY
        inside = self._kind(others, above, depth + 1)
        return JsonKind(
            pa.map_(TEXT, inside.type),
            dict[str, inside.strict] | None,  # type: ignore[name-defined]
            dict[str, inside.lenient] | None,  # type: ignore[name-defined]
            is_columnar=False,
        )


def _named(views: Sequence[SchemaView]) -> Iterator[tuple[str, SchemaView]]:
    for view in views:
        for name, node in (view.get("properties") or {}).items():
            if isinstance(node, dict | bool):
                yield name, view.inside(node)


def object_of(types: dict[str, Any]) -> Any:  # noqa: ANN401 - a type
    """Return the type of an object with these fields, any of which may be missing."""
    return TypedDict("Object", types, total=False)  # type: ignore[operator]
