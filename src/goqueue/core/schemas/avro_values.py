"""Whether bytes are a record of an Avro schema, without making the record.

Shape: calculator. The schema becomes functions that walk over the bytes; hostile bytes can name
any count and any depth, so every step is checked and nothing is allocated for what they claim.
"""

from collections.abc import Callable
from typing import Any, Final

from goqueue.base.limits import VALUE_BYTES_MAX
from goqueue.core.schemas.definition import Misfit

Walk = Callable[[bytes, int], int]
"""Takes the bytes and a position, returns the position behind the value or raises."""

_SIZES: Final = {"float": 4, "double": 8}
_VARINT_BYTES_MAX: Final = 10
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1


class UnfitError(Exception):
    """A value is not what the schema says; ``steps`` leads to it, the innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.steps: list[str] = []


class Walker:
    """Walks over messages of one schema."""

    def __init__(self, root: Any, names: dict[str, Any]) -> None:  # noqa: ANN401 - as parsed
        self._names = names
        self._known: dict[str, Walk] = {}
        self._empty: dict[str, bool] = {}
        self._walk = self._make(root)

    def __repr__(self) -> str:
        return f"<Walker over {len(self._known)} named types>"

    def misfit(self, value: bytes) -> Misfit | None:
        """Return why the bytes do not fit."""
        try:
            end = self._walk(value, 0)
        except UnfitError as error:
            return Misfit("".join(f"/{step}" for step in reversed(error.steps)), str(error))
        except RecursionError:
            return Misfit("", "nested too deeply")
        if end != len(value):
            return Misfit("", f"{len(value) - end} bytes are left over")
        return None

    def _make(self, node: Any) -> Walk:  # noqa: ANN401 - as parsed
        if isinstance(node, list):
            return _union([self._make(branch) for branch in node])
        kind = node["type"] if isinstance(node, dict) else node
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        if isinstance(kind, dict | list):
            return self._make(kind)
        return self._make_complex(kind, node)

    def _make_complex(self, kind: str, node: Any) -> Walk:  # noqa: ANN401 - as parsed
        match kind:
            case "record" | "error":
                walk = self._record(node)
            case "enum":
                walk = _enum(len(node["symbols"]))
            case "fixed":
                walk = _fixed(_size(node["size"]))
            case "array":
                is_empty = self._is_empty(node["items"])
                walk = _blocks(self._make(node["items"]), is_empty=is_empty)
            case "map":
                walk = _blocks(_entry(self._make(node["values"])), is_empty=False)
            case name:
                walk = self._named(name)
        return walk

    def _record(self, node: dict[str, Any]) -> Walk:
        name = node["name"]
        if name in self._known:
            return self._known[name]
        fields: list[tuple[str, Walk]] = []

        def walk(raw: bytes, at: int) -> int:
            for field, step in fields:
                try:
                    at = step(raw, at)
                except UnfitError as error:
                    error.steps.append(field)
                    raise
            return at

        # Known before its fields are made: a record may hold itself.
        self._known[name] = walk
        fields += [(field["name"], self._make(field["type"])) for field in node["fields"]]
        return walk

    def _named(self, name: str) -> Walk:
        if name not in self._known:
            self._known[name] = self._make(self._names[name])
        return self._known[name]

    def _is_empty(self, node: Any) -> bool:  # noqa: ANN401 - as parsed
        """Return True if a value takes no bytes, so that any number of them fits anywhere."""
        if isinstance(node, list):
            return False
        kind = node["type"] if isinstance(node, dict) else node
        if kind in {"record", "error"}:
            name = node["name"]
            if name not in self._empty:
                self._empty[name] = True
                self._empty[name] = all(self._is_empty(one["type"]) for one in node["fields"])
            return self._empty[name]
        if kind == "fixed":
            return bool(node["size"] == 0)
        if isinstance(kind, dict | list):
            return self._is_empty(kind)
        if isinstance(kind, str) and kind in self._names and kind not in _PRIMITIVES:
            return self._is_empty(self._names[kind])
        return bool(kind == "null")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    number = shift = 0
    for place in range(at, at + _VARINT_BYTES_MAX):
        if place >= len(raw):
            raise UnfitError("the message ends too early")
        byte = raw[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says more is to come
            if number >= 2**64:
                break
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    raise UnfitError("a number is too long")


def _size(size: Any) -> int:  # noqa: ANN401 - what somebody wrote
    if type(size) is not int or not 0 <= size <= VALUE_BYTES_MAX:
        raise ValueError(f"the size of a fixed type cannot be {str(size)[:40]!a}")
    return size


def _null(_raw: bytes, at: int) -> int:
    return at


def _boolean(raw: bytes, at: int) -> int:
    if at >= len(raw):
        raise UnfitError("the message ends too early")
    if raw[at] > 1:
        raise UnfitError(f"a boolean cannot be {raw[at]}")
    return at + 1


def _int(raw: bytes, at: int) -> int:
    number, end = _varint(raw, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise UnfitError(f"{number} is no int")
    return end


def _long(raw: bytes, at: int) -> int:
    return _varint(raw, at)[1]


def _bytes(raw: bytes, at: int) -> int:
    size, start = _varint(raw, at)
    if size < 0:
        raise UnfitError(f"a size cannot be {size}")
    if size > len(raw) - start:
        raise UnfitError("the message ends too early")
    return start + size


def _string(raw: bytes, at: int) -> int:
    size, start = _varint(raw, at)
    end = _bytes(raw, at)
    try:
        raw[end - size : end].decode()
    except UnicodeDecodeError as error:
        raise UnfitError(f"a string is not UTF-8: {error.reason}") from error
    return start + size


def _fixed(size: int) -> Walk:
    def walk(raw: bytes, at: int) -> int:
        if size > len(raw) - at:
            raise UnfitError("the message ends too early")
        return at + size

    return walk


def _enum(count: int) -> Walk:
    def walk(raw: bytes, at: int) -> int:
        number, end = _varint(raw, at)
        if not 0 <= number < count:
            raise UnfitError(f"the enum has no symbol {number}")
        return end

    return walk


def _union(branches: list[Walk]) -> Walk:
    def walk(raw: bytes, at: int) -> int:
        number, start = _varint(raw, at)
        if not 0 <= number < len(branches):
            raise UnfitError(f"the union has no branch {number}")
        return branches[number](raw, start)

    return walk


def _entry(value: Walk) -> Walk:
    def walk(raw: bytes, at: int) -> int:
        return value(raw, _string(raw, at))

    return walk


def _blocks(item: Walk, *, is_empty: bool) -> Walk:
    def walk(raw: bytes, at: int) -> int:
        while True:
            count, at = _varint(raw, at)
            if count == 0:
                return at
            if count < 0:
                # A negative count is followed by the size of the block.
                count, (_, at) = -count, _varint(raw, at)
            # As many as are claimed, but each takes a byte, or none of them does.
            for place in range(1 if is_empty else count):
                try:
                    at = item(raw, at)
                except UnfitError as error:
                    error.steps.append(str(place))
                    raise

    return walk


_PRIMITIVES: Final[dict[Any, Walk]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed(_SIZES["float"]),
    "double": _fixed(_SIZES["double"]),
    "bytes": _bytes,
    "string": _string,
}
