"""Makes every clock and every source of chance of this process follow a simulation."""

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import numpy.random  # noqa: F401 - it draws when it is imported, which would be in the first run

from goqueue.testing.sim.loop import SimLoop

EPOCH_SECONDS: Final = 1_700_000_000
"""Wall time when the virtual clock stands at zero."""
_NS: Final = 1_000_000_000


class Wall:
    """The wall clock of the simulated machine, which somebody may set."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_seconds = 0.0
        """How far it was set forward, or back."""

    def now_ns(self) -> int:
        """Return nanoseconds since the Unix epoch."""
        return EPOCH_SECONDS * _NS + int((self._loop.time() + self.skew_seconds) * _NS)


@contextmanager
def virtual(loop: SimLoop, wall: Wall, chance: Random) -> Iterator[None]:
    """Replace the functions in their modules, and wherever our modules imported them by name."""

    def steady_ns(*_: object) -> int:
        return int(loop.time() * _NS)

    fakes: dict[Callable[..., Any], Callable[..., Any]] = {
        time.time: lambda: wall.now_ns() / _NS,
        time.time_ns: wall.now_ns,
        time.monotonic: loop.time,
        time.monotonic_ns: steady_ns,
        time.perf_counter: loop.time,
        time.perf_counter_ns: steady_ns,
        time.clock_gettime_ns: steady_ns,
        secrets.token_bytes: lambda size=32: chance.randbytes(size),
        secrets.token_hex: lambda size=32: chance.randbytes(size).hex(),
        secrets.randbits: chance.getrandbits,
    }
    replaced: list[tuple[Any, str, Any]] = []
    for module in [time, secrets, *_ours()]:
        for name, value in list(vars(module).items()):
            fake = fakes.get(value) if _is_function(value) else None
            if fake is not None:
                replaced.append((module, name, value))
                setattr(module, name, fake)
    try:
        yield
    finally:
        for module, name, value in replaced:
            setattr(module, name, value)


def _ours() -> list[Any]:
    loaded = list(sys.modules.items())
    return [module for name, module in loaded if name.startswith("goqueue.")]


def _is_function(value: object) -> bool:
    return (
        callable(value)
        and getattr(value, "__hash__", None) is not None
        and hasattr(value, "__name__")
    )
