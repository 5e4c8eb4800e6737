"""The least that a small request costs in one Python process: ``python -m benchmarks.floor``.

A server that only takes requests, appends them to files, syncs those and answers, with uvloop and
nothing else. Requests that come in one turn of the loop share a write and a sync for each file. Its
figures are the least that any broker of this kind can need on this machine at this moment.
"""

import argparse
import asyncio
import os
import resource
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

REQUEST = b"x" * 180
REPLY = b"y" * 60
SECONDS = 2.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How many ask, and into how many files their requests go; with none nothing is synced."""

    name: str
    connections: int
    files: int


CASES = (
    Case(name="one connection, not synced", connections=1, files=0),
    Case(name="one connection", connections=1, files=1),
    Case(name="8 connections, 3 files", connections=8, files=3),
    Case(name="64 connections, not synced", connections=64, files=0),
    Case(name="64 connections", connections=64, files=1),
    Case(name="64 connections, 3 files", connections=64, files=3),
)


class Log:
    """Appends and syncs what came in one turn of the loop."""

    def __init__(self, directory: Path, files: int) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._files = [os.open(directory / str(number), flags, 0o600) for number in range(files)]
        self._waiting: list[asyncio.Transport] = []

    def take(self, peer: asyncio.Transport) -> None:
        """Answer a request when it is synced, with the others of this turn."""
        if not self._files:
            peer.write(REPLY)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._sync)
        self._waiting.append(peer)

    def _sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for number, file in enumerate(self._files[: len(waiting)]):
            os.write(file, REQUEST * len(waiting[number :: len(self._files)]))
        for file in self._files[: len(waiting)]:
            os.fdatasync(file)
        for peer in waiting:
            peer.write(REPLY)


class Peer(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where replies go."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Take a request."""
        assert len(data) == len(REQUEST), "one at a time"
        self._log.take(self._transport)


def serve(case: Case, directory: Path, parent: Connection) -> None:
    """Run the server in a process of its own; tell its port, and in the end what it cost."""
    uvloop.run(_serve(case, directory, parent))


async def _serve(case: Case, directory: Path, parent: Connection) -> None:
    loop, log = asyncio.get_running_loop(), Log(directory, case.files)
    server = await loop.create_server(lambda: Peer(log), LOOPBACK, 0)
    before = _processor_seconds()
    parent.send(server.sockets[0].getsockname()[1])
    await loop.run_in_executor(None, parent.recv)
    parent.send(_processor_seconds() - before)


def ask(case: Case, port: int, seconds: float) -> tuple[int, float]:
    """Keep one request under way on each connection; return how many there were in how long."""
    peers = [socket.create_connection((LOOPBACK, port)) for _ in range(case.connections)]
    done, started = 0, time.monotonic()
    while time.monotonic() < started + seconds:
        for peer in peers:
            peer.sendall(REQUEST)
        for peer in peers:
            assert len(peer.recv(len(REPLY), socket.MSG_WAITALL)) == len(REPLY), "an answer"
        done += len(peers)
    took = time.monotonic() - started
    for peer in peers:
        peer.close()
    return done, took


def measure(case: Case, directory: Path, seconds: float = SECONDS) -> tuple[float, float]:
    """Return requests a second, and the server's processor time of one in microseconds."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(case, directory, theirs))
    process.start()
    try:
        done, took = ask(case, ours.recv(), seconds)
        ours.send(None)
        used: float = ours.recv()
    finally:
        process.join(5)
        process.kill()
    return done / took, used / done * 1e6


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case, several times in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args(arguments)
    for number in range(given.rounds):
        load = os.getloadavg()[0]
        print(f"round {number + 1}, load {load:.1f}")
        for case in CASES:
            with tempfile.TemporaryDirectory(dir=given.dir) as directory:
                rate, cost = measure(case, Path(directory), given.seconds)
            print(f"  {case.name:28} {rate:8.0f}/s  {cost:6.1f} us")


if __name__ == "__main__":
    main()
