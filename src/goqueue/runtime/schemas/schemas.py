"""The schema registry at work: durable in ``__schemas``, asked by every transport.

Shape: host of a decider (``runtime/machine.py``). Each schema, each subject and the registry's own
state are kept as machines of their own, so that no record grows with the registry.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from goqueue.base.errors import NotCoordinatorError, ShuttingDownError
from goqueue.base.ids import SchemaId, SchemaVersion, SubjectName
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
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.machine import MachineHost, StateJournal, unawaited
from goqueue.runtime.schemas.schema_feed import History, SchemaFeed, SchemaSource

SCHEMAS_TOPIC: Final = "__schemas"
SCHEMAS_PARTITIONS: Final = 1
ROOT_KEY: Final = "registry"
SCHEMA_PREFIX: Final = "schema/"
SUBJECT_PREFIX: Final = "subject/"
HOME: Final = "schemas"

Reply = TypeVar("Reply")
log = get_logger("goqueue.schemas")


class Schemas(SchemaSource):
    """Hosts the registry. Runs in the broker's event loop."""

    def __init__(self, state: StateJournal) -> None:
        self._registry: Registry | None = None
        self._state = state
        self._is_stopped = False
        self._is_begun = False
        self.feed: SchemaFeed | None = None
        """What follows the schemas of another node, in a cluster."""

    def __repr__(self) -> str:
        return f"<Schemas: {self._registry!r}>"

    @property
    def registry(self) -> Registry:
        """The registry as this node knows it, or an error if it does not."""
        known = self._registry or self.view
        if known is None:
            raise NotCoordinatorError("the schemas are not loaded here; ask again")
        return known

    @property
    def own(self) -> Registry:
        """The registry that is decided about here, or an error if that is done elsewhere."""
        if self._registry is None:
            raise NotCoordinatorError("the schemas are not loaded here; ask again")
        return self._registry

    async def refresh(self) -> None:
        """Return when this node knows what is known where schemas are decided about."""
        if self.feed is not None:
            await self.feed.refresh()

    # Life.

    def load(self, partition: int) -> None:
        """Bring the registry back. It has one partition."""
        self._registry = Registry()
        for prefix in (ROOT_KEY, SCHEMA_PREFIX, SUBJECT_PREFIX):
            for key in self._state.keys(prefix, partition):
                self._is_begun = True
                self._host(key).load(_events_of(key))
        for schema_id in self.registry.unused():
            # Half a registration, or the last step of a removal: nobody was told of it.
            self.registry.apply(Undefined(schema_id))
        self._report_losses()
        self._tell_anew()

    def _tell_anew(self) -> None:
        self.history = None if self.feed is None else History(self.own)

    def unload(self, partition: int) -> list[asyncio.Task[None]]:
        """Let go of the registry."""
        if partition in self._state.partitions:
            self._registry = self.history = None
        return []

    def _host(self, key: str) -> MachineHost[Event]:
        return MachineHost(self._state, key, home=HOME, machine=_SchemaPart(self.registry, key))

    def _report_losses(self) -> None:
        """Say which schemas a damaged log has lost."""
        lost = {
            schema_id
            for subject in self.registry.subjects(with_deleted=True)
            for _, schema_id in subject
            if schema_id not in self.registry.library
        }
        if lost:
            log.error(LogEvent.SCHEMA_TEXT_MISSING, ids=sorted(lost))

    async def stop(self) -> None:
        """Take no more changes."""
        self._is_stopped = True
        if self.feed is not None:
            await self.feed.stop()

    async def settled(self) -> None:
        """Return when everything that can be seen is durable."""
        if self._is_begun:
            await self._state.durable(HOME)

    # What people ask for.

    async def register(self, subject: str, schema: Schema) -> Place:
        """Add a schema to a subject, or find it there; answer when it is durable."""
        decision = self.own.register(subject, schema)
        if decision.events:
            log.info(LogEvent.SCHEMA_REGISTERED, subject=subject, version=decision.reply.version)
        return await self._commit(decision)

    async def delete_version(
        self, subject: str, version: int | None, *, is_permanent: bool = False
    ) -> SchemaVersion:
        """Hide a version, or remove a hidden one for good; answer when it is durable."""
        decision = self.own.delete_version(subject, version, is_permanent=is_permanent)
        return await self._commit(decision)

    async def delete_subject(
        self, subject: str, *, is_permanent: bool = False
    ) -> list[SchemaVersion]:
        """Hide a subject, or remove a hidden one for good; answer when it is durable."""
        decision = self.own.delete_subject(subject, is_permanent=is_permanent)
        log.info(LogEvent.SUBJECT_DELETED, subject=subject, is_permanent=is_permanent)
        return await self._commit(decision)

    async def configure(self, subject: str | None, compatibility: Compatibility | None) -> None:
        """Set a compatibility mode; answer when it is durable."""
        await self._commit(self.own.configure(subject, compatibility))

    async def lock(self, subject: str | None, *, is_read_only: bool | None) -> None:
        """Close or open a subject, or all; answer when it is durable."""
        await self._commit(self.own.lock(subject, is_read_only=is_read_only))

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
            self._is_begun = True
            host = self._host(_key_of(event))
            if isinstance(event, Undefined | SubjectPurged):
                unawaited(host.forget())
                self.registry.apply(event)
            else:
                host.commit([event])
            if self.history is not None:
                self.history.add(event)
        if self.history is not None and self.history.is_long:
            self._tell_anew()
        await self.settled()
        return decision.reply


class _SchemaPart:
    """One schema, one subject, or what belongs to neither, as a machine."""

    def __init__(self, registry: Registry, key: str) -> None:
        self._registry = registry
        self._key = key

    def apply(self, event: Event) -> None:
        self._registry.apply(event)

    def snapshot(self) -> Iterable[Event]:
        if self._key.startswith(SUBJECT_PREFIX):
            name = SubjectName(self._key.removeprefix(SUBJECT_PREFIX))
            return self._registry.subject_snapshot(name)
        if self._key.startswith(SCHEMA_PREFIX):
            schema_id = SchemaId(int(self._key.removeprefix(SCHEMA_PREFIX)))
            library = self._registry.library
            return [library.snapshot(schema_id)] if schema_id in library else []
        return self._registry.root_snapshot()


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
