"""The schema registry from a client: ``client.schemas``."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.protocol.exchange import decode
from goqueue.wire import schema_calls as said
from goqueue.wire.packet import Operation

Text = str | bytes | Mapping[str, Any]
"""A schema as text; an object is written as JSON."""
Reference = tuple[str, str, int]
"""Name, subject and version of a schema another one uses."""


class RegisteredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    schema: str
    references: list[Reference]


class AsyncSchemas(AsyncCalls):
    """Registers, shows, compares and deletes schemas."""

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
        return await self._call(Operation.REGISTER_SCHEMA, header, said.SchemaPlace, [_raw(schema)])

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
        return (await self._call(Operation.LIST_SUBJECTS, header, said.SubjectList)).subjects

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
        return (await self._call(Operation.CHECK_SCHEMA, header, said.SchemaVerdict, raw)).messages

    async def validate(
        self, subject: str, values: Sequence[bytes], *, version: int | None = None
    ) -> dict[int, str]:
        """Return which values do not fit a schema, by their place, and why."""
        header = said.ValidateValues(subject, [len(value) for value in values], version or 0)
        found = await self._call(Operation.VALIDATE_VALUES, header, said.Misfits, values)
        return {row: f"{path or '/'}: {reason}" for row, path, reason in found.misfits}

    async def delete(
        self, subject: str, version: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Hide a version, or all of a subject; ``permanent`` removes what is hidden for good."""
        header = said.DeleteSchema(subject, version or 0, permanent)
        return (await self._call(Operation.DELETE_SCHEMA, header, said.SchemaVersions)).versions

    async def compatibility(self, subject: str | None = None) -> str:
        """Return the mode of a subject, or of the registry."""
        header = said.ConfigureSchemas(subject)
        reply = await self._call(Operation.CONFIGURE_SCHEMAS, header, said.CompatibilityState)
        return reply.compatibility

    async def set_compatibility(self, mode: str, subject: str | None = None) -> str:
        """Set the mode of a subject, or of the registry."""
        header = said.ConfigureSchemas(subject, mode)
        reply = await self._call(Operation.CONFIGURE_SCHEMAS, header, said.CompatibilityState)
        return reply.compatibility

    async def _describe(self, header: said.DescribeSchema) -> RegisteredSchema:
        answer = await self._request(Operation.DESCRIBE_SCHEMA, header)
        state = decode(answer.header, said.SchemaState)
        return RegisteredSchema(
            subject=state.subject,
            version=state.version,
            id=state.id,
            type=state.type,
            schema=bytes(answer.payload).decode(),
            references=[(one.name, one.subject, one.version) for one in state.references],
        )


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
