"""What is wrong with a header, said with the names of its fields.

Headers travel as arrays, so the decoder knows places (``$[3][0][1]``) where people need names
(``parts[0].offset``).
"""

import re
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from goqueue.base.errors import ProtocolError
from goqueue.wire.calls import Call

HEADER_FAULTS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that decoding a stranger's header may raise: it is malformed, wrongly typed or too deep."""

_PATH: Final = re.compile(r"\$((?:\[(?:\d+|\.\.\.)\])+)")

K = TypeVar("K", bound=Call)


def decode_peer(header: Any, kind: type[K]) -> K:  # noqa: ANN401 - what msgspec takes
    """Read the header of a peer's packet, or raise a ProtocolError that says what is wrong."""
    try:
        return msgspec.msgpack.decode(header, type=kind)
    except HEADER_FAULTS as error:
        raise ProtocolError(f"{kind.__name__}: {complaint(kind, error)}") from error


def complaint(kind: type[Call], fault: Exception) -> str:
    """Return what the decoder says, each place in the header replaced by its name."""
    return _PATH.sub(lambda match: _name(inspect.type_info(kind), match[1]), str(fault))


def _name(kind: inspect.Type, path: str) -> str:
    name = ""
    for place in re.findall(r"\d+|\.\.\.", path):
        if isinstance(kind, inspect.StructType):
            field = kind.fields[int(place)]
            kind, name = field.type, f"{name}.{field.name}" if name else field.name
            continue
        name += f"[{place}]"
        if isinstance(kind, inspect.ListType):
            kind = kind.item_type
    return name
