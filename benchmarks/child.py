"""One process of ours: started with its output in a file, awaited, weighed, and stopped by id."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

LOOPBACK = "127.0.0.1"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.005


class ChildFailedError(Exception):
    """The process ended or stayed silent while we waited for it; the message has its last words."""


def free_port() -> int:
    """Return a loopback port that nobody listens on right now."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Say whether something accepts connections on this loopback port."""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


class Child:
    """A process with its own group, so that what it starts itself is stopped with it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / f"{Path(argv[0]).name}.out"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                list(argv),
                cwd=directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __repr__(self) -> str:
        """Name the program and its process."""
        return f"<Child {self._log.stem} pid={self._process.pid} rc={self._process.returncode}>"

    def wait_until(self, ready: Callable[[], bool], *, what: str) -> None:
        """Return once the condition holds; raise when the process ends or time runs out."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if self._process.poll() is not None:
                raise ChildFailedError(f"{self!r} ended before {what}: {self._last_words()}")
            if time.monotonic() > deadline:
                raise ChildFailedError(f"{self!r}: no {what} in time: {self._last_words()}")
            time.sleep(POLL_SECONDS)

    def wait_port(self, port: int) -> None:
        """Return once the process accepts connections."""
        self.wait_until(lambda: listens(port), what=f"listening on port {port}")

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    @property
    def output(self) -> Path:
        """Return the file with what the process printed."""
        return self._log

    @property
    def is_alive(self) -> bool:
        """Say whether the process still runs."""
        return self._process.poll() is None

    def rss_bytes(self) -> int:
        """Return the resident memory of the process and everything below it."""
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def processor_seconds(self) -> float:
        """Return how long the process and everything below it have kept processors busy."""
        total = 0.0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def wait_end(self, seconds: float) -> None:
        """Give the process so long to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def stop(self) -> None:
        """Ask the process to end, and insist if it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
        self.kill()

    def kill(self) -> None:
        """End the process and its group at once, as ``kill -9`` does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS_MAX)

    def _family(self) -> list[psutil.Process]:
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def _last_words(self) -> str:
        return self._log.read_bytes()[-400:].decode(errors="replace").strip()
