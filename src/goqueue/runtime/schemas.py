"""The schema registry at work: durable in ``__schemas``, asked by every transport.

Shape: host of a decider. Each schema, each subject and the registry's own state are machines of a
log of their own (``state_log.py``), so that no record grows with the registry.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.core.decision import Decision
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.definition import Misfit
from goqueue.core.schemas.events import (
    Configured,
    Defined,
    Event,
    IdTaken,
    Locked,
    RootEvent,
    SchemaEvent,
    SubjectEvent,
    SubjectPurged,
    Undefined,
)
from goqueue.core.schemas.registry import Place, Registry
from goqueue.core.schemas.schema import Schema
from goqueue.observability.logging import get_logger
from goqueue.runtime.state_log import StateLog

SCHEMAS_TOPIC: Final = "__schemas"
SCHEMAS_PARTITIONS: Final = 1
ROOT_KEY: Final = "registry"
SCHEMA_PREFIX: Final = "schema/"
SUBJECT_PREFIX: Final = "subject/"
HOME: Final = "schemas"

Reply = TypeVar("Reply")
log = get_logger("goqueue.schemas")


class Schemas:
    """Hosts the registry. Lives in the broker's event loop."""

    def __init__(self, state: StateLog) -> None:
        self.registry = Registry()
        self._state = state
        self._is_stopped = False
        self._is_begun = False

    def __repr__(self) -> str:
        return f"<Schemas: {self.registry!r}>"

    # Life.

    def recover(self) -> None:
        """Bring back the registry of an earlier life."""
        for key in (
            *self._state.recovered(ROOT_KEY),
            *self._state.recovered(SCHEMA_PREFIX),
            *self._state.recovered(SUBJECT_PREFIX),
        ):
            self._is_begun = True
            events: list[Any] = self._state.replay(key, _events_of(key))
            for event in events:
                self.registry.apply(event)
        for schema_id in self.registry.unused():
            # Half a registration, or the last step of a removal: nobody was told of it.
            self.registry.apply(Undefined(schema_id))
        self._report_losses()

    def _report_losses(self) -> None:
        """Say which schemas a damaged log has lost."""
        lost = {
            schema_id
            for subject in self.registry.subjects(with_deleted=True)
            for _, schema_id in subject
            if schema_id not in self.registry.library
        }
        if lost:
            log.error("schemas are damaged: their texts are missing", ids=sorted(lost))

    def stop(self) -> None:
        """Take no more changes."""
        self._is_stopped = True

    async def settled(self) -> None:
        """Return when everything that can be seen is durable."""
        if self._is_begun:
            await self._state.durable(HOME)

    # What people ask for.

    async def register(self, subject: str, schema: Schema) -> Place:
        """Add a schema to a subject, or find it there; answer when it is durable."""
        decision = self.registry.register(subject, schema)
        if decision.events:
            log.info("schema registered", subject=subject, version=decision.reply.version)
        return await self._commit(decision)

    async def delete_version(
        self, subject: str, version: int | None, *, is_permanent: bool = False
    ) -> SchemaVersion:
        """Hide a version, or remove a hidden one for good; answer when it is durable."""
        decision = self.registry.delete_version(subject, version, is_permanent=is_permanent)
        return await self._commit(decision)

    async def delete_subject(
        self, subject: str, *, is_permanent: bool = False
    ) -> list[SchemaVersion]:
        """Hide a subject, or remove a hidden one for good; answer when it is durable."""
        decision = self.registry.delete_subject(subject, is_permanent=is_permanent)
        log.info("subject deleted", subject=subject, is_permanent=is_permanent)
        return await self._commit(decision)

    async def configure(self, subject: str | None, compatibility: Compatibility | None) -> None:
        """Set a compatibility mode; answer when it is durable."""
        await self._commit(self.registry.configure(subject, compatibility))

    async def lock(self, subject: str | None, *, is_read_only: bool | None) -> None:
        """Close or open a subject, or all; answer when it is durable."""
        await self._commit(self.registry.lock(subject, is_read_only=is_read_only))

    def try_on(
        self, subject: str, version: int | None, values: Sequence[bytes]
    ) -> dict[int, Misfit]:
        """Return which values do not fit a version of a subject, by their place."""
        stored = self.registry.get(subject, version)
        return self.registry.definition(stored.id).misfits(values)

    # The log.

    async def _commit(self, decision: Decision[Event, Reply]) -> Reply:
        """Write and apply in one step, in an order a crash may cut anywhere; then wait."""
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        for event in decision.events:
            self._write(event)
            self.registry.apply(event)
        await self.settled()
        return decision.reply

    def _write(self, event: Event) -> None:
        key = _key_of(event)
        self._is_begun = True
        if isinstance(event, Undefined | SubjectPurged):
            self._state.forget(key, home=HOME).add_done_callback(_note)
            return
        self._state.write(key, home=HOME, events=[event], snapshot=lambda: self._snapshot(event))

    def _snapshot(self, event: Event) -> Iterable[Event]:
        match event:
            case Defined(id=schema_id) | Undefined(id=schema_id):
                known = schema_id in self.registry.library
                return [self.registry.library.snapshot(schema_id)] if known else []
            case IdTaken() | Configured(subject=None) | Locked(subject=None):
                return self.registry.root_snapshot()
            case _:
                assert event.subject is not None, "what belongs to no subject is told above"
                return self.registry.subject_snapshot(event.subject)


def _note(durable: Any) -> None:  # noqa: ANN401 - a future of nothing
    """Look at a failure, so that it is not reported as forgotten: whoever waits is told of it."""
    if not durable.cancelled() and isinstance(durable.exception(), GoQueueError):
        log.debug("a removal was not synced")


def _key_of(event: Event) -> str:
    match event:
        case Defined(id=schema_id) | Undefined(id=schema_id):
            return f"{SCHEMA_PREFIX}{schema_id}"
        case IdTaken() | Configured(subject=None) | Locked(subject=None):
            return ROOT_KEY
        case _:
            return f"{SUBJECT_PREFIX}{SubjectName(event.subject or '')}"


def _events_of(key: str) -> Any:  # noqa: ANN401 - a union is no type
    if key.startswith(SCHEMA_PREFIX):
        return SchemaEvent
    return SubjectEvent if key.startswith(SUBJECT_PREFIX) else RootEvent
