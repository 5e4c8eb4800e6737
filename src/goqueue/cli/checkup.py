"""The single checks of ``goqueue doctor``."""

import contextlib
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import GoQueueError
from goqueue.base.units import GiB, KiB, MiB, format_size_bytes
from goqueue.config.address import Address, parse_address
from goqueue.config.model import BrokerConfig

if TYPE_CHECKING:
    import goqueue

PYTHON_MIN: Final = (3, 11)
SYNC_ROUNDS: Final = 20
SYNC_BYTES: Final = 4 * KiB
SYNC_SLOW_MS: Final = 20.0
SYNC_SUSPICIOUS_MS: Final = 0.02
"""No device makes bytes durable in 20 microseconds: something on the way only pretends."""
FREE_LOW_BYTES: Final = 2 * GiB
FREE_NONE_BYTES: Final = 128 * MiB
FILES_LOW: Final = 4_096
PROBE_SECONDS: Final = 2.0
YEAR_2025_SECONDS: Final = 1_735_689_600
CLOCK_BEHIND_SECONDS: Final = 60
VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
PACKAGES: Final = ("goqueue", "pyarrow", "numpy", "msgspec", "uvloop", "httptools")


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check, with what to do about it."""

    check: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """All checks, for one configuration."""

    config: BrokerConfig
    data_dir: Path
    address: str
    open_client: Callable[[float], "goqueue.Client"]
    """Connects to the broker, with a bound in seconds for each call."""

    def run(self) -> Iterator[Finding]:
        """Do every check in turn."""
        yield check_python()
        yield check_packages()
        yield from self._check_directory()
        yield check_file_limit()
        yield check_clock(self.data_dir)
        yield check_broker(self.address, self.open_client)
        for name, text in (
            ("native port", self.config.native_listener),
            ("http port", self.config.http_listener),
        ):
            yield check_port(name, parse_address(text))

    def _check_directory(self) -> Iterator[Finding]:
        directory = next(
            path for path in (self.data_dir, *self.data_dir.absolute().parents) if path.is_dir()
        )
        yield check_file_system(directory)
        yield check_sync(directory)
        yield check_room(directory)


def check_python() -> Finding:
    """Look at the interpreter."""
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < PYTHON_MIN:
        return Finding(
            check="python",
            state=State.FAIL,
            found=found,
            advice="use Python 3.11 or newer",
        )
    if sys.flags.optimize:
        return Finding(
            check="python",
            state=State.FAIL,
            found=f"{found}, optimised",
            advice="unset PYTHONOPTIMIZE: the broker needs its checks",
        )
    return Finding(check="python", state=State.OK, found=found)


def check_packages() -> Finding:
    """List the versions that matter."""
    versions, missing = [], []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding(
            check="packages",
            state=State.FAIL,
            found=f"missing: {', '.join(missing)}",
            advice="install goqueue again with its dependencies",
        )
    return Finding(check="packages", state=State.OK, found=", ".join(versions))


def check_file_system(directory: Path) -> Finding:
    """Look at what the data directory lies on."""
    kind = file_system_of(directory)
    if kind in VOLATILE_FILE_SYSTEMS:
        return Finding(
            check="file system",
            state=State.WARN,
            found=f"{directory} is on {kind}, which is gone after a restart",
            advice="put the data directory on a disk",
        )
    return Finding(check="file system", state=State.OK, found=f"{directory} is on {kind}")


def file_system_of(directory: Path) -> str:
    """Return the kind of file system, as the system's table of mounts has it."""
    target = directory.resolve()
    best, kind = -1, "an unknown file system"
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, place, name, *_ = line.split(" ")
            if target.is_relative_to(place) and len(place) > best:
                best, kind = len(place), name
    return kind


