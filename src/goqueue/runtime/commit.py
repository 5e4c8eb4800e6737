"""Group commit: one sync covers everything that arrived while the one before was running.

Appends go to the page cache at once. The committer takes all partitions that have unsynced bytes,
syncs them in a few threads, and releases every ack they held up.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError, ShuttingDownError, StorageFailedError
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
        """Return what to sync, and what to write beside it afterwards; raise if it is too late."""
        ...

    def finish_commit(
        self, commit: Commit, error: StorageFailedError | None, *, seconds: float
    ) -> None:
        """Take the outcome and how long it took."""
        ...


class Round:
    """One partition's share of a round."""

    __slots__ = ("afterwards", "commit", "error", "owner", "seconds", "size", "waiters")

    def __init__(self, owner: Committable, waiters: Sequence[asyncio.Future[None]]) -> None:
        self.owner = owner
        self.waiters = waiters
        self.size = owner.unsynced_bytes()
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
        except Exception as error:  # noqa: BLE001 - the outermost frame of a thread's work
            self.error = StorageFailedError(f"a sync failed: {error!r}")
        self.seconds = time.perf_counter() - started

    def finish(self) -> None:
        """Tell the partition and everybody who waits. In the loop."""
        self.owner.finish_commit(self.commit, self.error, seconds=self.seconds)
        _settle(self.waiters, self.error)


def _begin(owner: Committable, waiters: Sequence[asyncio.Future[None]]) -> Round | None:
    try:
        return Round(owner, waiters)
    except GoQueueError as error:
        _settle(waiters, error)
        return None


def _run_all(rounds: Sequence[Round]) -> None:
    for one in rounds:
        one.run()


class Committer:
    """Syncs partitions in rounds. With no threads every sync runs in the loop, for simulations."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "sync") if threads else None
        self._dirty: dict[Committable, list[asyncio.Future[None]]] = {}
        self._sync_seconds = 0.0
        self._is_stopped = False
        self._is_due = False
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Committer: {len(self._dirty)} dirty, sync {self._sync_seconds * 1000:.2f} ms>"

    async def stop(self) -> None:
        """Finish what is asked for and end."""
        while self._dirty or self._running is not None:
            if self._running is not None:
                await asyncio.wait([self._running])
            await asyncio.sleep(0)
        self._is_stopped = True
        if self._pool is not None:
            self._pool.shutdown()

    def mark(self, owner: Committable) -> None:
        """Ask for a sync without waiting for it."""
        self._dirty.setdefault(owner, [])
        self._wake()

    def durable(self, owner: Committable) -> asyncio.Future[None]:
        """Return a future that is done when all that ``owner`` holds now is durable."""
        if self._is_stopped:
            raise ShuttingDownError("nothing is synced any more")
        future = asyncio.get_running_loop().create_future()
        self._dirty.setdefault(owner, []).append(future)
        self._wake()
        return future

    def _wake(self) -> None:
        """Begin a round once everything that is ready now has been appended."""
        if not self._is_due and self._running is None:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._is_due = False
        dirty, self._dirty = self._dirty, {}
        begun = (_begin(owner, waiters) for owner, waiters in dirty.items())
        rounds = [one for one in begun if one is not None]
        if self._is_quick(rounds):
            _run_all(rounds)
            self._finish(rounds)
            return
        self._running = asyncio.get_running_loop().create_task(self._run_in_threads(rounds))
        self._running.add_done_callback(partial(self._finish_threads, rounds))

    def _finish_threads(self, rounds: Sequence[Round], task: asyncio.Task[None]) -> None:
        self._running = None
        if task.cancelled() or task.exception() is not None:
            # Whatever ended the threads, nobody waits for ever.
            for one in rounds:
                one.error = one.error or StorageFailedError("the syncs were cut short")
        self._finish(rounds)

    def _finish(self, rounds: Sequence[Round]) -> None:
        for one in rounds:
            self._sync_seconds += _SMOOTHING * (one.seconds - self._sync_seconds)
            one.finish()
        if self._dirty:
            self._wake()

    def _is_quick(self, rounds: Sequence[Round]) -> bool:
        if self._pool is None:
            return True
        return (
            len(rounds) == 1
            and self._sync_seconds < INLINE_SYNC_SECONDS_MAX
            and rounds[0].size <= INLINE_BYTES_MAX
        )

    async def _run_in_threads(self, rounds: Sequence[Round]) -> None:
        loop = asyncio.get_running_loop()
        width = min(self._threads, len(rounds))
        shares = [rounds[start::width] for start in range(width)]
        await asyncio.gather(*(loop.run_in_executor(self._pool, _run_all, s) for s in shares))


def _settle(waiters: Sequence[asyncio.Future[None]], error: GoQueueError | None) -> None:
    for future in waiters:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
