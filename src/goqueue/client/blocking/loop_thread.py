"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine
from logging import getLogger
from typing import Any, Final, Generic, TypeVar

import uvloop

from goqueue.base.errors import ClosedError, DeadlineExceededError, GoQueueError
from goqueue.client.blocking.brief import brief

Result = TypeVar("Result")

LOOK_SECONDS: Final = 1.0
"""How often a thread that waits for the loop looks whether there is a loop still."""
TURNS_OF_CLOSING: Final = 3
"""Turns of the loop until a connection that is given up is closed: TLS, transport, handle."""
STOP_SECONDS_MAX: Final = 60.0
"""How long the loop may take to end; whatever keeps it busy for longer is not ours."""

log = getLogger("goqueue.client")


class _Awaited(Generic[Result]):
    """A coroutine another thread waits for; half the work of a future that many may wait for."""

    __slots__ = ("_coroutine", "_done", "_loop", "_task")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._task: asyncio.Task[Result] | None = None
        # Held until it is done: who takes it has waited for that.
        self._done = threading.Lock()
        self._done.acquire()

    def start(self) -> None:
        """Begin, in the loop."""
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def _finish(self, _: "asyncio.Task[Result]") -> None:
        self._done.release()

    def wait(self, timeout_s: float | None, is_alive: Callable[[], bool]) -> bool:
        """Return True when it is done, False when the time is over or nobody is at work on it."""
        if timeout_s is not None and timeout_s <= LOOK_SECONDS:
            return self._done.acquire(timeout=max(timeout_s, 0))
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._done.acquire(timeout=LOOK_SECONDS):
            if not is_alive() or (deadline_s is not None and time.monotonic() >= deadline_s):
                return self._done.acquire(blocking=False)
        return True

    def cancel(self) -> None:
        """Cancel all waits for it, in the loop."""
        assert self._task is not None, "begun, since calls are made in their order"
        self._task.cancel()

    def result(self) -> Result:
        """Return what it returned, or raise what it raised."""
        assert self._task is not None, "done"
        try:
            return self._task.result()
        except GoQueueError as error:
            raise brief(error) from None
        except asyncio.CancelledError as error:
            # Nobody cancels the thread that has waited.
            raise concurrent.futures.CancelledError from error


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        assert self._thread.ident is not None, "started"
        self.ident: int = self._thread.ident

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_stopped:
            try:
                self.loop.run_forever()
            except BaseException:
                # A callback of the caller's may call sys.exit, which ends a loop: without one
                # everybody who waits for an answer would wait for ever.
                log.exception("the client's event loop was interrupted; it goes on")

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine and return a future that threads can wait for."""
        if self._is_stopped:
            coroutine.close()
            raise ClosedError("the client was closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(
        self,
        coroutine: Coroutine[Any, Any, Result],
        timeout_s: float | None = None,
        *,
        what: str = "an answer",
    ) -> Result:
        """Run a coroutine and wait for its result; raise TimeoutError if that takes too long.

        Without a time the coroutine has a limit of its own.
        """
        if self._is_stopped:
            coroutine.close()
            raise ClosedError("the client was closed")
        awaited = _Awaited(coroutine, self.loop)
        self.loop.call_soon_threadsafe(awaited.start)
        try:
            is_done = awaited.wait(timeout_s, self._thread.is_alive)
        except BaseException:
            self.loop.call_soon_threadsafe(awaited.cancel)
            raise
        if is_done:
            return awaited.result()
        if not self._thread.is_alive():
            raise ClosedError(f"the client was closed while somebody waited for {what}")
        self.loop.call_soon_threadsafe(awaited.cancel)
        raise TimeoutError(f"waited {timeout_s:g} s for {what}")

    def stop(self) -> None:
        """End the loop and its thread."""
        self._is_stopped = True
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop_after, TURNS_OF_CLOSING)
            self._thread.join(STOP_SECONDS_MAX)
            if self._thread.is_alive():
                raise DeadlineExceededError(
                    f"the client's event loop did not end in {STOP_SECONDS_MAX:g} s: "
                    "a callback keeps it busy"
                )
            self.loop.close()

    def _stop_after(self, turns: int) -> None:
        """Let connections that were ended a moment ago be closed, then stop."""
        if turns:
            self.loop.call_soon(self._stop_after, turns - 1)
        else:
            self.loop.stop()
