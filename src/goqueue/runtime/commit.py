"""Group commit: one sync covers everything that arrived while the one before was running.

Appends go to the page cache at once. The committer takes all partitions that have unsynced bytes,
syncs them in a few threads, and releases every ack they held up.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError, ShuttingDownError, StorageFailedError
from goqueue.base.fast_path import fast_path
from goqueue.base.units import KiB
from goqueue.storage.log_commit import Commit

INLINE_BYTES_MAX: Final = 64 * KiB
INLINE_SYNC_SECONDS_MAX: Final = 0.001
"""A sync known to be this fast costs less than a thread: waking it, being woken by it, and taking
turns with it at Python's lock, which a busy loop hardly ever lets go of."""
_SMOOTHING: Final = 0.2
PATIENCE_SECONDS: Final = 0.05
"""How long a round is waited for: larger rounds cost less, a hanging one must not stop the rest."""


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


class SyncPool(Protocol):
    """Where syncs run: threads, or a simulation's idea of them."""

    def submit(self, work: Callable[[], None], /) -> object:
        """Run something soon, elsewhere."""
        ...

    def shutdown(self) -> None:
        """Return when all that was submitted is done."""
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
        """Report the outcome to the partition and all waiters. In the loop."""
        try:
            self.owner.finish_commit(self.commit, self.error, seconds=self.seconds)
        except Exception as error:  # noqa: BLE001 - nobody may wait for ever
            self.error = self.error or StorageFailedError(f"a sync did not end well: {error!r}")
        _settle(self.waiters, self.error)


def _begin(owner: Committable, waiters: Sequence[asyncio.Future[None]]) -> Round | None:
    try:
        return Round(owner, waiters)
    except GoQueueError as error:
        _settle(waiters, error)
    except Exception as error:  # noqa: BLE001 - nobody may wait for ever
        _settle(waiters, StorageFailedError(f"a sync could not begin: {error!r}"))
    return None


def _run_all(rounds: Sequence[Round]) -> None:
    for one in rounds[1:]:
        one.commit.begin()
    for one in rounds:
        one.run()


class _Job:
    """What one thread syncs."""

    __slots__ = ("_report", "rounds")

    def __init__(self, rounds: Sequence[Round], report: Callable[["_Job"], None]) -> None:
        self.rounds = rounds
        self._report = report

    def run(self) -> None:
        """Sync, and say so. In a thread."""
        try:
            _run_all(self.rounds)
        except BaseException:
            for one in self.rounds:
                one.error = one.error or StorageFailedError("the syncs were cut short")
            raise
        finally:
            self._report(self)


