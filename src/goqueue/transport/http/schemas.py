"""The schema registry over HTTP."""

from http import HTTPStatus
from typing import Any, Final

from goqueue.base.deeds import Deed
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response
from goqueue.transport.http.schema_views import (
    RegistryRoutes,
    read_id,
    read_version,
    reply,
    told,
)
from goqueue.wire.http.schemas import (
    CompatibilityText,
    CompatibilityWanted,
    Registered,
    SchemaDetail,
    SchemaErrorReply,
    SchemaFound,
    SchemaStats,
    SchemaText,
    Verdict,
    VersionDeleted,
)

TAG: Final = "schemas"

_PERMANENT: Final = Parameter(
    name="permanent", text="Remove for good what was deleted before.", kind="boolean"
)
_DELETED: Final = Parameter(name="deleted", text="Deleted ones too.", kind="boolean")


class SchemaRoutes(RegistryRoutes):
    """Registers, shows, compares and deletes schemas."""

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with schemas."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        unfit, taken = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.CONFLICT
        subject, config = "/schemas/subjects/{subject}", "/schemas/config"
        versions = f"{subject}/versions"
        check = "/schemas/compatibility/subjects/{subject}/versions/{version}"
        common: dict[str, Any] = {"tag": TAG, "failure": SchemaErrorReply}
        return (
            Operation(
                method="POST", path=versions, answer=self.register_schema, body=SchemaText,
                deed=Deed.REGISTER_SCHEMA, reply=Registered, errors=(bad, taken, unfit), **common,
            ),
            Operation(
                method="GET", path=versions, answer=self.list_versions, reply=list[int],
                deed=Deed.DESCRIBE_SCHEMA, parameters=(_DELETED,), errors=(absent,), **common,
            ),
            Operation(
                method="GET", path=f"{versions}/{{version}}", answer=self.show_version,
                deed=Deed.DESCRIBE_SCHEMA,
                reply=SchemaDetail, parameters=(_DELETED,), errors=(bad, absent), **common,
            ),
            Operation(
                method="DELETE", path=f"{versions}/{{version}}", answer=self.delete_version,
                deed=Deed.DELETE_SCHEMA,
                reply=VersionDeleted, parameters=(_PERMANENT,), errors=(bad, absent, taken),
                **common,
            ),
            Operation(
                method="GET", path="/schemas/subjects", answer=self.list_subjects,
                deed=Deed.LIST_SUBJECTS, reply=list[str], parameters=(_DELETED,), **common,
            ),
            Operation(
                method="POST", path=subject, answer=self.find_schema, body=SchemaText,
                deed=Deed.DESCRIBE_SCHEMA, reply=SchemaFound, errors=(bad, absent, unfit), **common,
            ),
            Operation(
                method="DELETE", path=subject, answer=self.delete_subject, reply=list[int],
                deed=Deed.DELETE_SCHEMA, parameters=(_PERMANENT,), errors=(absent, taken), **common,
            ),
            Operation(
                method="GET", path="/schemas/ids/{id}", answer=self.show_schema,
                deed=Deed.DESCRIBE_SCHEMA, reply=SchemaDetail, errors=(bad, absent), **common,
            ),
            Operation(
                method="POST", path=check, answer=self.check_schema, body=SchemaText,
                deed=Deed.CHECK_SCHEMA, reply=Verdict, errors=(bad, absent, unfit), **common,
            ),
            *self._config_operations(config, common),
            Operation(
                method="GET", path="/schemas/stats", answer=self.show_schema_stats,
                deed=Deed.DESCRIBE_REGISTRY, reply=SchemaStats, **common,
            ),
        )  # fmt: skip

    def _config_operations(self, config: str, common: dict[str, Any]) -> tuple[Operation, ...]:
        kinds: dict[str, Any] = {"body": CompatibilityWanted, "reply": CompatibilityText}
        unfit = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
        one = f"{config}/{{subject}}"
        shown = {**common, "reply": CompatibilityText}
        return (
            Operation(
                method="GET", path=config, answer=self.show_compatibility,
                deed=Deed.DESCRIBE_REGISTRY, **shown,
            ),
            Operation(
                method="PUT", path=config, answer=self.put_compatibility, errors=unfit,
                deed=Deed.CONFIGURE_REGISTRY, **kinds, **common,
            ),
            Operation(
                method="GET", path=one, answer=self.show_subject_compatibility,
                deed=Deed.DESCRIBE_SCHEMA, **shown,
            ),
            Operation(
                method="PUT", path=one, answer=self.put_subject_compatibility, errors=unfit,
                deed=Deed.CONFIGURE_SUBJECT, **kinds, **common,
            ),
        )  # fmt: skip

    @told
    async def register_schema(self, call: Call) -> Response:
        """Register a schema as the next version of a subject, if it is compatible.

        A schema that says the same as one that is there is found, not added.
        """
        schema = await self._text(call)
        place = await self._schemas.add(call.grant, call.path["subject"], schema)
        return reply(Registered(id=place.id, version=place.version))

    @told
    async def list_versions(self, call: Call) -> Response:
        """Return the versions of a subject."""
        subject, is_all = call.path["subject"], call.flag("deleted")
        return reply(await self._schemas.versions(call.grant, subject, with_deleted=is_all))

    @told
    async def show_version(self, call: Call) -> Response:
        """Return one version of a subject, or the ``latest``."""
        subject, version, is_all = call.path["subject"], read_version(call), call.flag("deleted")
        stored = await self._schemas.get(call.grant, subject, version, with_deleted=is_all)
        return reply(self._detail(call, stored))

    @told
    async def delete_version(self, call: Call) -> Response:
        """Delete a version: it is hidden until it is deleted once more with ``permanent``."""
        subject, version, is_permanent = (
            call.path["subject"], read_version(call), call.flag("permanent")
        )  # fmt: skip
        deleted = await self._schemas.delete_version(
            call.grant, subject, version, is_permanent=is_permanent
        )
        return reply(VersionDeleted(deleted=deleted))

    @told
    async def list_subjects(self, call: Call) -> Response:
        """Return the names of all subjects."""
        return reply(await self._schemas.names(call.grant, with_deleted=call.flag("deleted")))

    @told
    async def find_schema(self, call: Call) -> Response:
        """Return the version of a subject that says the same as a schema."""
        schema = await self._text(call)
        stored = await self._schemas.lookup(call.grant, call.path["subject"], schema)
        return reply(SchemaFound(subject=stored.subject, version=stored.version, id=stored.id))

    @told
    async def delete_subject(self, call: Call) -> Response:
        """Delete a subject: it is hidden until it is deleted once more with ``permanent``."""
        subject, is_permanent = call.path["subject"], call.flag("permanent")
        return reply(
            await self._schemas.delete_subject(call.grant, subject, is_permanent=is_permanent)
        )

    @told
    async def show_schema(self, call: Call) -> Response:
        """Return a schema by its id."""
        return reply(self._detail(call, await self._schemas.by_id(call.grant, read_id(call))))

    @told
    async def check_schema(self, call: Call) -> Response:
        """Return True if a schema is compatible with one version of a subject, and where not."""
        version = read_version(call)
        schema = await self._text(call)
        found = self._schemas.compare(call.grant, call.path["subject"], version, schema)
        return reply(Verdict(is_compatible=not found, messages=found))

    @told
    async def show_compatibility(self, call: Call) -> Response:
        """Return the compatibility mode of subjects that have none of their own."""
        mode = self._schemas.compatibility(call.grant)
        return reply(CompatibilityText(compatibility=mode.value))

    @told
    async def put_compatibility(self, call: Call) -> Response:
        """Set the compatibility mode of subjects that have none of their own."""
        return await self._put(call, None)

    @told
    async def show_subject_compatibility(self, call: Call) -> Response:
        """Return the compatibility mode a subject works by."""
        mode = self._schemas.compatibility(call.grant, call.path["subject"])
        return reply(CompatibilityText(compatibility=mode.value))

    @told
    async def put_subject_compatibility(self, call: Call) -> Response:
        """Set the compatibility mode of a subject."""
        return await self._put(call, call.path["subject"])

    async def _put(self, call: Call, subject: str | None) -> Response:
        mode = await self._level_in(call)
        await self._schemas.set_compatibility(call.grant, subject, mode)
        return reply(CompatibilityText(compatibility=mode.value))

    @told
    async def show_schema_stats(self, call: Call) -> Response:
        """Return the registry in numbers."""
        return reply(self._schemas.stats(call.grant))
