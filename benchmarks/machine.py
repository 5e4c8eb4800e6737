"""The machine a run was made on, so that its numbers can be judged later."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks import disk
from benchmarks.pace import Pace
from benchmarks.percentiles import latency_summary

PROBE = Pace(rate_hz=1000, count=500)


def describe(directory: Path) -> dict[str, object]:
    """Return what matters about this machine and the disk below a directory."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": psutil.virtual_memory().total // 1_000_000,
        "load_average_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "filesystem": disk.filesystem(directory),
        "fdatasync_ms": latency_summary(disk.fdatasync_seconds(directory, PROBE)),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
