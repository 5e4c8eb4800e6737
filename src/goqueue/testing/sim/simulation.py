"""A world from a seed: a loop on virtual time, a network, processes and their disks."""

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar

from goqueue.testing.sim.host import Host
from goqueue.testing.sim.loop import SimLoop
from goqueue.testing.sim.network import SimNetwork
from goqueue.testing.sim.patches import Wall, virtual
from goqueue.testing.sim.trace import Trace

T = TypeVar("T")

WORK_SECONDS: Final = (0.000_1, 0.004)
"""How long work in a thread takes, a sync above all."""


class Simulation:
    """Runs a scenario. The same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.wall = Wall(self.loop)
        self.trace = Trace(self.loop.time)
        self.chance = Random(seed)
        self.network = SimNetwork(self.loop, Random(self.chance.getrandbits(64)), self.trace)
        self._work_chance = Random(self.chance.getrandbits(64))
        self._work_range = WORK_SECONDS
        self.loop.work_seconds = self._work_seconds
        self.failures: list[BaseException] = []
        """What tasks and callbacks of living processes raised and nobody took."""
        self.loop.set_exception_handler(self._note_failure)

    def __repr__(self) -> str:
        return f"<Simulation seed={self.seed} at {self.loop.time():.3f} s>"

    def host(self, name: str) -> Host:
        """Start a process."""
        return Host(name, self.loop, self.network)

    def slow_down_disks(self, seconds: float) -> None:
        """Let work in threads take up to so long; 0 is the usual speed."""
        self._work_range = WORK_SECONDS if seconds == 0 else (seconds / 10, seconds)

    def run(self, main: Callable[["Simulation"], Awaitable[T]]) -> T:
        """Run a scenario to its end, then drop whatever it left."""
        was_collecting = gc.isenabled()
        gc.disable()
        secret = Random(self.chance.getrandbits(64))
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        try:
            with virtual(self.loop, self.wall, secret):
                return self.loop.run_until_complete(_as_coroutine(main(self)))
        finally:
            self._drop_everything()
            if was_collecting:
                gc.enable()
            logging.getLogger("asyncio").setLevel(logging.NOTSET)

    def _work_seconds(self) -> float:
        return self._work_chance.uniform(*self._work_range)

    def _note_failure(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.failures.append(error)

    def _drop_everything(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            # It ends with its loop; there is nothing to warn of.
            with suppress(AttributeError):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        self.loop.close()
        # Coroutines that are dropped clean up without their loop: what fails in that is no news.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = hook


async def _as_coroutine(work: Awaitable[T]) -> T:
    return await work
