"""The disk by itself: what one small append and fdatasync costs, without any broker."""

import contextlib
import os
import time
from pathlib import Path

import psutil

from benchmarks.pace import Pace

APPEND = bytes(150)
"""About one frame of a message of 100 B."""


def fdatasync_seconds(directory: Path, pace: Pace) -> list[float]:
    """Append to a new file at a pace and return each append's seconds to being durable."""
    path = directory / "fdatasync.probe"
    latencies = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in pace.ticks():
            start = time.perf_counter()
            os.write(file, APPEND)
            os.fdatasync(file)
            latencies.append(time.perf_counter() - start)
    finally:
        os.close(file)
        path.unlink()
    return latencies


def filesystem(directory: Path) -> str:
    """Name the kind of filesystem a directory is on."""
    mounts = sorted(psutil.disk_partitions(all=True), key=lambda mount: -len(mount.mountpoint))
    for mount in mounts:
        if directory.resolve().is_relative_to(mount.mountpoint):
            return str(mount.fstype)
    return "unknown"


def forget_cached(directory: Path) -> None:
    """Drop the files below a directory from the page cache, as a reboot would."""
    os.sync()
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
