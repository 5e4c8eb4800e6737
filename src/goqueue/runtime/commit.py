"""Group commit: one sync covers everything that arrived while the one before was running.

Appends go to the page cache at once. The committer takes all partitions that have unsynced bytes,
syncs them in a few threads, and releases every ack they held up.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.base.units import KiB
from goqueue.storage.partition_log import Commit

INLINE_BYTES_MAX: Final = 64 * KiB
INLINE_SYNC_SECONDS_MAX: Final = 0.0005
"""A sync known to be this fast costs less than waking a thread and being woken by it."""
_SMOOTHING: Final = 0.2


class Committable(Protocol):
    """What has bytes to sync."""

    def unsynced_bytes(self) -> int:
        """Return how many bytes a sync would cover."""
        ...

    def begin_commit(self) -> tuple[Commit, Callable[[], None]]:
        """Return what to sync, and what to write beside it afterwards."""
        ...

    def finish_commit(self, commit: Commit, error: StorageFailedError | None) -> None:
        """Take the outcome."""
        ...


class Round:
    """One partition's share of a round."""

    __slots__ = ("afterwards", "commit", "error", "owner", "seconds")

    def __init__(self, owner: Committable) -> None:
        self.owner = owner
        self.commit, self.afterwards = owner.begin_commit()
        self.error: StorageFailedError | None = None
        self.seconds = 0.0

    def run(self) -> None:
        """Sync. Any thread."""
        started = time.perf_counter()
        try:
            self.commit.run()
            self.afterwards()
        except StorageFailedError as error:
            self.error = error
        except (GoQueueError, OSError) as error:
            self.error = StorageFailedError(str(error))
        self.seconds = time.perf_counter() - started


def _run_all(rounds: Sequence[Round]) -> None:
    for one in rounds:
        one.run()


class Committer:
    """Syncs partitions in rounds. With no threads every sync runs in the loop, for simulations."""

    def __init__(self, *, threads: int, observe: Callable[[float], None] = lambda _: None) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "sync") if threads else None
        self._observe = observe
        self._dirty: dict[Committable, list[asyncio.Future[None]]] = {}
        self._wake = asyncio.Event()
        self._sync_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Committer: {len(self._dirty)} dirty, sync {self._sync_seconds * 1000:.2f} ms>"

    def start(self) -> None:
        """Begin taking rounds."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="committer")

    async def stop(self) -> None:
        """Finish what is asked for and end."""
        if self._task is not None:
            while self._dirty:
                await self._round()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._pool is not None:
            self._pool.shutdown()

    def mark(self, owner: Committable) -> None:
        """Ask for a sync without waiting for it."""
        self._dirty.setdefault(owner, [])
        self._wake.set()

    def durable(self, owner: Committable) -> asyncio.Future[None]:
        """Return a future that is done when all that ``owner`` holds now is durable."""
        future = asyncio.get_running_loop().create_future()
        self._dirty.setdefault(owner, []).append(future)
        self._wake.set()
        return future

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._dirty:
                await self._round()

    async def _round(self) -> None:
        dirty, self._dirty = self._dirty, {}
        rounds = [Round(owner) for owner in dirty]
        if self._is_quick(rounds):
            _run_all(rounds)
        else:
            await self._run_in_threads(rounds)
        for one in rounds:
            self._note(one.seconds)
            one.owner.finish_commit(one.commit, one.error)
            for future in dirty[one.owner]:
                _settle(future, one.error)

    def _is_quick(self, rounds: Sequence[Round]) -> bool:
        if self._pool is None:
            return True
        return (
            len(rounds) == 1
            and self._sync_seconds < INLINE_SYNC_SECONDS_MAX
            and rounds[0].owner.unsynced_bytes() <= INLINE_BYTES_MAX
        )

    async def _run_in_threads(self, rounds: Sequence[Round]) -> None:
        loop = asyncio.get_running_loop()
        width = min(self._threads, len(rounds))
        shares = [rounds[start::width] for start in range(width)]
        await asyncio.gather(*(loop.run_in_executor(self._pool, _run_all, s) for s in shares))

    def _note(self, seconds: float) -> None:
        self._sync_seconds += _SMOOTHING * (seconds - self._sync_seconds)
        self._observe(seconds)


def _settle(future: asyncio.Future[None], error: StorageFailedError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