class Committer:
    """Syncs partitions. With no threads every sync runs in the loop, for simulations.

    All dirty partitions are synced in one round, shared out among the threads. What comes meanwhile
    waits for the next round, but not for long: while a sync hangs, the others go on without it.
    """

    def __init__(self, *, threads: int, pool: SyncPool | None = None) -> None:
        self._threads = threads
        self._pool = pool or (ThreadPoolExecutor(threads, "sync") if threads else None)
        self._dirty: dict[Committable, list[asyncio.Future[None]]] = {}
        self._busy: set[Committable] = set()
        self._jobs: set[_Job] = set()
        # Guards what threads have finished, the first of which wakes the loop for all.
        self._reports = threading.Lock()
        self._finished: list[_Job] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._sync_seconds = 0.0
        """About how long a sync takes: smoothed, or the last one in a thread if that was less."""
        self._is_stopped = False
        self._due: asyncio.Handle | None = None
        self._has_synced_here = False
        self._requests = 0
        """How many wait for the next round."""
        self._is_crowded = False
        """Whether requests come so close together that one sync for several is worth the wait."""

    def __repr__(self) -> str:
        return f"<Committer: {len(self._dirty)} dirty, sync {self._sync_seconds * 1000:.2f} ms>"

    async def stop(self) -> None:
        """Finish what is asked for and end."""
        while self._dirty or self._jobs:
            if self._jobs:
                self._ended = asyncio.Event()
                await self._ended.wait()
            await asyncio.sleep(0)
        self._is_stopped = True
        if self._pool is not None:
            self._pool.shutdown()

    def mark(self, owner: Committable) -> None:
        """Ask for a sync without waiting for it."""
        self._dirty.setdefault(owner, [])
        self._wake()

    def durable(self, owner: Committable, requests: int = 1) -> asyncio.Future[None]:
        """Return a future that is done when all that ``owner`` holds now is durable.

        ``requests`` wait for it; those that wait for other owners, too, are told of once.
        """
        if self._is_stopped:
            raise ShuttingDownError("nothing is synced any more")
        future = asyncio.get_running_loop().create_future()
        self._requests += requests
        self._dirty.setdefault(owner, []).append(future)
        self._wake()
        return future

    def is_free(self, size: int, count: int = 1) -> bool:
        """Return True if ``size`` bytes of ``count`` owners should be synced inline, at once.

        A request right behind such a sync means load: from then on requests share their syncs.
        """
        if self._has_synced_here:
            self._is_crowded = True
        is_idle = not (self._dirty or self._jobs or self._is_crowded or self._is_stopped)
        is_quick = self._sync_seconds * count < INLINE_SYNC_SECONDS_MAX
        return is_idle and is_quick and size <= INLINE_BYTES_MAX

    @fast_path(of="Committer.durable", bench="latency", test="tests/runtime/test_commit.py")
    def sync_here(self, owner: Committable) -> None:
        """Make all that ``owner`` holds durable before returning, or raise."""
        one = Round(owner, ())
        one.run()
        self._finish((one,), is_exact=True)
        if one.error is not None:
            raise one.error
        self._expect_others()

    def sync_all_here(self, owners: Sequence[Committable]) -> list[GoQueueError | None]:
        """Do the same for several owners; return what went wrong with each."""
        begun: list[Round | GoQueueError] = []
        for owner in owners:
            try:
                begun.append(Round(owner, ()))
            except GoQueueError as error:
                begun.append(error)
        rounds = [one for one in begun if isinstance(one, Round)]
        _run_all(rounds)
        self._finish(rounds, is_exact=True)
        self._expect_others()
        return [one.error if isinstance(one, Round) else one for one in begun]

    def _expect_others(self) -> None:
        # Whoever else is ready now is seen before the second of these runs: a task of its own may
        # have to begin first.
        self._has_synced_here = True
        call_soon = asyncio.get_running_loop().call_soon
        call_soon(call_soon, self._look_again)

    def _look_again(self) -> None:
        self._has_synced_here = False

    def _wake(self) -> None:
        """Begin to sync once everything that is ready now has been appended."""
        if self._due is not None:
            return
        loop = asyncio.get_running_loop()
        if self._jobs:
            self._due = loop.call_later(PATIENCE_SECONDS, self._begin_shares)
        else:
            self._due = loop.call_soon(self._let_others_in)

    def _let_others_in(self) -> None:
        """Look at what has arrived meanwhile, once: a request that is there shares the sync."""
        self._due = asyncio.get_running_loop().call_soon(self._begin_shares)

    def _begin_shares(self) -> None:
        self._due = None
        ready = [owner for owner in self._dirty if owner not in self._busy]
        self._is_crowded = self._requests > 1
        self._requests = 0
        if self._pool is not None and self._is_quick(ready):
            self._run_here(self._begin_all(ready))
            return
        width = min(max(self._threads, 1) - len(self._jobs), len(ready))
        for start in range(width):
            rounds = self._begin_all(ready[start::width])
            if self._pool is None:
                self._run_here(rounds)
            else:
                self._run_in_thread(rounds)

    def _begin_all(self, owners: Sequence[Committable]) -> list[Round]:
        begun = [_begin(owner, self._dirty.pop(owner)) for owner in owners]
        return [one for one in begun if one is not None]

    def _is_quick(self, ready: Sequence[Committable]) -> bool:
        """Return True if syncs, one after the other, cost less than to have threads do them."""
        if self._sync_seconds * len(ready) >= INLINE_SYNC_SECONDS_MAX:
            return False
        return sum([owner.unsynced_bytes() for owner in ready]) <= INLINE_BYTES_MAX

    def _run_here(self, rounds: Sequence[Round]) -> None:
        try:
            _run_all(rounds)
        except BaseException as failure:
            # Whatever ends the syncs, every waiter gets an outcome.
            for one in rounds:
                _settle(one.waiters, StorageFailedError(f"the syncs were cut short: {failure!r}"))
            raise
        self._finish(rounds, is_exact=True)

    def _run_in_thread(self, rounds: Sequence[Round]) -> None:
        assert self._pool is not None, "asked for threads"
        self._busy.update(one.owner for one in rounds)
        self._loop = asyncio.get_running_loop()
        job = _Job(rounds, self._report)
        self._jobs.add(job)
        self._pool.submit(job.run)

    def _report(self, job: _Job) -> None:
        """Take note that a job is over. In its thread; those that end close together wake once."""
        assert self._loop is not None, "begun in one"
        with self._reports:
            is_first = not self._finished
            self._finished.append(job)
        if is_first:
            with contextlib.suppress(RuntimeError):
                # The loop may be closed: there are no waiters then.
                self._loop.call_soon_threadsafe(self._finish_jobs)

    def _finish_jobs(self) -> None:
        with self._reports:
            jobs, self._finished = self._finished, []
        for job in jobs:
            self._jobs.discard(job)
            self._busy.difference_update(one.owner for one in job.rounds)
        for job in jobs:
            self._finish(job.rounds, is_exact=False)
        if self._dirty and not self._jobs and self._due is not None:
            self._due.cancel()
            self._due = None
        if self._dirty:
            self._wake()
        if self._ended is not None:
            self._ended.set()

    def _finish(self, rounds: Sequence[Round], *, is_exact: bool) -> None:
        for one in rounds:
            self._learn(one.seconds, is_exact=is_exact)
            one.finish()

    def _learn(self, seconds: float, *, is_exact: bool) -> None:
        """Take note of how long a sync took, in a thread perhaps less than it seems.

        There a sync seems to last until the loop lets the thread go on. Were all of these believed,
        a loop that is busy would take every disk for a slow one, and never find out.
        """
        if not is_exact and seconds < self._sync_seconds:
            self._sync_seconds = seconds
        self._sync_seconds += _SMOOTHING * (seconds - self._sync_seconds)


def _settle(waiters: Sequence[asyncio.Future[None]], error: GoQueueError | None) -> None:
    for future in waiters:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
