"""Typed columns in a task: the values of a batch decoded and put beside its other columns."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import pyarrow as pa

from goqueue.base.errors import InvalidRequestError
from goqueue.core.schemas.schema import SchemaType
from goqueue.spark.connector.broker import Broker
from goqueue.spark.connector.options import Connection, OptionsError
from goqueue.spark.connector.typed.avro_decoder import AvroDecoder, AvroReading
from goqueue.spark.connector.typed.columns import TypedColumns
from goqueue.spark.connector.typed.decoded import Decoded, Decoder, UnreadableError
from goqueue.spark.connector.typed.fields import CORRUPT, Field, wider
from goqueue.spark.connector.typed.json_decoder import JsonDecoder
from goqueue.spark.connector.typed.proto_decoder import ProtoDecoder, ProtoReading
from goqueue.spark.connector.typed.readings import JsonReading, Reading, fields_of, reading_of
from goqueue.spark.connector.typed.subjects import Registered, Subjects

SHOWN_CHARACTERS_MAX: Final = 1_000
"""So much of a value that cannot be read is shown beside the reason."""
UNKNOWN_MAX: Final = 1_000
"""Most unknown schemas a task asks for: any four bytes may look like an id."""
KNOWN_MAX: Final = 1_000
_ANOTHER_LANGUAGE: Final = "schema {} is of another language than the topic's"

Kind = TypeVar("Kind", AvroReading, ProtoReading)


class TypedRows:
    """Decodes the values of one task."""

    def __init__(self, typed: TypedColumns, names: Sequence[str], connection: Connection) -> None:
        self._typed = typed
        # Whether a row is corrupt is judged by the whole of it.
        is_whole = CORRUPT in names
        self._types = {
            name: kind for name, kind in typed.types.items() if is_whole or name in names
        }
        self._connection = connection
        self._decoders: dict[str, Decoder] = {}
        self._unknown: set[int] = set()

    def __repr__(self) -> str:
        return f"<TypedRows of {len(self._types)} columns>"

    def columns(self, values: pa.Array, topic: str) -> dict[str, pa.Array]:
        """Return the typed columns of some values of a topic."""
        decoder = self._decoders.get(topic)
        if decoder is None:
            decoder = self._decoders[topic] = self._decoder(topic)
        decoded = decoder.decode(values)
        found = dict(zip(self._types, decoded.columns, strict=True))
        found[CORRUPT] = _corrupt(values, decoded.reasons)
        return found

    def _decoder(self, topic: str) -> Decoder:
        # One that came to be after the query began is not among those known.
        registered = self._typed.topics.get(topic) or latest(self._connection, topic)
        if registered is None:
            return _Refusal(list(self._types.values()), f"topic {topic} has no schema")
        try:
            fields = self._fields(registered, topic)
            return _Laid(self._types, fields, self._decoder_of(registered, fields))
        except InvalidRequestError as error:
            return _Refusal(list(self._types.values()), error.message)

    def _fields(self, registered: Registered, topic: str) -> list[Field]:
        fields = [field for field in fields_of(registered) if field.column in self._types]
        for field in fields:
            kind = self._types[field.column]
            if wider(field.type, kind) != kind:
                raise OptionsError(
                    f"column {field.column} is {field.type} by the schema of topic {topic},"
                    f" not {kind}"
                )
        return [
            Field(name=field.name, column=field.column, type=self._types[field.column])
            for field in fields
        ]

    def _decoder_of(self, registered: Registered, fields: Sequence[Field]) -> Decoder:
        reading = reading_of(registered)
        match reading:
            case JsonReading():
                return JsonDecoder(
                    fields, reading.kinds, latest_id=registered.id, check_id=self._check_json
                )
            case AvroReading():
                return AvroDecoder(
                    fields,
                    reading,
                    latest_id=registered.id,
                    find=lambda schema_id: self._find(schema_id, AvroReading),
                )
            case ProtoReading():
                return ProtoDecoder(
                    fields,
                    reading,
                    latest_id=registered.id,
                    find=lambda schema_id: self._find(schema_id, ProtoReading),
                )

    def _find(self, schema_id: int, kind: type[Kind]) -> Kind:
        """Return what reads values of a schema that is not the latest."""
        try:
            reading: Reading = reading_of(self._registered(schema_id))
        except InvalidRequestError as error:
            self._unknown.add(schema_id)
            raise UnreadableError(error.message) from error
        if not isinstance(reading, kind):
            raise UnreadableError(_ANOTHER_LANGUAGE.format(schema_id))
        return reading

    def _check_json(self, schema_id: int) -> None:
        """Refuse an id that no JSON schema has; JSON itself is read by the latest schema."""
        try:
            registered = self._registered(schema_id)
        except InvalidRequestError as error:
            self._unknown.add(schema_id)
            raise UnreadableError(error.message) from error
        if registered.schema.type is not SchemaType.JSON:
            raise UnreadableError(_ANOTHER_LANGUAGE.format(schema_id))

    def _registered(self, schema_id: int) -> Registered:
        if schema_id in self._unknown or len(self._unknown) >= UNKNOWN_MAX:
            raise UnreadableError(f"there is no schema {schema_id}")
        return by_id(self._connection, schema_id)


class _Laid:
    """Decodes the fields of one topic and lays them out in the columns of all."""

    def __init__(
        self, types: dict[str, pa.DataType], fields: Sequence[Field], decoder: Decoder
    ) -> None:
        self._types = types
        self._places = {field.column: place for place, field in enumerate(fields)}
        self._decoder = decoder

    def decode(self, values: pa.Array) -> Decoded:
        columns, reasons = self._decoder.decode(values)
        laid = [
            columns[self._places[name]] if name in self._places else pa.nulls(len(values), kind)
            for name, kind in self._types.items()
        ]
        return Decoded(laid, reasons)


class _Refusal:
    """Decodes nothing of a topic that cannot be read, and says why in each row."""

    def __init__(self, types: Sequence[pa.DataType], reason: str) -> None:
        self._types = types
        self._reason = reason

    def decode(self, values: pa.Array) -> Decoded:
        columns = [pa.nulls(len(values), kind) for kind in self._types]
        is_null = values.is_null().to_pylist()
        return Decoded(columns, {row: self._reason for row, gone in enumerate(is_null) if not gone})


@lru_cache(KNOWN_MAX)
def by_id(connection: Connection, schema_id: int) -> Registered:
    """Return a schema by its id; a process asks once for each."""
    found = Subjects(Broker(connection)).by_id(schema_id)
    if found is None:
        raise OptionsError(f"there is no schema {schema_id}")
    return found


def latest(connection: Connection, topic: str) -> Registered | None:
    """Return the latest schema of a topic."""
    return Subjects(Broker(connection)).latest(topic)


def _corrupt(values: pa.Array, reasons: dict[int, str]) -> pa.Array:
    """Return what is wrong with each row, and the beginning of its value."""
    if not reasons:
        return pa.nulls(len(values), pa.string())
    told: list[str | None] = [None] * len(values)
    for row, reason in reasons.items():
        value: bytes = values[row].as_py()
        shown = value[: 4 * SHOWN_CHARACTERS_MAX].decode(errors="backslashreplace")
        told[row] = f"{reason}: {shown[:SHOWN_CHARACTERS_MAX]}"
    return pa.array(told, pa.string())
