"""Requests of every kind that can be decoded, made from their types."""

from typing import Any

import msgspec
from msgspec import inspect

from goqueue.wire import calls

TEXT = "orders"
_PLAIN: dict[type, Any] = {
    inspect.BoolType: False,
    inspect.BytesType: TEXT.encode(),
    inspect.DictType: {},
}


def sample(kind: type[calls.Call]) -> calls.Call:
    """Return a request of this type in which every field that must be there is."""
    made: calls.Call = msgspec.convert(_value(inspect.type_info(kind)), kind)
    return made


def _value(kind: inspect.Type) -> Any:
    made: Any
    match kind:
        case inspect.StructType():
            # What has a default comes behind what has none, in an array as in a call.
            made = [_value(field.type) for field in kind.fields if field.required]
        case inspect.ListType():
            made = [_value(kind.item_type)]
        case inspect.UnionType():
            made = _value(kind.types[0])
        case inspect.IntType():
            made = max(kind.ge or 0, 1)
        case inspect.LiteralType():
            made = kind.values[0]
        case _:
            made = _PLAIN.get(type(kind), TEXT)
    return made
