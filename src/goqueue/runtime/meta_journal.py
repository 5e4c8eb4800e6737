"""The journals of what depends on no topic: which topics there are, who produces, who may."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    ShuttingDownError,
    StorageFailedError,
)
from goqueue.base.units import KiB
from goqueue.core.producers import identities
from goqueue.core.topics import catalog
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.machine import MachineHost
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.journal import Journal
from goqueue.storage.log_segments import LOST_SUFFIX

JOURNAL_PATH: Final = "meta/catalog.journal"
JOURNAL_COMPACT_BYTES: Final = 256 * KiB

Event = catalog.Event | identities.Event
_encode: Final = msgspec.msgpack.Encoder().encode

log = get_logger("goqueue.broker")


class MetaJournal:
    """The journal of the machines that no topic may hold: a file, synced at every write."""

    def __init__(
        self,
        disk: Disk,
        path: str = JOURNAL_PATH,
        *,
        event: Any = Event,  # noqa: ANN401 - a union is no type
        is_lazy: bool = False,
    ) -> None:
        self._disk, self._path = disk, path
        self._decode = msgspec.msgpack.Decoder(event).decode
        self._is_lazy = is_lazy
        """Whether there is no file before there is something to write."""
        self._is_read = False
        self._journal: Journal | None = None
        self._hosts: Sequence[MachineHost[Any]] = ()
        self._found: list[Event] = []
        self._compact_bytes = JOURNAL_COMPACT_BYTES

    def __repr__(self) -> str:
        return f"<MetaJournal: {self._journal!r}>"

    @property
    def is_open(self) -> bool:
        """Return True if it was read and takes decisions."""
        return self._journal is not None

    @contextlib.contextmanager
    def reading(self, *hosts: MachineHost[Any]) -> Iterator[None]:
        """Open the journal of some machines, which are loaded meanwhile."""
        self._hosts = hosts
        self._is_read = True
        if self._is_lazy and not self._disk.exists(self._path):
            yield
            return
        journal = Journal(self._disk, self._path)
        if journal.torn:
            log.warning(LogEvent.CATALOG_REPAIRED, path=self._path, torn_bytes=len(journal.torn))
            with contextlib.suppress(DiskFullError):
                write_atomically(self._disk, self._path + LOST_SUFFIX, journal.torn)
        try:
            self._found = [self._decode(entry) for entry in journal.records]
            yield
        except (msgspec.MsgspecError, KeyError) as error:
            raise StorageFailedError(
                f"{self._path} holds a record that this version of GoQueue does not understand"
                f" ({error}); a newer version may have written it"
            ) from error
        journal.records.clear()
        self._found = []
        self._journal = journal

    def close(self) -> None:
        """Release the file."""
        self._is_read = False
        if self._journal is not None:
            self._journal.close()

    def replay(
        self,
        key: str,  # noqa: ARG002 - events tell their machines by their kinds
        kind: Any,  # noqa: ANN401 - a union is no type
        *,
        home: str,  # noqa: ARG002
        past_damage: bool = False,  # noqa: ARG002
    ) -> list[Any]:
        """Return what happened to a machine, in order."""
        return [event for event in self._found if isinstance(event, kind)]

    def write(
        self,
        key: str,  # noqa: ARG002
        *,
        home: str,  # noqa: ARG002
        events: Sequence[msgspec.Struct],
        snapshot: Callable[[], Iterable[msgspec.Struct]],  # noqa: ARG002 - of all machines at once
    ) -> None:
        """Make events durable. Rare, so it waits for the disk in place."""
        if self._journal is None:
            if not (self._is_lazy and self._is_read):
                raise ShuttingDownError("the broker is stopping")
            self._journal = Journal(self._disk, self._path)
        # Before the append, so that a deletion stays in the journal until its files are gone.
        if self._journal.size_bytes > self._compact_bytes:
            self.compact()
        self._journal.append(map(_encode, events))

    def is_snapshot_due(self, key: str, *, home: str) -> bool:  # noqa: ARG002
        """Tell that what is written needs no snapshot before it."""
        return False

    def durable(self, home: str) -> asyncio.Future[None]:  # noqa: ARG002
        """Return a future that is done: whatever was written is durable."""
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def note_damage(self, key: str, *, home: str) -> None:
        """Never happens: a damaged journal is not opened."""
        raise AssertionError(key, home)

    def forget(self, key: str, *, home: str) -> asyncio.Future[None]:
        """Never happens: these machines are as old as the data directory."""
        raise AssertionError(key, home)

    def compact(self) -> None:
        """Replace what happened by less that means the same, if that is much less."""
        assert self._journal is not None, "started"
        records = [_encode(event) for host in self._hosts for event in host.machine.snapshot()]
        size = sum(map(len, records))
        # Looked at again when it has doubled, so that a large state is not encoded at every change.
        self._compact_bytes = max(JOURNAL_COMPACT_BYTES, 2 * size)
        if size >= self._journal.size_bytes // 2:
            return
        try:
            self._journal.rewrite(records)
        except GoQueueError as error:
            log.warning(LogEvent.CATALOG_NOT_COMPACTED, error=error.message)
