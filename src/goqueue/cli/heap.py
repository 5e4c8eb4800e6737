"""The heap of a broker's process: fewer of glibc's arenas, and free pages given back.

Threads that sync, read and compact would each get a heap of their own from glibc, and none of them
gives back what is free in its middle: a broker that holds the same number of messages would grow
for hours. Only ``goqueue serve`` does this. A program that embeds a broker chooses for itself.
"""

import asyncio
import contextlib
import ctypes
from collections.abc import Callable, Mapping
from typing import Final

from goqueue.base.units import SECOND_MS

ARENAS_MAX: Final = 2
"""One for the event loop and one for all other threads, which rarely allocate at once."""
TRIM_INTERVAL_MS: Final = 60 * SECOND_MS
"""Time between two trims. One takes milliseconds, and what is given back too early is fetched
again page by page."""
M_ARENA_MAX: Final = -8
"""The parameter of ``mallopt``, from glibc's malloc.h."""
OPERATORS_CHOICE: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
"""Variables by which glibc was configured from outside: what they say stands."""

Function = Callable[..., int]


class Heap:
    """What glibc's allocator can be asked to do; elsewhere, nothing."""

    __slots__ = ("_mallopt", "_trim")

    def __init__(self, library: object) -> None:
        trim: Function | None = getattr(library, "malloc_trim", None)
        mallopt: Function | None = getattr(library, "mallopt", None)
        # Only glibc has malloc_trim; other libraries give other numbers to mallopt's parameters.
        self._mallopt = mallopt if trim is not None else None
        self._trim = trim

    def __repr__(self) -> str:
        return "<Heap without glibc>" if self._trim is None else "<Heap of glibc>"

    @property
    def is_glibc(self) -> bool:
        """Return True if trimming does anything here."""
        return self._trim is not None

    def limit_arenas(self, environment: Mapping[str, str]) -> bool:
        """Keep threads from getting heaps of their own; return whether glibc was told so."""
        if self._mallopt is None or any(name in environment for name in OPERATORS_CHOICE):
            return False
        return self._mallopt(M_ARENA_MAX, ARENAS_MAX) == 1

    def trim(self) -> bool:
        """Give free pages back to the system; return whether there were any."""
        return self._trim is not None and self._trim(ctypes.c_size_t(0)) == 1

    async def trim_regularly(self) -> None:
        """Trim now and then, in a thread, until cancelled; return at once without glibc."""
        while self.is_glibc:
            await asyncio.sleep(TRIM_INTERVAL_MS / SECOND_MS)
            await asyncio.to_thread(self.trim)


def heap_of_process() -> Heap:
    """Return the heap of this process."""
    library: object = None
    with contextlib.suppress(OSError, TypeError):
        library = ctypes.CDLL(None)
    return Heap(library)
