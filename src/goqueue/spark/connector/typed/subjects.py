"""Schemas as the broker's registry has them, with everything they refer to."""

from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.base.errors import (
    InvalidSchemaError,
    SchemaNotFoundError,
    SubjectNotFoundError,
)
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.base.limits import SCHEMA_REFERENCES_MAX
from goqueue.core.schemas.schema import Reference, Resolved, Schema, read_schema
from goqueue.core.schemas.strategy import VALUE_SUFFIX
from goqueue.spark.connector.broker import Broker
from goqueue.wire import schema_calls as said
from goqueue.wire.packet import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One version of a subject. Travels from the driver to the tasks."""

    subject: str
    version: int
    id: int
    schema: Schema
    resolved: Resolved

    @property
    def label(self) -> str:
        """Return what it is called in messages."""
        return f"subject {self.subject} version {self.version}"


class Subjects:
    """Asks for schemas."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __repr__(self) -> str:
        return f"<Subjects of {self._broker!r}>"

    def latest(self, topic: str) -> Registered | None:
        """Return the latest schema of a topic: of the subject of its name, or with ``-value``."""
        for subject in (topic, topic + VALUE_SUFFIX):
            try:
                return self._registered(said.DescribeSchema(subject))
            except SubjectNotFoundError:
                continue
        return None

    def by_id(self, schema_id: int) -> Registered | None:
        """Return a schema by its id."""
        try:
            return self._registered(said.DescribeSchema(None, 0, schema_id))
        except SchemaNotFoundError:
            return None

    def _registered(self, header: said.DescribeSchema) -> Registered:
        state, schema = self._ask(header)
        found: dict[str, Schema] = {}
        self._collect(schema.references, found, set())
        return Registered(
            subject=state.subject,
            version=state.version,
            id=state.id,
            schema=schema,
            resolved=tuple(found.items()),
        )

    def _collect(
        self, references: Iterable[Reference], found: dict[str, Schema], seen: set[str]
    ) -> None:
        """Add what is referred to; what that needs itself comes first."""
        for one in references:
            if one.name in seen:
                continue
            seen.add(one.name)
            if len(seen) > SCHEMA_REFERENCES_MAX:
                raise InvalidSchemaError(
                    f"invalid schema: more than {SCHEMA_REFERENCES_MAX} schemas are referred to"
                )
            _, schema = self._ask(said.DescribeSchema(one.subject, one.version))
            self._collect(schema.references, found, seen)
            found[one.name] = schema

    def _ask(self, header: said.DescribeSchema) -> tuple[said.SchemaState, Schema]:
        state, text = self._broker.ask_whole(Operation.DESCRIBE_SCHEMA, header, said.SchemaState)
        references = [
            Reference(
                name=one.name,
                subject=SubjectName(one.subject),
                version=SchemaVersion(one.version),
            )
            for one in state.references
        ]
        return state, read_schema(text.decode(), state.type, references)
