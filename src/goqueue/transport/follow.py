"""The rest of a begun coroutine, from the ends of the futures it waits for, without a task."""

import asyncio
from typing import Any

from goqueue.base.started import Started


def follow(started: Started[None]) -> asyncio.Future[None]:
    """Run the rest of a coroutine; return a future that is done when it is over.

    For coroutines that deal with all their errors and never ask for the current task. As with a
    task, cancelling the future cancels what is waited for.
    """
    return _Following(started).ended


class _Following:
    """Takes a step whenever what was waited for is there."""

    __slots__ = ("_awaited", "_steps", "ended")

    def __init__(self, started: Started[None]) -> None:
        self._steps = started.__await__()
        self._awaited: Any = None
        self.ended = asyncio.get_running_loop().create_future()
        self.ended.add_done_callback(self._cancel)
        self._go_on(None)

    def _go_on(self, _: object) -> None:
        try:
            awaited = self._awaited = self._steps.send(None)
        except (StopIteration, asyncio.CancelledError):
            self._awaited = None
            if not self.ended.done():
                self.ended.set_result(None)
            return
        if awaited is None:
            asyncio.get_running_loop().call_soon(self._go_on, None)
            return
        assert awaited._asyncio_future_blocking, "what is awaited is a future"  # noqa: SLF001
        # As a task does: the future learns that it is awaited properly.
        awaited._asyncio_future_blocking = False  # noqa: SLF001
        awaited.add_done_callback(self._go_on)

    def _cancel(self, _: object) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
