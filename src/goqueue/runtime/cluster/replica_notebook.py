"""Writing the notes of replicas: many with one sync, in a thread, while the loop goes on."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goqueue.base.ids import Offset
from goqueue.core.replication.replica import LogKey
from goqueue.storage.replica_journal import EpochNote, ReplicaJournal, ReplicaNotes


@dataclass(slots=True)
class _NotesDue:
    """Notes that are written together."""

    written: "asyncio.Future[None]"
    epochs: list[EpochNote] = field(default_factory=list)
    watermarks: dict[LogKey, Offset] = field(default_factory=dict)
    gone: list[LogKey] = field(default_factory=list)


class ReplicaNotebook:
    """The journal of the replicas of a node, written by one thread at a time."""

    def __init__(self, journal: ReplicaJournal) -> None:
        self._journal = journal
        self._open: _NotesDue | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ReplicaNotebook of {self._journal!r}>"

    def find(self, key: LogKey) -> ReplicaNotes:
        """Return what was noted of a log when this process began with it."""
        return self._journal.find(key)

    def known(self, topic: str) -> list[LogKey]:
        """Return the logs of a topic that something is noted of."""
        return [key for key in list(self._journal.logs) if key.group.topic == topic]

    async def note(
        self,
        epochs: Iterable[EpochNote] = (),
        watermarks: Mapping[LogKey, Offset] | None = None,
    ) -> None:
        """Return when epochs and high watermarks are durable, or raise with none believed.

        A log has one note under way at a time: its replica group takes one step after the other.
        """
        page = self._page()
        page.epochs += epochs
        page.watermarks |= watermarks or {}
        await asyncio.shield(page.written)

    async def forget(self, keys: Iterable[LogKey]) -> None:
        """Return when it is durable that replicas are gone."""
        page = self._page()
        if page.epochs or page.watermarks:
            # Within a page what is gone comes first.
            page = self._turn_over()
        page.gone += keys
        if page.gone:
            await asyncio.shield(page.written)

    async def close(self) -> None:
        """Write what is open and release the file."""
        while self._task is not None:
            await asyncio.wait([self._task])
        self._journal.close()

    def _page(self) -> _NotesDue:
        return self._open or self._turn_over()

    def _turn_over(self) -> _NotesDue:
        loop = asyncio.get_running_loop()
        page = self._open = _NotesDue(loop.create_future())
        # Whoever noted something is told; a page that went wrong without any is no news.
        page.written.add_done_callback(_retrieve)
        earlier = self._task
        self._task = loop.create_task(self._write(page, earlier))
        return page

    async def _write(self, page: _NotesDue, earlier: "asyncio.Task[None] | None") -> None:
        """Write a page once the one before it is written; what comes meanwhile goes along."""
        if earlier is not None:
            await asyncio.wait([earlier])
        if self._open is page:
            self._open = None
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._write_here, page)
        except Exception as error:  # noqa: BLE001 - handed to those who wait for it
            page.written.set_exception(error)
        else:
            page.written.set_result(None)
        if self._task is asyncio.current_task():
            self._task = None

    def _write_here(self, page: _NotesDue) -> None:
        self._journal.note(page.epochs, page.watermarks, gone=page.gone)


def _retrieve(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()
