"""What a process holds at a moment, and whether it grows."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

SECONDS_PER_MINUTE = 60.0
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the broker. Memory in bytes, time in seconds since the load began."""

    seconds: float
    rss: int
    uss: int
    files: int
    threads: int
    data_bytes: int
    processor_seconds: float


def look(process: psutil.Process, data: Path, *, seconds: float) -> Sample:
    """Return what a process holds now."""
    memory = process.memory_full_info()
    times = process.cpu_times()
    return Sample(
        seconds=seconds,
        rss=memory.rss,
        uss=memory.uss,
        files=process.num_fds(),
        threads=process.num_threads(),
        data_bytes=size_below(data),
        processor_seconds=times.user + times.system,
    )


def size_below(folder: Path) -> int:
    """Return the bytes of all files below a folder; some may go while they are counted."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118 - quick
    return total


def last_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples of the second half of the time."""
    if not samples:
        return samples
    middle = (samples[0].seconds + samples[-1].seconds) / 2
    return [sample for sample in samples if sample.seconds >= middle]


def per_minute(samples: Sequence[Sample], field: str) -> float:
    """Return by how much a figure grows in a minute: the slope of the line that fits best."""
    times = [sample.seconds / SECONDS_PER_MINUTE for sample in samples]
    values = [float(asdict(sample)[field]) for sample in samples]
    if len(samples) < 2:
        return 0.0
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return 0.0
    return sum((t - middle) * (v - mean) for t, v in zip(times, values, strict=True)) / spread
