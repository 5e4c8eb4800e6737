"""Hostile HTTP: a connection hears the same requests however they are cut, a broker stays well.

Each target runs for GOQUEUE_FUZZ_SECONDS (a few by default). A failure prints its seed.
"""

import asyncio
import os
import random
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

import goqueue
from goqueue.transport.http.app import App
from goqueue.transport.http.connection import HttpConnection
from goqueue.transport.http.exchange import DisconnectedError, Exchange
from goqueue.transport.http.hub import Hub
from goqueue.transport.http.reply import refusal
from tests.acceptance.served import Served
from tests.fuzz.http_requests import TOPIC, long_head, noise, pieces, stream

SECONDS = float(os.environ.get("GOQUEUE_FUZZ_SECONDS", "4"))
SEEDS_MIN = 11
REPLY_SECONDS = 60.0
ROUNDS_MAX = 5_000
"""So many rounds of the loop are enough for any request that is whole."""
QUIET_ROUNDS = 30
GROWTH_MAX = 250 * 1024 * 1024
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
Target = Callable[[random.Random], bytes]
TARGETS: list[Target] = [stream, noise, long_head]


def seeds() -> Iterator[int]:
    """Yield seeds until the time is over."""
    deadline = time.monotonic() + SECONDS
    seed = 0
    while time.monotonic() < deadline or seed < SEEDS_MIN:
        yield seed
        seed += 1


# A connection alone.


class Wire(asyncio.Transport):
    """A peer that reads everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.is_heard = True
        self.is_closed = False
        self.sent = b""

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_heard = False

    def resume_reading(self) -> None:
        self.is_heard = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep nothing."""


class Recording(App):
    """Notes every request that is whole, and answers it."""

    def __init__(self) -> None:
        super().__init__([])
        self.requests: list[tuple[object, ...]] = []

    async def answer(self, exchange: Exchange) -> None:
        body = b""
        try:
            while not exchange.is_whole or exchange.size:
                body += await exchange.read()
        except DisconnectedError:
            return
        head = (exchange.method, exchange.path, exchange.query, tuple(exchange.headers))
        self.requests.append((*head, exchange.is_kept_alive, body))
        await exchange.send(refusal(HTTPStatus.OK, "", code=""))


async def hear(parts: list[bytes], *, waits: bool) -> tuple[object, ...]:
    """Return the requests that a connection hears, what it answers, and whether it then ends."""
    app, wire = Recording(), Wire()
    hub = Hub(app, connections_max=9, lost=lambda: None)
    connection = HttpConnection(hub)
    connection.connection_made(wire)
    for part in parts:
        for _ in range(ROUNDS_MAX):
            if wire.is_heard or wire.is_closed:
                break
            await asyncio.sleep(0)
        assert wire.is_heard or wire.is_closed, "it does not read on"
        if wire.is_closed:
            break
        connection.data_received(part)
        if waits:
            await asyncio.sleep(0)
    quiet = 0
    while quiet < QUIET_ROUNDS:
        before = len(app.requests), len(wire.sent)
        await asyncio.sleep(0)
        quiet = quiet + 1 if before == (len(app.requests), len(wire.sent)) else 0
    # Whether a body is asked for, and what is said first of a head both too long and wrong,
    # depends on what has come by then.
    told = [b"400" if status == b"431" else status for status in STATUS.findall(wire.sent)]
    statuses = [status for status in told if status != b"100"]
    connection.connection_lost(None)
    await asyncio.gather(*hub.tasks)
    return app.requests, statuses, wire.is_closed


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_requests_are_the_same_however_they_are_cut(target: Target) -> None:
    """P10: what is one request in one piece is the same one in many, and what is none is none."""

    async def scenario() -> None:
        for seed in seeds():
            dice = random.Random(seed)
            raw = target(dice)
            whole = await hear([raw], waits=False)
            for waits in (False, True):
                parts = pieces(dice, raw)
                assert await hear(parts, waits=waits) == whole, f"seed {seed}, cut into {parts!r}"

    asyncio.run(scenario())


# A broker that listens.


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("fuzz-http") / "data") as served:
        with goqueue.connect(served.address) as client:
            client.create_topic(TOPIC, partitions=1)
        yield served


def exchange(address: str, parts: list[bytes], *, ending: str = "half") -> bytes:
    """Send bytes and return what comes back until the broker hangs up; or hang up first."""
    host, _, port = address.rpartition(":")
    answer = b""
    with socket.create_connection((host, int(port)), REPLY_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for part in parts:
                connection.sendall(part)
            if ending == "reset":
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if ending == "half":
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 20):
                    answer += piece
        except TimeoutError:
            raise
        except OSError:
            # The broker has hung up before it was asked to.
            pass
    return answer


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_hostile_requests_hurt_only_their_sender(broker: Served, target: Target) -> None:
    """P10, P11: no fault of the broker's, no hang, bounded memory; others are served as ever."""
    address = broker.http_address
    before = broker.resident_bytes()
    for seed in seeds():
        dice = random.Random(seed)
        parts = pieces(dice, target(dice))
        ending = dice.choice(("half", "half", "half", "close", "reset"))
        answer = exchange(address, parts, ending=ending)
        faults = [status for status in STATUS.findall(answer) if status >= b"500"]
        assert not faults, f"seed {seed}: {answer!r}"
        assert broker.is_alive(), f"seed {seed}"

    assert exchange(address, [LIVE]).startswith(b"HTTP/1.1 200 ")
    assert broker.resident_bytes() - before < GROWTH_MAX
    assert broker.complaints() == []
