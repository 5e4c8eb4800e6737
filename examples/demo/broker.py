"""The broker of the demonstration: a real ``goqueue serve`` in a process of its own."""

import ctypes
import json
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Final

from goqueue.base.errors import GoQueueError

ROOT: Final = Path(__file__).parents[2]
"""Where Python finds this module again."""
NATIVE: Final = "127.0.0.1:7070"
HTTP: Final = "127.0.0.1:8080"
ANY: Final = "127.0.0.1:0"
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 45.0
POLL_S: Final = 0.05
LOG_LINE_BYTES_MAX: Final = 100_000

DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of prctl: without it a broker would outlive a parent that is killed."""


class BrokerFailedError(GoQueueError):
    """The broker of the demonstration did not start, or has ended."""

    code = "broker_failed"


class BrokerProcess:
    """One broker on a data directory, started when it is made."""

    def __init__(self, data: Path, log: Path, *, native: str = "", http: str = "") -> None:
        self.log = log
        wanted = {"--native": native or free_or_any(NATIVE), "--http": http or free_or_any(HTTP)}
        arguments = ["serve", "--data", str(data), "--log-format", "json"]
        with log.open("wb") as output:
            # A session of its own: Ctrl-C is for the demonstration, which stops the broker last.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    *(sys.executable, "-m", __name__, *arguments),
                    *(word for pair in wanted.items() for word in pair),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=ROOT,
            )
        try:
            told = self._listening()
        except BaseException:
            self.stop()
            raise
        self.native = str(told["native"])
        self.http = str(told["http"])

    def __repr__(self) -> str:
        return f"<BrokerProcess {self._process.pid} on {self.native}>"

    def check(self) -> None:
        """Raise if the broker has ended."""
        if self._process.poll() is not None:
            raise BrokerFailedError(f"the broker has ended: {self._last_words()}")

    def stop(self) -> None:
        """Ask the broker to stop, and make sure that it has."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listening(self) -> dict[str, object]:
        """Wait until the broker says where it listens."""
        deadline_s = time.monotonic() + START_S_MAX
        with self.log.open("rb") as log:
            for event in self._events(log):
                if event.get("event") == "listening":
                    return event
                if time.monotonic() > deadline_s:
                    break
        raise BrokerFailedError(f"the broker does not start; its log is {self.log}")

    def _events(self, log: IO[bytes]) -> Iterator[dict[str, object]]:
        """Yield what is logged; an empty event while nothing is."""
        rest = b""
        while True:
            rest += log.readline(LOG_LINE_BYTES_MAX)
            if rest.endswith(b"\n"):
                yield _event(rest)
                rest = b""
                continue
            self.check()
            time.sleep(POLL_S)
            yield {}

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else "without a word"


def _event(line: bytes) -> dict[str, object]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def free_or_any(address: str) -> str:
    """Return an address if nobody listens on it, else one for which a free port is chosen."""
    host, _, port = address.rpartition(":")
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return ANY
    return address


def _main() -> None:
    """Be a broker that ends with whoever started it."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)
    runpy.run_module("goqueue", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
