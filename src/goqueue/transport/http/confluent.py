"""The schema registry at the paths of Confluent's, so that its clients work unchanged."""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import NotSoftDeletedError
from goqueue.base.limits import SCHEMA_BODY_BYTES_MAX
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response
from goqueue.transport.http.schema_views import (
    RegistryRoutes,
    read_id,
    read_version,
    reply,
    told,
)
from goqueue.wire.http.schemas import (
    AVRO,
    INVALID_MODE,
    MEDIA_TYPE,
    NO_OWN_COMPATIBILITY,
    NO_OWN_MODE,
    SUBJECT_NOT_DELETED,
    TYPES,
    CompatibilityLevel,
    CompatibilityText,
    CompatibilityWanted,
    ModeText,
    Registered,
    SchemaDetail,
    SchemaErrorReply,
    SchemaText,
    SubjectVersion,
    Verdict,
    references_of,
)

TAG: Final = "confluent"
READ_WRITE: Final = "READWRITE"
READ_ONLY: Final = "READONLY"
_MODE: Final = msgspec.json.Decoder(ModeText)


class ConfluentRoutes(RegistryRoutes):
    """The registry as Confluent's clients expect it."""

    is_confluent = True
    language = AVRO

    def operations(self) -> tuple[Operation, ...]:
        """Return what Confluent's clients can do."""
        subject, check = "/subjects/{subject}", "/compatibility/subjects/{subject}/versions"
        version = f"{subject}/versions/{{version}}"
        read, alter, docs = Deed.DESCRIBE_SCHEMA, Deed.CONFIGURE_SUBJECT, Deed.READ_DOCUMENTATION
        look, govern = Deed.DESCRIBE_REGISTRY, Deed.CONFIGURE_REGISTRY
        listed: tuple[tuple[str, str, Deed, Any, Any, Any], ...] = (
            ("GET", "/schemas/types", docs, self.list_schema_types, None, list[str]),
            ("GET", "/schemas/ids/{id}/schema", read, self.show_text_of_id, None, str),
            ("GET", "/schemas/ids/{id}/subjects", read, self.list_subjects_of_id, None, list[str]),
            (
                "GET", "/schemas/ids/{id}/versions", read, self.list_versions_of_id, None,
                list[SubjectVersion],
            ),
            ("GET", "/subjects", Deed.LIST_SUBJECTS, self.subjects, None, list[str]),
            ("POST", subject, read, self.lookup, SchemaText, SchemaDetail),
            ("DELETE", subject, Deed.DELETE_SCHEMA, self.remove_subject, None, list[int]),
            ("GET", f"{subject}/versions", read, self.versions, None, list[int]),
            (
                "POST", f"{subject}/versions", Deed.REGISTER_SCHEMA, self.register, SchemaText,
                Registered,
            ),
            ("GET", version, read, self.show, None, SchemaDetail),
            ("DELETE", version, Deed.DELETE_SCHEMA, self.remove_version, None, int),
            ("GET", f"{version}/schema", read, self.show_text, None, str),
            ("GET", f"{version}/referencedby", read, self.referrers, None, list[int]),
            ("POST", f"{check}/{{version}}", Deed.CHECK_SCHEMA, self.check, SchemaText, Verdict),
            ("POST", check, Deed.CHECK_SCHEMA, self.check_all, SchemaText, Verdict),
            ("GET", "/config", look, self.show_level, None, CompatibilityLevel),
            ("PUT", "/config", govern, self.put_level, CompatibilityWanted, CompatibilityText),
            ("GET", "/config/{subject}", read, self.show_own_level, None, CompatibilityLevel),
            (
                "PUT", "/config/{subject}", alter, self.put_own_level, CompatibilityWanted,
                CompatibilityText,
            ),
            ("DELETE", "/config/{subject}", alter, self.drop_own_level, None, CompatibilityLevel),
            ("GET", "/mode", look, self.show_mode, None, ModeText),
            ("PUT", "/mode", govern, self.put_mode, ModeText, ModeText),
            ("GET", "/mode/{subject}", read, self.show_own_mode, None, ModeText),
            ("PUT", "/mode/{subject}", alter, self.put_own_mode, ModeText, ModeText),
            ("DELETE", "/mode/{subject}", alter, self.drop_own_mode, None, ModeText),
        )  # fmt: skip
        errors = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
        return tuple(
            Operation(
                method=method, path=path, answer=answer, deed=deed, tag=TAG, body=body, reply=kind,
                errors=errors, failure=SchemaErrorReply, media_type=MEDIA_TYPE,
                is_versioned=False,
            )
            for method, path, deed, answer, body, kind in listed
        )  # fmt: skip

    def _reply(self, value: Any) -> Response:  # noqa: ANN401 - whatever msgspec can write
        return reply(value, is_confluent=True)

    def _refuse(self, status: HTTPStatus, error_code: int, text: str) -> Response:
        shown = SchemaErrorReply(
            error=text, status=status.value, code="invalid_request", error_code=error_code,
            message=text,
        )  # fmt: skip
        return reply(shown, is_confluent=True, status=status)

    # Schemas by id.

    @told
    async def list_schema_types(self, _call: Call) -> Response:
        """Return the languages schemas are written in."""
        return self._reply(TYPES)

    @told
    async def show_text_of_id(self, call: Call) -> Response:
        """Return the bare text of a schema."""
        stored = await self._schemas.by_id(call.grant, read_id(call))
        return self._reply(self._detail(call, stored).schema)

    @told
    async def list_subjects_of_id(self, call: Call) -> Response:
        """Return the subjects that have a schema."""
        found = await self._schemas.places(
            call.grant, read_id(call), with_deleted=call.flag("deleted")
        )
        return self._reply(list(dict.fromkeys(one.subject for one in found)))

    @told
    async def list_versions_of_id(self, call: Call) -> Response:
        """Return the versions that are a schema."""
        found = await self._schemas.places(
            call.grant, read_id(call), with_deleted=call.flag("deleted")
        )
        return self._reply(
            [SubjectVersion(subject=one.subject, version=one.version) for one in found]
        )

    # Subjects.

    @told
    async def subjects(self, call: Call) -> Response:
        """Return the names of all subjects."""
        prefix = call.text("subjectPrefix") or ""
        names = await self._schemas.names(call.grant, with_deleted=call.flag("deleted"))
        return self._reply([name for name in names if name.startswith(prefix)])

    @told
    async def lookup(self, call: Call) -> Response:
        """Return the version of a subject that says the same as a schema."""
        schema = await self._text(call)
        subject, is_all = call.path["subject"], call.flag("deleted")
        stored = await self._schemas.lookup(call.grant, subject, schema, with_deleted=is_all)
        return self._reply(self._detail(call, stored))

    @told
    async def remove_subject(self, call: Call) -> Response:
        """Delete a subject; with ``permanent`` for good."""
        name, is_permanent = call.path["subject"], call.flag("permanent")
        try:
            removed = await self._schemas.delete_subject(
                call.grant, name, is_permanent=is_permanent
            )
        except NotSoftDeletedError as error:
            return self._refuse(HTTPStatus.NOT_FOUND, SUBJECT_NOT_DELETED, error.message)
        return self._reply(removed)

    @told
    async def versions(self, call: Call) -> Response:
        """Return the versions of a subject."""
        subject, is_all = call.path["subject"], call.flag("deleted")
        return self._reply(await self._schemas.versions(call.grant, subject, with_deleted=is_all))

    @told
    async def register(self, call: Call) -> Response:
        """Register a schema; without a type it is Avro."""
        schema = await self._text(call)
        place = await self._schemas.add(call.grant, call.path["subject"], schema)
        return self._reply(
            {
                "id": place.id,
                "version": place.version,
                "schemaType": schema.type.value,
                "schema": schema.text,
                "references": references_of(schema),
            }
        )

    @told
    async def show(self, call: Call) -> Response:
        """Return one version, or the ``latest``."""
        subject, version, is_all = call.path["subject"], read_version(call), call.flag("deleted")
        stored = await self._schemas.get(call.grant, subject, version, with_deleted=is_all)
        return self._reply(self._detail(call, stored))

    @told
    async def show_text(self, call: Call) -> Response:
        """Return the bare text of a version."""
        stored = await self._schemas.get(call.grant, call.path["subject"], read_version(call))
        return self._reply(self._detail(call, stored).schema)

    @told
    async def referrers(self, call: Call) -> Response:
        """Return the ids of the schemas that refer to a version."""
        subject, version = call.path["subject"], read_version(call)
        return self._reply(await self._schemas.referrers(call.grant, subject, version))

    @told
    async def remove_version(self, call: Call) -> Response:
        """Delete a version; with ``permanent`` for good."""
        subject, version = call.path["subject"], read_version(call)
        return self._reply(
            await self._schemas.delete_version(
                call.grant, subject, version, is_permanent=call.flag("permanent")
            )
        )

    # Compatibility.

    @told
    async def check(self, call: Call) -> Response:
        """Return True if a schema is compatible with one version."""
        version = read_version(call)
        schema = await self._text(call)
        found = self._schemas.compare(call.grant, call.path["subject"], version, schema)
        return self._verdict(call, found)

    @told
    async def check_all(self, call: Call) -> Response:
        """Return True if a schema could be the next version."""
        schema = await self._text(call)
        found = self._schemas.compare_all(call.grant, call.path["subject"], schema)
        return self._verdict(call, found)

    def _verdict(self, call: Call, found: list[str]) -> Response:
        shown = found if call.flag("verbose") else []
        return self._reply(Verdict(is_compatible=not found, messages=shown))

    @told
    async def show_level(self, call: Call) -> Response:
        """Return the compatibility mode of the registry."""
        return self._level(self._schemas.compatibility(call.grant).value)

    @told
    async def put_level(self, call: Call) -> Response:
        """Set the compatibility mode of the registry."""
        return await self._put_level(call, None)

    @told
    async def show_own_level(self, call: Call) -> Response:
        """Return the compatibility mode of a subject; with ``defaultToGlobal`` always one."""
        name = call.path["subject"]
        own = self._schemas.own_compatibility(call.grant, name)
        if own is None and not call.flag("defaultToGlobal"):
            text = f"subject {name} has no compatibility mode of its own"
            return self._refuse(HTTPStatus.NOT_FOUND, NO_OWN_COMPATIBILITY, text)
        return self._level((own or self._schemas.compatibility(call.grant)).value)

    @told
    async def put_own_level(self, call: Call) -> Response:
        """Set the compatibility mode of a subject."""
        return await self._put_level(call, call.path["subject"])

    @told
    async def drop_own_level(self, call: Call) -> Response:
        """Let a subject work by the mode of the registry again."""
        name = call.path["subject"]
        mode = self._schemas.compatibility(call.grant, name)
        await self._schemas.set_compatibility(call.grant, name, None)
        return self._level(mode.value)

    async def _put_level(self, call: Call, name: str | None) -> Response:
        mode = await self._level_in(call)
        await self._schemas.set_compatibility(call.grant, name, mode)
        return self._reply(CompatibilityText(compatibility=mode.value))

    def _level(self, mode: str) -> Response:
        return self._reply(CompatibilityLevel(compatibility_level=mode))

    # Whether the registry may change.

    @told
    async def show_mode(self, call: Call) -> Response:
        """Return whether the registry may change: READWRITE or READONLY."""
        return self._mode(is_read_only=self._schemas.is_read_only(call.grant))

    @told
    async def put_mode(self, call: Call) -> Response:
        """Open or close the registry for changes."""
        return await self._put_mode(call, None)

    @told
    async def show_own_mode(self, call: Call) -> Response:
        """Return whether a subject may change."""
        name = call.path["subject"]
        has_own = self._schemas.has_own_lock(call.grant, name)
        if not has_own and not call.flag("defaultToGlobal"):
            text = f"subject {name} has no mode of its own"
            return self._refuse(HTTPStatus.NOT_FOUND, NO_OWN_MODE, text)
        return self._mode(is_read_only=self._schemas.is_read_only(call.grant, name))

    @told
    async def put_own_mode(self, call: Call) -> Response:
        """Open or close a subject for changes."""
        return await self._put_mode(call, call.path["subject"])

    @told
    async def drop_own_mode(self, call: Call) -> Response:
        """Let a subject follow the registry again."""
        name = call.path["subject"]
        was = self._schemas.is_read_only(call.grant, name)
        await self._schemas.lock(call.grant, name, is_read_only=None)
        return self._mode(is_read_only=was)

    async def _put_mode(self, call: Call, name: str | None) -> Response:
        wanted = await call.body(_MODE, bytes_max=SCHEMA_BODY_BYTES_MAX)
        if wanted.mode not in {READ_WRITE, READ_ONLY}:
            text = f"invalid mode: must be {READ_WRITE} or {READ_ONLY}"
            return self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, INVALID_MODE, text)
        await self._schemas.lock(call.grant, name, is_read_only=wanted.mode == READ_ONLY)
        return self._mode(is_read_only=wanted.mode == READ_ONLY)

    def _mode(self, *, is_read_only: bool) -> Response:
        return self._reply(ModeText(mode=READ_ONLY if is_read_only else READ_WRITE))
