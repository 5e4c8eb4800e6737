"""The schema registry over HTTP."""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.limits import SCHEMA_BODY_BYTES_MAX
from goqueue.base.names import is_internal
from goqueue.core.schemas.compatibility import read_compatibility
from goqueue.core.schemas.judge import VALUE_SUFFIX
from goqueue.core.schemas.schema import SchemaType
from goqueue.core.schemas.subject import Subject
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response
from goqueue.transport.http.schema_views import (
    detail_of,
    read_id,
    read_text,
    read_version,
    reply,
    told,
)
from goqueue.wire.http.schemas import (
    CompatibilityText,
    Registered,
    SchemaDetail,
    SchemaErrorReply,
    SchemaFound,
    SchemaStats,
    SchemaText,
    SubjectStats,
    Verdict,
    VersionDeleted,
)

TAG: Final = "schemas"

_CONFIG: Final = msgspec.json.Decoder(CompatibilityText)
_PERMANENT: Final = Parameter(
    name="permanent", text="Remove for good what was deleted before.", kind="boolean"
)
_DELETED: Final = Parameter(name="deleted", text="Deleted ones too.", kind="boolean")


class SchemaRoutes:
    """Registers, shows, compares and deletes schemas."""

    is_confluent = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._schemas = broker.schemas
        self._registry = broker.schemas.registry

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
                reply=Registered, errors=(bad, taken, unfit), **common,
            ),
            Operation(
                method="GET", path=versions, answer=self.list_versions, reply=list[int],
                parameters=(_DELETED,), errors=(absent,), **common,
            ),
            Operation(
                method="GET", path=f"{versions}/{{version}}", answer=self.show_version,
                reply=SchemaDetail, parameters=(_DELETED,), errors=(bad, absent), **common,
            ),
            Operation(
                method="DELETE", path=f"{versions}/{{version}}", answer=self.delete_version,
                reply=VersionDeleted, parameters=(_PERMANENT,), errors=(bad, absent, taken),
                **common,
            ),
            Operation(
                method="GET", path="/schemas/subjects", answer=self.list_subjects,
                reply=list[str], parameters=(_DELETED,), **common,
            ),
            Operation(
                method="POST", path=subject, answer=self.find_schema, body=SchemaText,
                reply=SchemaFound, errors=(bad, absent, unfit), **common,
            ),
            Operation(
                method="DELETE", path=subject, answer=self.delete_subject, reply=list[int],
                parameters=(_PERMANENT,), errors=(absent, taken), **common,
            ),
            Operation(
                method="GET", path="/schemas/ids/{id}", answer=self.show_schema,
                reply=SchemaDetail, errors=(bad, absent), **common,
            ),
            Operation(
                method="POST", path=check, answer=self.check_schema, body=SchemaText,
                reply=Verdict, errors=(bad, absent, unfit), **common,
            ),
            *self._config_operations(config, common),
            Operation(
                method="GET", path="/schemas/stats", answer=self.show_schema_stats,
                reply=SchemaStats, **common,
            ),
        )  # fmt: skip

    def _config_operations(self, config: str, common: dict[str, Any]) -> tuple[Operation, ...]:
        kinds: dict[str, Any] = {"body": CompatibilityText, "reply": CompatibilityText}
        unfit = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
        one = f"{config}/{{subject}}"
        shown = {**common, "reply": CompatibilityText}
        return (
            Operation(method="GET", path=config, answer=self.show_compatibility, **shown),
            Operation(
                method="PUT", path=config, answer=self.put_compatibility, errors=unfit,
                **kinds, **common,
            ),
            Operation(method="GET", path=one, answer=self.show_subject_compatibility, **shown),
            Operation(
                method="PUT", path=one, answer=self.put_subject_compatibility, errors=unfit,
                **kinds, **common,
            ),
        )  # fmt: skip

    @told
    async def register_schema(self, call: Call) -> Response:
        """Register a schema as the next version of a subject, if it is compatible.

        A schema that says the same as one that is there is found, not added.
        """
        schema = await read_text(call, default=SchemaType.JSON.value)
        place = await self._schemas.register(call.path["subject"], schema)
        return reply(Registered(id=place.id, version=place.version))

    @told
    async def list_versions(self, call: Call) -> Response:
        """Return the versions of a subject."""
        await self._schemas.settled()
        is_all = call.flag("deleted")
        subject = self._registry.subject(call.path["subject"], with_deleted=is_all)
        return reply(subject.all if is_all else subject.live)

    @told
    async def show_version(self, call: Call) -> Response:
        """Return one version of a subject, or the ``latest``."""
        await self._schemas.settled()
        version, is_all = read_version(call), call.flag("deleted")
        stored = self._registry.get(call.path["subject"], version, with_deleted=is_all)
        return reply(detail_of(self._registry, stored, call))

    @told
    async def delete_version(self, call: Call) -> Response:
        """Delete a version: it is hidden until it is deleted once more with ``permanent``."""
        version = await self._schemas.delete_version(
            call.path["subject"], read_version(call), is_permanent=call.flag("permanent")
        )
        return reply(VersionDeleted(deleted=version))

    @told
    async def list_subjects(self, call: Call) -> Response:
        """Return the names of all subjects."""
        await self._schemas.settled()
        subjects = self._registry.subjects(with_deleted=call.flag("deleted"))
        return reply([subject.name for subject in subjects])

    @told
    async def find_schema(self, call: Call) -> Response:
        """Return the version of a subject that says the same as a schema."""
        schema = await read_text(call, default=SchemaType.JSON.value)
        await self._schemas.settled()
        stored = self._registry.lookup(call.path["subject"], schema)
        return reply(SchemaFound(subject=stored.subject, version=stored.version, id=stored.id))

    @told
    async def delete_subject(self, call: Call) -> Response:
        """Delete a subject: it is hidden until it is deleted once more with ``permanent``."""
        is_permanent = call.flag("permanent")
        return reply(
            await self._schemas.delete_subject(call.path["subject"], is_permanent=is_permanent)
        )

    @told
    async def show_schema(self, call: Call) -> Response:
        """Return a schema by its id."""
        await self._schemas.settled()
        stored = self._registry.by_id(read_id(call))
        return reply(detail_of(self._registry, stored, call))

    @told
    async def check_schema(self, call: Call) -> Response:
        """Tell whether a schema is compatible with one version of a subject, and where not."""
        version = read_version(call)
        schema = await read_text(call, default=SchemaType.JSON.value)
        found = self._registry.check(call.path["subject"], version, schema)
        return reply(Verdict(is_compatible=not found, messages=found))

    @told
    async def show_compatibility(self, _call: Call) -> Response:
        """Return the compatibility mode of subjects that have none of their own."""
        return reply(CompatibilityText(compatibility=self._registry.compatibility.value))

    @told
    async def put_compatibility(self, call: Call) -> Response:
        """Set the compatibility mode of subjects that have none of their own."""
        wanted = await call.body(_CONFIG, bytes_max=SCHEMA_BODY_BYTES_MAX)
        mode = read_compatibility(wanted.compatibility)
        await self._schemas.configure(None, mode)
        return reply(CompatibilityText(compatibility=mode.value))

    @told
    async def show_subject_compatibility(self, call: Call) -> Response:
        """Return the compatibility mode a subject works by."""
        mode = self._registry.compatibility_of(call.path["subject"])
        return reply(CompatibilityText(compatibility=mode.value))

    @told
    async def put_subject_compatibility(self, call: Call) -> Response:
        """Set the compatibility mode of a subject."""
        wanted = await call.body(_CONFIG, bytes_max=SCHEMA_BODY_BYTES_MAX)
        mode = read_compatibility(wanted.compatibility)
        await self._schemas.configure(call.path["subject"], mode)
        return reply(CompatibilityText(compatibility=mode.value))

    @told
    async def show_schema_stats(self, _call: Call) -> Response:
        """Return the registry in numbers."""
        subjects = [self._stats_of(subject) for subject in self._registry.subjects()]
        stats = SchemaStats(
            subject_count=len(subjects),
            total_schemas=len(self._registry.library),
            global_compatibility=self._registry.compatibility.value,
            validation_enabled=any(
                topic.settings.is_validated
                for name, topic in self._broker.topics.items()
                if not is_internal(name)
            ),
            cached_validators=len(self._registry.definitions),
            subjects=subjects,
        )
        return reply(stats)

    def _stats_of(self, subject: Subject) -> SubjectStats:
        latest = subject.live[-1]
        names = (subject.name, subject.name.removesuffix(VALUE_SUFFIX))
        topics = [topic for name, topic in self._broker.topics.items() if name in names]
        return SubjectStats(
            subject=subject.name,
            version_count=len(subject.live),
            latest_version=latest,
            latest_schema_id=subject.id_of(latest),
            compatibility=self._registry.compatibility_of(subject.name).value,
            validation_enabled=any(topic.settings.is_validated for topic in topics),
        )
