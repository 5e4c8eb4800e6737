"""The allocator of a broker's process is asked to stay small, where it can be asked."""

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from goqueue.cli import heap
from goqueue.cli.heap import ARENAS_MAX, M_ARENA_MAX, Heap, heap_of_process


class _Glibc:
    """The two functions of glibc, which say that they did what they were asked."""

    def __init__(self, on_trim: Callable[[], object] = lambda: None) -> None:
        self.options: list[tuple[int, int]] = []
        self._on_trim = on_trim

    def mallopt(self, parameter: int, value: int) -> int:
        """Take an option."""
        self.options.append((parameter, value))
        return 1

    def malloc_trim(self, _pad: ctypes.c_size_t) -> int:
        """Report the call."""
        self._on_trim()
        return 1


class _OtherLibc:
    """A library whose mallopt has parameters of other meanings, and that cannot trim."""

    def mallopt(self, parameter: int, value: int) -> int:
        """Refuse to be called."""
        raise AssertionError((parameter, value))


@pytest.mark.parametrize("library", [None, object(), _OtherLibc()])
def test_nothing_happens_where_the_library_has_no_trim(library: object) -> None:
    """A broker on musl or macOS starts and runs as on glibc."""
    found = Heap(library)

    assert not found.limit_arenas({})
    assert not found.trim()
    asyncio.run(found.trim_regularly())


def test_arenas_are_limited_unless_the_operator_chose() -> None:
    """Variables that configure glibc win over the broker."""
    library = _Glibc()
    found = Heap(library)

    assert not found.limit_arenas({"MALLOC_ARENA_MAX": "8"})
    assert not found.limit_arenas({"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"})
    assert found.limit_arenas({"PATH": "/bin"})
    assert library.options == [(M_ARENA_MAX, ARENAS_MAX)]


def test_the_heap_is_trimmed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trimming goes on until it is cancelled, beside the event loop."""
    monkeypatch.setattr(heap, "TRIM_INTERVAL_MS", 1)

    async def watch() -> list[int]:
        loop, trims = asyncio.get_running_loop(), asyncio.Queue[int]()

        def note() -> None:
            loop.call_soon_threadsafe(trims.put_nowait, threading.get_ident())

        trimming = loop.create_task(Heap(_Glibc(note)).trim_regularly())
        async with asyncio.timeout(10):
            threads = [await trims.get() for _ in range(3)]
        trimming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trimming
        return threads

    assert threading.get_ident() not in asyncio.run(watch())


GROW_AND_TRIM = """
import os
from pathlib import Path
from goqueue.cli.heap import heap_of_process

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

heap = heap_of_process()
assert heap.limit_arenas({})
blocks = [bytes(20_000) for _ in range(2_000)]
last = bytes(20_000)
before = resident()
del blocks
assert heap.trim()
print(before - resident())
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not heap_of_process().is_glibc, reason="needs glibc"
)
def test_free_pages_in_the_middle_of_the_heap_are_given_back() -> None:
    """What was freed below a block that is still used does not stay with the process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(
        [sys.executable, "-c", GROW_AND_TRIM],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert int(told.stdout) > 20_000_000
