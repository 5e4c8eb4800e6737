"""Protobuf: understood, compared and tried on messages.

Shape: calculator. A schema is the text of a ``.proto`` file, or a serialised descriptor in base64
as some clients register it.
"""

import binascii
import re
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from goqueue.base.errors import InvalidSchemaError
from goqueue.core.schemas.definition import Break, Definition, Misfit
from goqueue.core.schemas.proto_compare import ProtoComparison
from goqueue.core.schemas.proto_parser import ProtoParser
from goqueue.core.schemas.schema import Resolved, Schema

MAIN_FILE: Final = "__main__.proto"
INDEXES_MAX: Final = 32
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)
_VARINT_BYTES_MAX: Final = 5
_KNOWN: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2, pb, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2,
        timestamp_pb2, wrappers_pb2,
    )
}  # fmt: skip


class ProtoDefinition(Definition):
    """A Protobuf schema with the classes of its messages."""

    def __init__(self, schema: Schema, resolved: Resolved) -> None:
        file = read_file(schema.text)
        canonical = pb.FileDescriptorProto()
        canonical.CopyFrom(file)
        canonical.ClearField("name")
        self._pool = DescriptorPool()
        self._added: set[str] = set()
        others = {name: read_file(other.text) for name, other in resolved}
        file.name = MAIN_FILE
        self.file = self._build(file, others)
        self._classes: dict[tuple[int, ...], type[Message]] = {}
        messages = list(self.file.message_types_by_name.values())
        super().__init__(
            schema,
            canonical=canonical.SerializeToString(deterministic=True),
            record_name=messages[0].full_name if messages else None,
        )

    def breaks_reading(self, writer: Definition) -> list[Break]:
        """Return why data written with another schema cannot be read with this one."""
        assert isinstance(writer, ProtoDefinition), "of the same language"
        return ProtoComparison().breaks(writer.file, self.file)

    def serialized(self) -> bytes:
        """Return the file as a descriptor."""
        file = pb.FileDescriptorProto()
        self.file.CopyToProto(file)
        file.name = "default"
        return bytes(file.SerializeToString(deterministic=True))

    def misfit(self, value: bytes) -> Misfit | None:
        """Return why the bytes are no message of the first type of this schema."""
        return self._misfit(value, (0,))

    def framed_misfit(self, payload: bytes) -> Misfit | None:
        """Return why what follows a schema id is no message: indexes of its type, then itself."""
        indexes, start = split_indexes(payload)
        if indexes is None:
            return Misfit("", "the message does not say which type it is")
        return self._misfit(payload[start:], indexes)

    def _misfit(self, value: bytes, indexes: tuple[int, ...]) -> Misfit | None:
        kind = self.message_class(indexes)
        if kind is None:
            return Misfit("", f"the schema has no message {list(indexes)}")
        message = kind()
        try:
            message.ParseFromString(value)
        except (DecodeError, ValueError) as error:
            return Misfit("", f"it is no {kind.DESCRIPTOR.full_name}: {error}"[:300])
        missing = message.FindInitializationErrors()
        if missing:
            return Misfit("/" + str(missing[0]).replace(".", "/"), "a required field is missing")
        return None

    def message_class(self, indexes: tuple[int, ...]) -> type[Message] | None:
        """Return the class of a message by its place in the file, if there is one."""
        known = self._classes.get(indexes)
        if known is not None:
            return known
        level: list[Descriptor] = list(self.file.message_types_by_name.values())
        found: Descriptor | None = None
        for index in indexes:
            if not 0 <= index < len(level):
                return None
            found = level[index]
            level = list(found.nested_types)
        if found is None:
            return None
        self._classes[indexes] = message_factory.GetMessageClass(found)
        return self._classes[indexes]

    def _build(
        self, file: pb.FileDescriptorProto, others: dict[str, pb.FileDescriptorProto]
    ) -> Any:  # noqa: ANN401 - a descriptor
        """Add a file to the pool, behind all it imports."""
        self._added.add(file.name)
        for name in file.dependency:
            if name in self._added:
                continue
            if name in others:
                needed = pb.FileDescriptorProto()
                needed.CopyFrom(others[name])
                needed.name = name
            elif name in _KNOWN:
                needed = pb.FileDescriptorProto.FromString(_KNOWN[name])
            else:
                raise InvalidSchemaError(
                    f"invalid schema: {name[:200]!a} is imported and no reference has this name"
                )
            self._build(needed, others)
        try:
            self._pool.Add(file)
            return self._pool.FindFileByName(file.name)
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidSchemaError(f"invalid schema: {_told(error)}") from error


def read_file(text: str) -> pb.FileDescriptorProto:
    """Return the file a schema text means."""
    bare = text.strip()
    if _BASE64.fullmatch(bare):
        try:
            return pb.FileDescriptorProto.FromString(binascii.a2b_base64(bare))
        except (binascii.Error, DecodeError) as error:
            raise InvalidSchemaError(f"invalid schema: no descriptor in base64: {error}") from error
    return ProtoParser(text).parse()


def _told(error: Exception) -> str:
    text = str(error)
    return text.partition(": ")[2][:300] or text[:300]


def split_indexes(payload: bytes) -> tuple[tuple[int, ...] | None, int]:
    """Return the place of a message's type in its file, and where the message begins."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), at
    if count is None or not 0 < count <= INDEXES_MAX:
        return None, at
    found: list[int] = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index is None or index < 0:
            return None, at
        found.append(index)
    return tuple(found), at


def _zigzag(raw: bytes, at: int) -> tuple[int | None, int]:
    number = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(raw))):
        number |= (raw[place] & 0x7F) << shift
        if raw[place] < 0x80:  # noqa: PLR2004 - the bit that says more is to come
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    return None, at
