"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

import uvloop

from goqueue.base.errors import ClosedError

Result = TypeVar("Result")


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

    def wait(self, timeout_s: float | None) -> None:
        """Return when it is done; raise TimeoutError if that takes too long."""
        seconds = -1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX)
        if not self._done.acquire(timeout=seconds):
            raise TimeoutError

    def cancel(self) -> None:
        """Let nobody wait for it any more, in the loop."""
        assert self._task is not None, "begun, since calls are made in their order"
        self._task.cancel()

    def result(self) -> Result:
        """Return what it returned, or raise what it raised."""
        assert self._task is not None, "done"
        try:
            return self._task.result()
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
        self.loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine and return a future that threads can wait for."""
        if self._is_stopped:
            coroutine.close()
            raise ClosedError("the client was closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Run a coroutine and wait for its result."""
        if self._is_stopped:
            coroutine.close()
            raise ClosedError("the client was closed")
        awaited = _Awaited(coroutine, self.loop)
        self.loop.call_soon_threadsafe(awaited.start)
        try:
            awaited.wait(timeout_s)
        except BaseException:
            self.loop.call_soon_threadsafe(awaited.cancel)
            raise
        return awaited.result()

    def stop(self) -> None:
        """End the loop and its thread."""
        self._is_stopped = True
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