def check_sync(directory: Path) -> Finding:
    """Measure how long the disk takes to make bytes durable: the price of an ack."""
    try:
        latencies_ms = sorted(_sync_latencies_ms(directory))
    except OSError as error:
        return Finding(
            check="fdatasync",
            state=State.FAIL,
            found=f"cannot write to {directory}: {(error.strerror or str(error)).lower()}",
            advice="make the data directory writable for this user",
        )
    median_ms, slowest_ms = latencies_ms[len(latencies_ms) // 2], latencies_ms[-1]
    found = f"median {median_ms:.2f} ms, slowest {slowest_ms:.2f} ms of {SYNC_ROUNDS}"
    if median_ms > SYNC_SLOW_MS:
        advice = "acks wait for the disk; a faster one, or durability=interval:1s for some topics"
        return Finding(check="fdatasync", state=State.WARN, found=found, advice=advice)
    if median_ms < SYNC_SUSPICIOUS_MS:
        advice = "too quick to be true: memory, or a disk that only pretends; acks mean less here"
        return Finding(check="fdatasync", state=State.WARN, found=found, advice=advice)
    return Finding(check="fdatasync", state=State.OK, found=found)


def _sync_latencies_ms(directory: Path) -> Iterator[float]:
    block = os.urandom(SYNC_BYTES)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNC_ROUNDS):
            file.write(block)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            yield (time.perf_counter() - started) * 1_000


def check_room(directory: Path) -> Finding:
    """Look at the free space."""
    usage = shutil.disk_usage(directory)
    found = f"{format_size_bytes(usage.free)} free of {format_size_bytes(usage.total)}"
    state = State.OK
    if usage.free < FREE_LOW_BYTES:
        state = State.FAIL if usage.free < FREE_NONE_BYTES else State.WARN
    advice = "" if state is State.OK else "make room: publishing stops when the disk is full"
    return Finding(check="free space", state=state, found=found, advice=advice)


def check_file_limit() -> Finding:
    """Look at how many files a broker may open; it raises the soft limit itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_limit(soft)} now, {_limit(hard)} for a broker"
    if hard != resource.RLIM_INFINITY and hard < FILES_LOW:
        return Finding(
            check="open files",
            state=State.WARN,
            found=found,
            advice="every partition and client needs one; raise the hard limit (ulimit -Hn)",
        )
    return Finding(check="open files", state=State.OK, found=found)


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else f"{number:,}"


def check_clock(data_dir: Path) -> Finding:
    """Compare the clock with the calendar and with what was already written."""
    now = time.time()
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if now < YEAR_2025_SECONDS:
        return Finding(
            check="clock",
            state=State.FAIL,
            found=f"{shown} has long passed",
            advice="set the clock: messages get their time from it",
        )
    ahead = _newest_write(data_dir) - now
    if ahead > CLOCK_BEHIND_SECONDS:
        return Finding(
            check="clock",
            state=State.WARN,
            found=f"{shown}, but files were written {ahead:.0f} s later than that",
            advice="has the clock been set back? retention and reading by time go by it",
        )
    return Finding(check="clock", state=State.OK, found=shown)


def _newest_write(data_dir: Path) -> float:
    return max((path.stat().st_mtime for path in data_dir.glob("logs/*/*/*.log")), default=0.0)


def check_broker(address: str, open_client: Callable[[float], "goqueue.Client"]) -> Finding:
    """Ask the broker something."""
    try:
        _connect(parse_address(address)).close()
    except OSError:
        return Finding(
            check="broker",
            state=State.WARN,
            found=f"nothing answers at {address}",
            advice="`goqueue serve` starts a broker, --server names another one",
        )
    try:
        started = time.perf_counter()
        with open_client(PROBE_SECONDS) as client:
            topics = len(client.list_topics())
        took_ms = (time.perf_counter() - started) * 1_000
    except GoQueueError as error:
        return Finding(
            check="broker",
            state=State.FAIL,
            found=f"{address} does not answer as a broker: {error.message}",
            advice="is it the native address of a GoQueue broker of this version?",
        )
    found = f"{address} answers in {took_ms:.1f} ms, {topics} topics"
    return Finding(check="broker", state=State.OK, found=found)


def check_port(name: str, address: Address) -> Finding:
    """Return True if something listens where a broker started here would."""
    try:
        _connect(address).close()
    except OSError:
        found = f"{address} is free for `goqueue serve`"
    else:
        found = f"{address} is taken, by a broker if all is well"
    return Finding(check=name, state=State.OK, found=found)


def _connect(address: Address) -> socket.socket:
    return socket.create_connection(
        (address.host or "127.0.0.1", address.port), timeout=PROBE_SECONDS
    )
