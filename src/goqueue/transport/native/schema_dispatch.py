"""Native operations about schemas."""

from collections.abc import Callable, Iterable
from typing import Any

from goqueue.base.errors import InvalidRequestError, InvalidSchemaError
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.core.schemas.compatibility import read_compatibility
from goqueue.core.schemas.schema import Reference, Schema, read_schema
from goqueue.core.schemas.subject import Subject
from goqueue.runtime.broker import Broker
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls
from goqueue.wire import schema_calls as said
from goqueue.wire.packet import Operation


class SchemaOperations:
    """Translates requests into calls on the schema registry."""

    def __init__(self, broker: Broker) -> None:
        self._schemas = broker.schemas
        self._registry = broker.schemas.registry

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add every operation to a dispatch."""
        add(Operation.REGISTER_SCHEMA, said.RegisterSchema, self._register)
        add(Operation.DESCRIBE_SCHEMA, said.DescribeSchema, self._describe)
        add(Operation.LIST_SUBJECTS, said.ListSubjects, self._list)
        add(Operation.CHECK_SCHEMA, said.CheckSchema, self._check)
        add(Operation.DELETE_SCHEMA, said.DeleteSchema, self._delete)
        add(Operation.CONFIGURE_SCHEMAS, said.ConfigureSchemas, self._configure)
        add(Operation.VALIDATE_VALUES, said.ValidateValues, self._validate)

    async def _register(self, call: said.RegisterSchema, beside: Beside) -> Reply:
        schema = _schema(call.type, call.references, beside)
        place = await self._schemas.register(call.subject, schema)
        return Reply(said.SchemaPlace(place.id, place.version))

    async def _describe(self, call: said.DescribeSchema, _: Beside) -> Reply:
        await self._schemas.settled()
        if call.subject is None:
            stored = self._registry.by_id(call.id)
        else:
            stored = self._registry.get(call.subject, call.version or None)
        references = [
            said.SchemaReference(one.name, one.subject, one.version)
            for one in stored.schema.references
        ]
        state = said.SchemaState(
            stored.subject, stored.version, stored.id, stored.schema.type.value, references
        )
        return Reply(state, [stored.schema.text.encode()])

    async def _list(self, call: said.ListSubjects, _: Beside) -> Reply:
        await self._schemas.settled()
        if call.subject is not None:
            found = [self._registry.subject(call.subject, with_deleted=call.with_deleted)]
        else:
            found = self._registry.subjects(with_deleted=call.with_deleted)
        return Reply(
            said.SubjectList([self._state(one, with_deleted=call.with_deleted) for one in found])
        )

    def _state(self, subject: Subject, *, with_deleted: bool) -> said.SubjectState:
        versions = subject.all if with_deleted else subject.live
        latest = subject.id_of(versions[-1], with_deleted=with_deleted)
        return said.SubjectState(
            subject.name,
            list(versions),
            latest,
            self._registry.library.get(latest).type.value,
            self._registry.compatibility_of(subject.name).value,
        )

    async def _check(self, call: said.CheckSchema, beside: Beside) -> Reply:
        schema = _schema(call.type, call.references, beside)
        if call.version:
            found = self._registry.check(call.subject, call.version, schema)
        else:
            found = self._registry.check_all(call.subject, schema)
        return Reply(said.SchemaVerdict(found))

    async def _delete(self, call: said.DeleteSchema, _: Beside) -> Reply:
        if call.version:
            one = await self._schemas.delete_version(
                call.subject, call.version, is_permanent=call.permanent
            )
            return Reply(said.SchemaVersions([one]))
        gone = await self._schemas.delete_subject(call.subject, is_permanent=call.permanent)
        return Reply(said.SchemaVersions(list(gone)))

    async def _configure(self, call: said.ConfigureSchemas, _: Beside) -> Reply:
        if call.compatibility is not None:
            mode = read_compatibility(call.compatibility)
            await self._schemas.configure(call.subject, mode)
        if call.subject is None:
            return Reply(said.CompatibilityState(self._registry.compatibility.value))
        return Reply(said.CompatibilityState(self._registry.compatibility_of(call.subject).value))

    async def _validate(self, call: said.ValidateValues, beside: Beside) -> Reply:
        if sum(call.sizes) != len(beside.payload):
            raise InvalidRequestError("sizes: they do not add up to the payload")
        values: list[bytes] = []
        position = 0
        for size in call.sizes:
            values.append(bytes(beside.payload[position : position + size]))
            position += size
        found = self._schemas.try_on(call.subject, call.version or None, values)
        told = [(row, misfit.path, misfit.reason) for row, misfit in found.items()]
        return Reply(said.Misfits(told[: said.MISFITS_MAX]))


def _schema(kind: str, references: Iterable[said.SchemaReference], beside: Beside) -> Schema:
    try:
        text = bytes(beside.payload).decode()
    except UnicodeDecodeError as error:
        raise InvalidSchemaError("invalid schema: it is not UTF-8") from error
    used = [
        Reference(
            name=one.name, subject=SubjectName(one.subject), version=SchemaVersion(one.version)
        )
        for one in references
    ]
    return read_schema(text, kind, used)
