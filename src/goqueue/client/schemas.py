"""The schema registry from a client: ``client.schemas``."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.client.link import Answer, Link, decode, retry
from goqueue.client.loop_thread import LoopThread
from goqueue.wire import schema_calls as said
from goqueue.wire.calls import Call
from goqueue.wire.packet import Operation

Text = str | bytes | Mapping[str, Any]
"""A schema as text; an object is written as JSON."""
Reference = tuple[str, str, int]
"""Name, subject and version of a schema another one uses."""
Header = TypeVar("Header", bound=Call)


class RegisteredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    schema: str
    references: list[Reference]


class AsyncSchemas:
    """Registers, shows, compares and deletes schemas."""

    def __init__(self, link: Link, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<AsyncSchemas on {self._link!r}>"

    async def register(
        self,
        subject: str,
        schema: Text,
        *,
        type: str = "JSON",  # noqa: A002
        references: Sequence[Reference] = (),
    ) -> said.SchemaPlace:
        """Add a schema to a subject, if it is compatible, or find it there."""
        header = said.RegisterSchema(subject, type, _references(references))
        # Safe to repeat: what is there already is found.
        return await self._ask(Operation.REGISTER_SCHEMA, header, said.SchemaPlace, [_raw(schema)])

    async def get(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, or the latest."""
        return await self._describe(said.DescribeSchema(subject, version or 0))

    async def by_id(self, id: int) -> RegisteredSchema:  # noqa: A002
        """Return a schema by its id."""
        return await self._describe(said.DescribeSchema(None, 0, id))

    async def subjects(
        self, subject: str | None = None, *, deleted: bool = False
    ) -> list[said.SubjectState]:
        """Return the subjects, or one of them, with their versions."""
        header = said.ListSubjects(subject, deleted)
        return (await self._ask(Operation.LIST_SUBJECTS, header, said.SubjectList)).subjects

    async def check(
        self,
        subject: str,
        schema: Text,
        *,
        type: str = "JSON",  # noqa: A002
        references: Sequence[Reference] = (),
        version: int | None = None,
    ) -> list[str]:
        """Return why a schema may not follow; an empty list means that it may."""
        header = said.CheckSchema(subject, type, _references(references), version or 0)
        raw = [_raw(schema)]
        return (await self._ask(Operation.CHECK_SCHEMA, header, said.SchemaVerdict, raw)).messages

    async def validate(
        self, subject: str, values: Sequence[bytes], *, version: int | None = None
    ) -> dict[int, str]:
        """Return which values do not fit a schema, by their place, and why."""
        header = said.ValidateValues(subject, [len(value) for value in values], version or 0)
        found = await self._ask(Operation.VALIDATE_VALUES, header, said.Misfits, values)
        return {row: f"{path or '/'}: {reason}" for row, path, reason in found.misfits}

    async def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Hide a version, or all of a subject; ``permanent`` removes what is hidden for good."""
        header = said.DeleteSchema(subject, version or 0, permanent)
        return (await self._ask(Operation.DELETE_SCHEMA, header, said.SchemaVersions)).versions

    async def compatibility(self, subject: str | None = None) -> str:
        """Return the mode of a subject, or of the registry."""
        header = said.ConfigureSchemas(subject)
        reply = await self._ask(Operation.CONFIGURE_SCHEMAS, header, said.CompatibilityState)
        return reply.compatibility

    async def set_compatibility(self, mode: str, subject: str | None = None) -> str:
        """Set the mode of a subject, or of the registry."""
        header = said.ConfigureSchemas(subject, mode)
        reply = await self._ask(Operation.CONFIGURE_SCHEMAS, header, said.CompatibilityState)
        return reply.compatibility

    async def _describe(self, header: said.DescribeSchema) -> RegisteredSchema:
        answer = await self._request(Operation.DESCRIBE_SCHEMA, header, ())
        state = decode(answer.header, said.SchemaState)
        return RegisteredSchema(
            subject=state.subject,
            version=state.version,
            id=state.id,
            type=state.type,
            schema=bytes(answer.payload).decode(),
            references=[(one.name, one.subject, one.version) for one in state.references],
        )

    async def _ask(
        self, operation: Operation, header: Call, kind: type[Header], payload: Sequence[bytes] = ()
    ) -> Header:
        return decode((await self._request(operation, header, payload)).header, kind)

    async def _request(
        self, operation: Operation, header: Call, payload: Sequence[bytes]
    ) -> Answer:
        answer: Answer = await retry(
            lambda: self._link.request(operation, header, payload), timeout_s=self._timeout_s
        )
        return answer


class Schemas:
    """The same for ordinary code."""

    def __init__(self, schemas: AsyncSchemas, thread: LoopThread) -> None:
        self._schemas = schemas
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Schemas of {self._schemas!r}>"

    def register(
        self,
        subject: str,
        schema: Text,
        *,
        type: str = "JSON",  # noqa: A002
        references: Sequence[Reference] = (),
    ) -> said.SchemaPlace:
        """Add a schema to a subject, if it is compatible, or find it there."""
        return self._thread.run(
            self._schemas.register(subject, schema, type=type, references=references)
        )

    def get(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject, or the latest."""
        return self._thread.run(self._schemas.get(subject, version))

    def by_id(self, id: int) -> RegisteredSchema:  # noqa: A002
        """Return a schema by its id."""
        return self._thread.run(self._schemas.by_id(id))

    def subjects(
        self, subject: str | None = None, *, deleted: bool = False
    ) -> list[said.SubjectState]:
        """Return the subjects, or one of them, with their versions."""
        return self._thread.run(self._schemas.subjects(subject, deleted=deleted))

    def check(
        self,
        subject: str,
        schema: Text,
        *,
        type: str = "JSON",  # noqa: A002
        references: Sequence[Reference] = (),
        version: int | None = None,
    ) -> list[str]:
        """Return why a schema may not follow; an empty list means that it may."""
        return self._thread.run(
            self._schemas.check(subject, schema, type=type, references=references, version=version)
        )

    def validate(
        self, subject: str, values: Sequence[bytes], *, version: int | None = None
    ) -> dict[int, str]:
        """Return which values do not fit a schema, by their place, and why."""
        return self._thread.run(self._schemas.validate(subject, values, version=version))

    def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Hide a version, or all of a subject; ``permanent`` removes what is hidden for good."""
        return self._thread.run(self._schemas.delete(subject, version, permanent=permanent))

    def compatibility(self, subject: str | None = None) -> str:
        """Return the mode of a subject, or of the registry."""
        return self._thread.run(self._schemas.compatibility(subject))

    def set_compatibility(self, mode: str, subject: str | None = None) -> str:
        """Set the mode of a subject, or of the registry."""
        return self._thread.run(self._schemas.set_compatibility(mode, subject))


def _references(references: Sequence[Reference]) -> list[said.SchemaReference]:
    return [said.SchemaReference(name, subject, version) for name, subject, version in references]


def _raw(schema: Text) -> bytes:
    if isinstance(schema, str):
        return schema.encode()
    if isinstance(schema, bytes):
        return schema
    try:
        return json.dumps(schema).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"schema: {error}") from error
