"""Whether data written with one Avro schema can be read with another: the rules of resolution.

Shape: calculator.
"""

from collections.abc import Mapping
from typing import Any, Final

from goqueue.base.limits import SCHEMA_BREAKS_MAX, SCHEMA_COMPARE_STEPS_MAX
from goqueue.core.schemas.definition import Break

_PROMOTIONS: Final = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
"""What each type may be read as."""
_NAMED: Final = ("record", "error", "enum", "fixed")
_CONTENTS: Final = {"array": "items", "map": "values"}


class _AvroTooComplexError(Exception):
    """The comparison takes too many steps."""


class AvroComparison:
    """Compares a writer's schema with a reader's."""

    def __init__(self, *, writer_names: Mapping[str, Any], reader_names: Mapping[str, Any]) -> None:
        self._writer_names = writer_names
        self._reader_names = reader_names
        self._open: set[tuple[str, str]] = set()
        self._steps = 0

    def breaks(self, writer: Any, reader: Any) -> list[Break]:  # noqa: ANN401 - as parsed
        """Return why what was written cannot be read."""
        try:
            return self._compare(writer, reader, "")[:SCHEMA_BREAKS_MAX]
        except (_AvroTooComplexError, RecursionError):
            return [Break("", "the schemas are too intricate to be compared")]

    def _compare(self, writer: Any, reader: Any, path: str) -> list[Break]:  # noqa: ANN401 - as parsed
        self._steps += 1
        if self._steps > SCHEMA_COMPARE_STEPS_MAX:
            raise _AvroTooComplexError
        writer, reader = _settle(writer, self._writer_names), _settle(reader, self._reader_names)
        if isinstance(writer, list):
            return self._from_union(writer, reader, path)
        if isinstance(reader, list):
            return self._into_union(writer, reader, path)
        ours, theirs = writer["type"], reader["type"]
        if ours == theirs:
            return self._compare_alike(writer, reader, path)
        if theirs in _PROMOTIONS.get(ours, ()):
            return []
        return [Break(path, f"the type was {ours} and is {theirs}")]

    def _compare_alike(
        self, writer: dict[str, Any], reader: dict[str, Any], path: str
    ) -> list[Break]:
        """Compare two types of one kind."""
        kind = writer["type"]
        if kind in _NAMED:
            return self._named(writer, reader, path)
        if kind in _CONTENTS:
            inside = _CONTENTS[kind]
            return self._compare(writer[inside], reader[inside], f"{path}/*")
        return _decimals(writer, reader, path)

    def _from_union(self, writer: list[Any], reader: Any, path: str) -> list[Break]:  # noqa: ANN401
        found: list[Break] = []
        for branch in writer:
            found += self._compare(branch, reader, path)
        return found

    def _into_union(self, writer: Any, reader: list[Any], path: str) -> list[Break]:  # noqa: ANN401
        attempts = [self._compare(writer, branch, path) for branch in reader]
        if any(not attempt for attempt in attempts):
            return []
        name = writer.get("name", writer["type"])
        close = [
            one
            for one, branch in zip(attempts, reader, strict=True)
            if self._is_kin(writer, branch)
        ]
        return close[0] if close else [Break(path, f"no branch of the union takes {name}")]

    def _is_kin(self, writer: Any, branch: Any) -> bool:  # noqa: ANN401 - as parsed
        other = _settle(branch, self._reader_names)
        return isinstance(other, dict) and other["type"] == writer["type"]

    def _named(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Break]:
        if not _is_same_name(writer, reader):
            return [Break(path, f"the name was {writer['name']} and is {reader['name']}")]
        kind = writer["type"]
        if kind == "fixed":
            if writer["size"] == reader["size"]:
                return _decimals(writer, reader, path)
            return [Break(path, f"the size was {writer['size']} and is {reader['size']}")]
        if kind == "enum":
            return _symbols(writer, reader, path)
        key = (writer["name"], reader["name"])
        if key in self._open:
            return []
        self._open.add(key)
        try:
            return self._fields(writer, reader, path)
        finally:
            self._open.discard(key)

    def _fields(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Break]:
        written = {field["name"]: field for field in writer["fields"]}
        found: list[Break] = []
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            match = next((written[name] for name in names if name in written), None)
            step = f"{path}/{field['name']}"
            if match is not None:
                found += self._compare(match["type"], field["type"], step)
            elif "default" not in field:
                found.append(Break(step, "the field was not written and has no default"))
        return found


def _settle(node: Any, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as parsed
    """Return a node as an object or a list: names followed, bare types wrapped."""
    while True:
        if isinstance(node, list):
            return node
        if isinstance(node, str):
            node = names.get(node, {"type": node})
            continue
        kind = node["type"]
        if isinstance(kind, dict | list) or kind in names:
            node = kind
            continue
        return node


def _is_same_name(writer: dict[str, Any], reader: dict[str, Any]) -> bool:
    """Tell whether two types are one: by their own names, or by a name the reader also goes by."""
    ours, theirs = writer["name"], reader["name"]
    if ours == theirs or ours.rpartition(".")[2] == theirs.rpartition(".")[2]:
        return True
    space = theirs.rpartition(".")[0]
    aliases = [
        one if "." in one or not space else f"{space}.{one}" for one in reader.get("aliases", ())
    ]
    return ours in aliases


def _symbols(writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Break]:
    lost = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
    if not lost or "default" in reader:
        return []
    return [Break(path, f"the enum lost {', '.join(lost[:10])} and has no default")]


def _decimals(writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[Break]:
    found: list[Break] = []
    if writer.get("logicalType") == reader.get("logicalType") == "decimal":
        for name in ("precision", "scale"):
            ours, theirs = writer.get(name, 0), reader.get(name, 0)
            if ours != theirs:
                found.append(Break(path, f"the {name} of the decimal was {ours} and is {theirs}"))
    return found
