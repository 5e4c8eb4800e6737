"""An event loop on virtual time: instead of waiting it moves its clock to the next timer."""

import asyncio
import heapq
import inspect
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from math import ulp
from typing import Any, Final, Protocol

START_SECONDS: Final = 1_000.0
STEP_SECONDS: Final = 0.000_000_1
STEPS_MAX: Final = 5_000_000
"""Rounds of the loop before a simulation counts as a livelock."""


class Owner(Protocol):
    """A process whose callbacks a loop runs until it is dead, and not while it is paused."""

    is_dead: bool
    paused_until: float


OWNER: Final[ContextVar[Owner | None]] = ContextVar("owner", default=None)
"""The simulated process that a task or callback belongs to."""


class StuckError(AssertionError):
    """Every task waits for something that will never happen, or the simulation does not end."""


class _Jump:
    """Stands where a loop waits for sockets: it lets virtual time pass instead."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self._steps = 0

    def select(self, timeout: float | None) -> Sequence[object]:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise StuckError(f"the simulation did not end within {STEPS_MAX} steps")
        if timeout is None:
            raise StuckError(f"nothing will happen any more; waiting: {self._loop.waiting()}")
        self._loop.pass_time(timeout)
        return ()

    def close(self) -> None:
        """Hold nothing."""


class _Later:
    """A callback that was ready when its process was paused."""

    def __init__(self, handle: asyncio.Handle) -> None:
        self.handle = handle

    def run(self) -> None:
        """Run it, unless it was cancelled meanwhile."""
        if not self.handle.cancelled():
            # In the context that it would have run in: this is called there.
            self.handle._callback(*self.handle._args)  # type: ignore[attr-defined]  # noqa: SLF001


class SimLoop(BaseEventLoop):
    """Runs callbacks in the order of virtual time; those of dead processes never run."""

    def __init__(self) -> None:
        super().__init__()
        self._now = START_SECONDS
        self._selector = _Jump(self)
        self.work_seconds: Callable[[], float] = lambda: 0.0
        """How long work handed to a thread takes."""
        self.connect: Callable[..., Any] | None = None
        self.listen: Callable[..., Any] | None = None

    @property
    def _clock_resolution(self) -> float:
        """How early timers may fire: not at all, or whoever waits for less waits for ever."""
        return ulp(self._now)

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """Leave it so, whatever the clocks of the machine can do."""

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        if seconds > 0:
            self._now += seconds

    def waiting(self) -> list[str]:
        """Return what tasks wait for."""
        return [str(task.get_coro()) for task in asyncio.all_tasks(self)]

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next round, unless its process is dead."""
        context = copy_context() if context is None else context
        if self._is_paused(context):
            return self.call_at(self._now, callback, *args, context=context)
        handle = super().call_soon(callback, *args, context=context)
        if _is_dead(context):
            _drop(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time, unless its process is dead by then."""
        context = copy_context() if context is None else context
        owner = context.get(OWNER)
        if owner is not None and when < owner.paused_until:
            when = self._step_behind(owner)
        handle = super().call_at(when, callback, *args, context=context)
        if _is_dead(context):
            _drop(handle)
        return handle

    def stop_callbacks_of(self, owner: Owner) -> None:
        """Let nothing of a process run any more, as SIGKILL does."""
        handles = [*self._ready, *self._scheduled]  # type: ignore[attr-defined]
        for handle in handles:
            if handle._context.get(OWNER) is owner:  # noqa: SLF001 - asyncio shows it nowhere else
                _drop(handle)

    def pause_callbacks_of(self, owner: Owner, seconds: float) -> None:
        """Let nothing of a process run for a while, as SIGSTOP does; then all that came due."""
        owner.paused_until = self._now + seconds
        ready: list[asyncio.Handle] = [*self._ready]  # type: ignore[attr-defined]
        for handle in ready:
            if handle._context.get(OWNER) is owner:  # type: ignore[attr-defined]  # noqa: SLF001
                self._ready.remove(handle)  # type: ignore[attr-defined]
                again = _Later(handle)
                super().call_at(self._step_behind(owner), again.run, context=handle._context)  # type: ignore[attr-defined]  # noqa: SLF001
        timers: list[Any] = sorted(self._scheduled)  # type: ignore[attr-defined]
        for timer in timers:
            if timer._context.get(OWNER) is owner and timer._when < owner.paused_until:  # noqa: SLF001
                timer._when = self._step_behind(owner)  # noqa: SLF001
        heapq.heapify(self._scheduled)  # type: ignore[attr-defined]

    def _step_behind(self, owner: Owner) -> float:
        """Return the next moment behind a pause: what waits keeps its order."""
        owner.paused_until += STEP_SECONDS
        return owner.paused_until

    def _is_paused(self, context: Context) -> bool:
        owner = context.get(OWNER)
        return owner is not None and self._now < owner.paused_until

    def run_in_executor(
        self, executor: object, func: Callable[..., Any], *args: object
    ) -> "asyncio.Future[Any]":
        """Run a function in the loop, after as long as a thread would take."""
        del executor
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - handed to who waits for it
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.work_seconds(), work)
        return future

    async def create_connection(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Connect through the simulated network."""
        assert self.connect is not None, "a network is attached"
        return await self.connect(*args, **options)

    async def create_server(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Listen on the simulated network."""
        assert self.listen is not None, "a network is attached"
        return await self.listen(*args, **options)

    def _check_closed(self) -> None:
        """Accept callbacks that will never run: coroutines that are dropped clean up behind it."""

    def _process_events(self, event_list: Sequence[object]) -> None:
        assert not event_list, "there are no sockets"

    def _write_to_self(self) -> None:
        """Wake nobody: there is one thread."""


def _is_dead(context: Context) -> bool:
    owner = context.get(OWNER)
    return owner is not None and owner.is_dead


def _drop(handle: asyncio.Handle) -> None:
    """Cancel a callback; a task that has not begun never will, which is no mistake to warn of."""
    task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # noqa: SLF001
    if isinstance(task, _Later):
        _drop(task.handle)
    handle.cancel()
    work = task.get_coro() if isinstance(task, asyncio.Task) else None
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()
