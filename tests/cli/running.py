"""A real ``goqueue serve`` for tests, and what a command did."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Any

SECONDS_MAX = 120
LOG_BYTES_MAX = 1 << 20

Run = Callable[..., "Outcome"]


class BrokerProcess:
    """A broker on free ports. It is ready when it says so."""

    def __init__(self, data_dir: Path, *arguments: str, **environment: str) -> None:
        listeners = ["--native", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.data_dir = data_dir
        self.process = start(
            "serve", "--data", str(data_dir), *listeners, *arguments, **environment
        )
        self._source = lines_of(self.process)
        self.lines: list[dict[str, Any]] = []
        self.native = self.wait_for("listening")["native"]
        self.http = self.lines[-1]["http"]

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read the log until an event; the end of the log before it is a failure."""
        for line in self._source:
            self.lines.append(json.loads(line))
            if self.lines[-1]["event"] == event:
                return self.lines[-1]
        raise AssertionError(f"the broker ended without {event!r}: {self.lines}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.lines += [json.loads(line) for line in self._source]
        self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "goqueue", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, **environment},
    )
    assert process.stderr is not None
    # A broker that waits for a reader of its log answers nobody.
    fcntl(process.stderr, F_SETPIPE_SZ, LOG_BYTES_MAX)
    return process


def lines_of(process: subprocess.Popen[bytes], stream: str = "stderr") -> Iterator[bytes]:
    """Yield lines as they come; silence for too long is a failure."""
    source = getattr(process, stream)
    rest = b""
    while True:
        ready, _, _ = select.select([source], [], [], SECONDS_MAX)
        assert ready, f"nothing more came within {SECONDS_MAX} s"
        piece = os.read(source.fileno(), 65_536)
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


def run_process(
    *arguments: str, stdin: bytes = b"", python: tuple[str, ...] = (), **environment: str
) -> Outcome:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "goqueue", *arguments],
        input=stdin,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, **environment},
    )
    return Outcome(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())
