"""The broker with a look inside: ``python -m benchmarks.soak.probe serve …``.

The same program as ``goqueue``. On SIGUSR1 it writes, as one line of JSON, how many objects there
are by type, how long every collection of every object of ours is, and what the allocators hold.
With ``GOQUEUE_SOAK_TRACEMALLOC=1`` it says, too, where most memory was allocated; that is slow.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterator
from types import FrameType

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from goqueue.cli.main import main

TOP = 60
SIZED = (dict, set, frozenset, list, deque, BitMap, BitMap64, bytearray)


class Heaps(ctypes.Structure):
    """What glibc says of its heaps."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    )  # fmt: skip


def install() -> None:
    """Answer SIGUSR1 with a line in the file named by ``GOQUEUE_SOAK_PROBE``."""
    if os.environ.get("GOQUEUE_SOAK_TRACEMALLOC"):
        tracemalloc.start(1)
    signal.signal(signal.SIGUSR1, _write)


def _write(_number: int, _frame: FrameType | None) -> None:
    with open(os.environ["GOQUEUE_SOAK_PROBE"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(snapshot()) + "\n")


def snapshot() -> dict[str, object]:
    """Return counts of everything, garbage that was not collected yet included."""
    objects = gc.get_objects()
    types = Counter(_name(type(one)) for one in objects)
    lengths: Counter[str] = Counter()
    for one in objects:
        if type(one).__module__.startswith("goqueue."):
            for attribute, value in _attributes(one):
                if isinstance(value, SIZED):
                    lengths[f"{_name(type(one))}.{attribute}"] += len(value)
    for attribute, value in _of_modules():
        lengths[attribute] += len(value)
    pool = pa.default_memory_pool()
    return {
        "types": dict(types.most_common(TOP)),
        "lengths": dict(lengths.most_common(3 * TOP)),
        "arrow": {"allocated": pool.bytes_allocated(), "most": pool.max_memory()},
        "malloc": _malloc(),
        "blocks": sys.getallocatedblocks(),
        "lines": _lines(),
    }


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix('goqueue.')}.{kind.__qualname__}"


def _attributes(one: object) -> Iterator[tuple[str, object]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        for slot in getattr(kind, "__slots__", ()):
            if isinstance(slot, str) and slot != "__dict__":
                yield slot, getattr(one, slot, None)


def _of_modules() -> Iterator[tuple[str, "dict[object, object] | list[object]"]]:
    for name, module in list(sys.modules.items()):
        if name.startswith("goqueue"):
            for attribute, value in vars(module).items():
                if isinstance(value, dict | list) and not attribute.startswith("__"):
                    yield f"{name}:{attribute}", value


def _malloc() -> dict[str, int]:
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Heaps
    told = library.mallinfo2()
    return {
        "heap": told.arena, "mapped": told.hblkhd, "used": told.uordblks, "free": told.fordblks
    }  # fmt: skip


def _lines() -> dict[str, int]:
    if not tracemalloc.is_tracing():
        return {}
    statistics = tracemalloc.take_snapshot().statistics("lineno")
    return {str(one.traceback[0]): one.size for one in statistics[:TOP]}


if __name__ == "__main__":
    install()
    main()
