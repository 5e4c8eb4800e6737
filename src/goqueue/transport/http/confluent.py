"""The schema registry at the paths of Confluent's, so that its clients work unchanged."""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.errors import NotSoftDeletedError
from goqueue.base.limits import SCHEMA_BODY_BYTES_MAX
from goqueue.core.schemas.compatibility import read_compatibility
from goqueue.core.schemas.schema import SchemaType
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response
from goqueue.transport.http.schema_views import (
    detail_of,
    read_id,
    read_text,
    read_version,
    references_of,
    reply,
    told,
)
from goqueue.wire.http.schemas import (
    INVALID_MODE,
    NO_OWN_COMPATIBILITY,
    NO_OWN_MODE,
    SUBJECT_NOT_DELETED,
    CompatibilityLevel,
    CompatibilityText,
    ModeText,
    Registered,
    SchemaDetail,
    SchemaErrorReply,
    SchemaText,
    SubjectVersion,
    Verdict,
)

TAG: Final = "confluent"
READ_WRITE: Final = "READWRITE"
READ_ONLY: Final = "READONLY"
_CONFIG: Final = msgspec.json.Decoder(CompatibilityText)
_MODE: Final = msgspec.json.Decoder(ModeText)


class ConfluentRoutes:
    """The registry as Confluent's clients expect it."""

    is_confluent = True

    def __init__(self, broker: Broker) -> None:
        self._schemas = broker.schemas
        self._registry = broker.schemas.registry

    def operations(self) -> tuple[Operation, ...]:
        """Return what Confluent's clients can do."""
        subject, check = "/subjects/{subject}", "/compatibility/subjects/{subject}/versions"
        version = f"{subject}/versions/{{version}}"
        listed: tuple[tuple[str, str, Any, Any, Any], ...] = (
            ("GET", "/schemas/types", self.list_schema_types, None, list[str]),
            ("GET", "/schemas/ids/{id}/schema", self.show_text_of_id, None, "application/json"),
            ("GET", "/schemas/ids/{id}/subjects", self.list_subjects_of_id, None, list[str]),
            (
                "GET", "/schemas/ids/{id}/versions", self.list_versions_of_id, None,
                list[SubjectVersion],
            ),
            ("GET", "/subjects", self.subjects, None, list[str]),
            ("POST", subject, self.lookup, SchemaText, SchemaDetail),
            ("DELETE", subject, self.remove_subject, None, list[int]),
            ("GET", f"{subject}/versions", self.versions, None, list[int]),
            ("POST", f"{subject}/versions", self.register, SchemaText, Registered),
            ("GET", version, self.show, None, SchemaDetail),
            ("DELETE", version, self.remove_version, None, int),
            ("GET", f"{version}/schema", self.show_text, None, "application/json"),
            ("GET", f"{version}/referencedby", self.referrers, None, list[int]),
            ("POST", f"{check}/{{version}}", self.check, SchemaText, Verdict),
            ("POST", check, self.check_all, SchemaText, Verdict),
            ("GET", "/config", self.show_level, None, CompatibilityLevel),
            ("PUT", "/config", self.put_level, CompatibilityText, CompatibilityText),
            ("GET", "/config/{subject}", self.show_own_level, None, CompatibilityLevel),
            ("PUT", "/config/{subject}", self.put_own_level, CompatibilityText, CompatibilityText),
            ("DELETE", "/config/{subject}", self.drop_own_level, None, CompatibilityLevel),
            ("GET", "/mode", self.show_mode, None, ModeText),
            ("PUT", "/mode", self.put_mode, ModeText, ModeText),
            ("GET", "/mode/{subject}", self.show_own_mode, None, ModeText),
            ("PUT", "/mode/{subject}", self.put_own_mode, ModeText, ModeText),
            ("DELETE", "/mode/{subject}", self.drop_own_mode, None, ModeText),
        )  # fmt: skip
        errors = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
        return tuple(
            Operation(
                method=method, path=path, answer=answer, tag=TAG, body=body, reply=kind,
                errors=errors, failure=SchemaErrorReply, is_versioned=False,
            )
            for method, path, answer, body, kind in listed
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
        return self._reply([kind.value for kind in SchemaType])

    @told
    async def show_text_of_id(self, call: Call) -> Response:
        """Return the bare text of a schema."""
        stored = self._registry.by_id(read_id(call))
        return self._reply(detail_of(self._registry, stored, call).schema)

    @told
    async def list_subjects_of_id(self, call: Call) -> Response:
        """Return the subjects that have a schema."""
        found = self._registry.places(read_id(call), with_deleted=call.flag("deleted"))
        return self._reply(list(dict.fromkeys(one.subject for one in found)))

    @told
    async def list_versions_of_id(self, call: Call) -> Response:
        """Return the versions that are a schema."""
        found = self._registry.places(read_id(call), with_deleted=call.flag("deleted"))
        return self._reply(
            [SubjectVersion(subject=one.subject, version=one.version) for one in found]
        )

    # Subjects.

    @told
    async def subjects(self, call: Call) -> Response:
        """Return the names of all subjects."""
        prefix = call.text("subjectPrefix") or ""
        names = [one.name for one in self._registry.subjects(with_deleted=call.flag("deleted"))]
        return self._reply([name for name in names if name.startswith(prefix)])

    @told
    async def lookup(self, call: Call) -> Response:
        """Return the version of a subject that says the same as a schema."""
        schema = await read_text(call, default=SchemaType.AVRO.value)
        await self._schemas.settled()
        is_all = call.flag("deleted")
        stored = self._registry.lookup(call.path["subject"], schema, with_deleted=is_all)
        return self._reply(detail_of(self._registry, stored, call))

    @told
    async def remove_subject(self, call: Call) -> Response:
        """Delete a subject; with ``permanent`` for good."""
        is_permanent = call.flag("permanent")
        name = call.path["subject"]
        try:
            removed = await self._schemas.delete_subject(name, is_permanent=is_permanent)
        except NotSoftDeletedError as error:
            return self._refuse(HTTPStatus.NOT_FOUND, SUBJECT_NOT_DELETED, error.message)
        return self._reply(removed)

    @told
    async def versions(self, call: Call) -> Response:
        """Return the versions of a subject."""
        is_all = call.flag("deleted")
        subject = self._registry.subject(call.path["subject"], with_deleted=is_all)
        return self._reply(subject.all if is_all else subject.live)

    @told
    async def register(self, call: Call) -> Response:
        """Register a schema; without a type it is Avro."""
        schema = await read_text(call, default=SchemaType.AVRO.value)
        place = await self._schemas.register(call.path["subject"], schema)
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
        await self._schemas.settled()
        version, is_all = read_version(call), call.flag("deleted")
        stored = self._registry.get(call.path["subject"], version, with_deleted=is_all)
        return self._reply(detail_of(self._registry, stored, call))

    @told
    async def show_text(self, call: Call) -> Response:
        """Return the bare text of a version."""
        stored = self._registry.get(call.path["subject"], read_version(call))
        return self._reply(detail_of(self._registry, stored, call).schema)

    @told
    async def referrers(self, call: Call) -> Response:
        """Return the ids of the schemas that refer to a version."""
        stored = self._registry.get(call.path["subject"], read_version(call), with_deleted=True)
        return self._reply(self._registry.referrers(stored.subject, stored.version))

    @told
    async def remove_version(self, call: Call) -> Response:
        """Delete a version; with ``permanent`` for good."""
        return self._reply(
            await self._schemas.delete_version(
                call.path["subject"], read_version(call), is_permanent=call.flag("permanent")
            )
        )

    # Compatibility.

    @told
    async def check(self, call: Call) -> Response:
        """Tell whether a schema is compatible with one version."""
        version = read_version(call)
        schema = await read_text(call, default=SchemaType.AVRO.value)
        return self._verdict(call, self._registry.check(call.path["subject"], version, schema))

    @told
    async def check_all(self, call: Call) -> Response:
        """Tell whether a schema could be the next version."""
        schema = await read_text(call, default=SchemaType.AVRO.value)
        return self._verdict(call, self._registry.check_all(call.path["subject"], schema))

    def _verdict(self, call: Call, found: list[str]) -> Response:
        shown = found if call.flag("verbose") else []
        return self._reply(Verdict(is_compatible=not found, messages=shown))

    @told
    async def show_level(self, _call: Call) -> Response:
        """Return the compatibility mode of the registry."""
        return self._level(self._registry.compatibility.value)

    @told
    async def put_level(self, call: Call) -> Response:
        """Set the compatibility mode of the registry."""
        return await self._put_level(call, None)

    @told
    async def show_own_level(self, call: Call) -> Response:
        """Return the compatibility mode of a subject; with ``defaultToGlobal`` always one."""
        name = call.path["subject"]
        own = self._registry.own_compatibility(name)
        if own is None and not call.flag("defaultToGlobal"):
            text = f"subject {name} has no compatibility mode of its own"
            return self._refuse(HTTPStatus.NOT_FOUND, NO_OWN_COMPATIBILITY, text)
        return self._level((own or self._registry.compatibility).value)

    @told
    async def put_own_level(self, call: Call) -> Response:
        """Set the compatibility mode of a subject."""
        return await self._put_level(call, call.path["subject"])

    @told
    async def drop_own_level(self, call: Call) -> Response:
        """Let a subject work by the mode of the registry again."""
        name = call.path["subject"]
        mode = self._registry.compatibility_of(name)
        await self._schemas.configure(name, None)
        return self._level(mode.value)

    async def _put_level(self, call: Call, name: str | None) -> Response:
        wanted = await call.body(_CONFIG, bytes_max=SCHEMA_BODY_BYTES_MAX)
        mode = read_compatibility(wanted.compatibility)
        await self._schemas.configure(name, mode)
        return self._reply(CompatibilityText(compatibility=mode.value))

    def _level(self, mode: str) -> Response:
        return self._reply(CompatibilityLevel(compatibility_level=mode))

    # Whether the registry may change.

    @told
    async def show_mode(self, _call: Call) -> Response:
        """Return whether the registry may change: READWRITE or READONLY."""
        return self._mode(is_read_only=self._registry.is_read_only)

    @told
    async def put_mode(self, call: Call) -> Response:
        """Open or close the registry for changes."""
        return await self._put_mode(call, None)

    @told
    async def show_own_mode(self, call: Call) -> Response:
        """Return whether a subject may change."""
        name = call.path["subject"]
        own = self._registry.own_lock(name)
        if own is None and not call.flag("defaultToGlobal"):
            text = f"subject {name} has no mode of its own"
            return self._refuse(HTTPStatus.NOT_FOUND, NO_OWN_MODE, text)
        return self._mode(is_read_only=self._registry.is_closed(name))

    @told
    async def put_own_mode(self, call: Call) -> Response:
        """Open or close a subject for changes."""
        return await self._put_mode(call, call.path["subject"])

    @told
    async def drop_own_mode(self, call: Call) -> Response:
        """Let a subject follow the registry again."""
        name = call.path["subject"]
        was = self._registry.is_closed(name)
        await self._schemas.lock(name, is_read_only=None)
        return self._mode(is_read_only=was)

    async def _put_mode(self, call: Call, name: str | None) -> Response:
        wanted = await call.body(_MODE, bytes_max=SCHEMA_BODY_BYTES_MAX)
        if wanted.mode not in {READ_WRITE, READ_ONLY}:
            text = f"invalid mode: must be {READ_WRITE} or {READ_ONLY}"
            return self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, INVALID_MODE, text)
        await self._schemas.lock(name, is_read_only=wanted.mode == READ_ONLY)
        return self._mode(is_read_only=wanted.mode == READ_ONLY)

    def _mode(self, *, is_read_only: bool) -> Response:
        return self._reply(ModeText(mode=READ_ONLY if is_read_only else READ_WRITE))
