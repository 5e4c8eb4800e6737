"""Whether messages written with one Protobuf schema can be read with another.

Shape: calculator. Messages are compared by their names within the package, fields by their numbers.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from goqueue.base.limits import SCHEMA_BREAKS_MAX
from goqueue.core.schemas.definition import Break

_NAMES: Final = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
_SAME_BYTES: Final = (
    {"int32", "int64", "uint32", "uint64", "bool", "enum"},
    {"sint32", "sint64"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
    {"string", "bytes"},
)
"""Types that look alike in a message."""
_WITHOUT_PACKING: Final = {"string", "bytes", "message", "group"}


class ProtoComparison:
    """Compares a writer's file with a reader's."""

    def breaks(self, writer: Any, reader: Any) -> list[Break]:  # noqa: ANN401 - file descriptors
        """Return why what was written cannot be read."""
        theirs = {_local(message): message for message in _messages(reader)}
        found: list[Break] = []
        for message in _messages(writer):
            name = _local(message)
            other = theirs.get(name)
            if other is None:
                found.append(Break(f"/{name}", "the message was removed"))
            else:
                found += self._fields(message, other, f"/{name}")
        return found[:SCHEMA_BREAKS_MAX]

    def _fields(self, writer: Descriptor, reader: Descriptor, path: str) -> list[Break]:
        ours, theirs = writer.fields_by_number, reader.fields_by_number
        found: list[Break] = []
        for number, field in ours.items():
            other = theirs.get(number)
            if other is None:
                found += _removed(field, path)
            else:
                found += _field(field, other, f"{path}/{field.name}")
        for number, field in theirs.items():
            if field.is_required and (number not in ours or not ours[number].is_required):
                found.append(Break(f"{path}/{field.name}", "the field is required now"))
        return found + _moved(writer, reader, path)


def _messages(file: Any) -> Iterator[Descriptor]:  # noqa: ANN401 - a file descriptor
    waiting = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop(0)
        yield message
        waiting += message.nested_types


def _local(named: Any) -> str:  # noqa: ANN401 - a descriptor of a message or an enum
    """Return a name without the package: a file may move from one to another."""
    package = named.file.package
    name = str(named.full_name)
    return name.removeprefix(f"{package}.") if package else name


def _real_oneof(field: FieldDescriptor) -> Any:  # noqa: ANN401 - a descriptor
    """Return the oneof a field is in, but not the one that stands for ``optional``."""
    oneof = field.containing_oneof
    return (
        oneof
        if oneof is not None and len(oneof.fields) + (oneof.name != f"_{field.name}") > 1
        else None
    )


def _removed(field: FieldDescriptor, path: str) -> list[Break]:
    if field.is_required:
        return [Break(f"{path}/{field.name}", "the required field was removed")]
    oneof = _real_oneof(field)
    if oneof is not None:
        return [Break(f"{path}/{field.name}", f"the field was removed from oneof {oneof.name}")]
    return []


def _field(writer: FieldDescriptor, reader: FieldDescriptor, path: str) -> list[Break]:
    ours, theirs = _NAMES[writer.type], _NAMES[reader.type]
    if not _is_alike(ours, theirs):
        return [Break(path, f"the type of field {writer.number} was {ours} and is {theirs}")]
    found: list[Break] = []
    if ours == theirs and writer.message_type is not None:
        first, second = _local(writer.message_type), _local(reader.message_type)
        if first != second:
            found.append(Break(path, f"the type was {first} and is {second}"))
    if writer.is_repeated != reader.is_repeated and ours not in _WITHOUT_PACKING:
        was, now = ("repeated", "single") if writer.is_repeated else ("single", "repeated")
        found.append(Break(path, f"the field was {was} and is {now}"))
    return found


def _is_alike(ours: str, theirs: str) -> bool:
    return ours == theirs or any({ours, theirs} <= group for group in _SAME_BYTES)


def _moved(writer: Descriptor, reader: Descriptor, path: str) -> list[Break]:
    """Find fields that could be set together and cannot any more."""
    found: list[Break] = []
    for oneof in reader.oneofs:
        numbers = [field.number for field in oneof.fields]
        known = [writer.fields_by_number[n] for n in numbers if n in writer.fields_by_number]
        places = {
            id_of.full_name if (id_of := _real_oneof(f)) is not None else f.name for f in known
        }
        if len(known) > 1 and len(places) > 1:
            names = ", ".join(field.name for field in known)
            found.append(Break(f"{path}/{oneof.name}", f"{names} were moved into one oneof"))
    return found
