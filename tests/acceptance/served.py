"""A real ``goqueue serve`` in a process of its own, to be killed, restarted and weighed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import psutil

SECONDS_MAX = 120


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def held_port() -> socket.socket:
    """Keep a port for a broker that comes and goes: bound, so nobody else gets it, but no more."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def address_of(held: socket.socket) -> str:
    """Return the address of a port that is kept."""
    return f"127.0.0.1:{held.getsockname()[1]}"


class Served:
    """A broker on one port and one data directory, over as many processes as it takes."""

    def __init__(self, data_dir: Path, *, log: Path | None = None) -> None:
        self.data_dir = data_dir
        self._held = held_port()
        self.address = address_of(self._held)
        self._log = log or data_dir.with_name(f"{data_dir.name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._held.close()

    @property
    def log_lines(self) -> list[str]:
        """What the broker has logged, one JSON object a line."""
        return self._log.read_text(errors="replace").splitlines()

    @property
    def http_address(self) -> str:
        """Where HTTP is served now; every process has a port of its own."""
        told = [json.loads(line) for line in self.log_lines if '"listening"' in line]
        return str(told[-1]["http"])

    @property
    def pid(self) -> int:
        assert self._process is not None, "started"
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and return when it listens."""
        seen = self._count_listening()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "goqueue", "serve", "--data", str(self.data_dir)),
                    *("--native", self.address, "--http", "127.0.0.1:0", "--log-format", "json"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )
        deadline = time.monotonic() + SECONDS_MAX
        pause = threading.Event()
        while self._count_listening() == seen:
            assert self.is_alive(), self.log_lines[-5:]
            assert time.monotonic() < deadline, "the broker does not start"
            pause.wait(0.02)

    def _count_listening(self) -> int:
        if not self._log.exists():
            return 0
        return sum('"listening"' in line for line in self.log_lines)

    def kill(self) -> None:
        """End the process as a power cut of the machine would, but for the page cache."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the broker to stop; return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self._process is not None, "started"
        if self.is_alive():
            self._process.send_signal(number)
        return self._process.wait(SECONDS_MAX)

    def resident_bytes(self) -> int:
        """Return how much memory the process holds."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def complaints(self) -> list[dict[str, object]]:
        """Return what was logged as an error, that is, as a fault of the broker."""
        lines = [json.loads(line) for line in self.log_lines if line.startswith("{")]
        return [line for line in lines if line.get("level") in {"error", "critical"}]
