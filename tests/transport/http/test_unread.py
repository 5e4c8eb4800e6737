"""Peers that ask for much and read nothing: no work is done for replies that cannot be sent."""

import asyncio
from http import HTTPStatus

import pytest

from goqueue.transport.http.app import App
from goqueue.transport.http.connection import HttpConnection
from goqueue.transport.http.exchange import Exchange
from goqueue.transport.http.hub import Hub
from goqueue.transport.http.reply import refusal
from tests.transport.http.running import Running

LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
READ = b"GET /topics/orders/partitions/0/messages?limit=100 HTTP/1.1\r\nhost: localhost\r\n\r\n"
REQUESTS = 50
WORTH = 10
"""So many replies of 100 KiB more than fill what the systems of both sides keep."""


class Full(asyncio.Transport):
    """A peer that takes nothing of what is written until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_full = True
        self.connection: HttpConnection | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)
        if self.is_full and self.connection is not None:
            self.connection.pause_writing()

    def drain(self) -> None:
        """Take all that was written."""
        assert self.connection is not None
        self.connection.resume_writing()

    def close(self) -> None:
        """Stay: a peer that does not read does not see the end, either."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Be heard all the same."""

    def resume_reading(self) -> None:
        """Be heard."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep nothing."""
        assert (high, low) == (0, None), "what is not sent at once is told"


class Counting(App):
    """Answers at once, and counts."""

    def __init__(self) -> None:
        super().__init__([])
        self.begun: list[str] = []

    async def answer(self, exchange: Exchange) -> None:
        self.begun.append(exchange.path)
        await exchange.send(refusal(HTTPStatus.OK, "", code=""))


async def _connect() -> tuple[Counting, Full, HttpConnection]:
    app, wire = Counting(), Full()
    wire.connection = HttpConnection(Hub(app, connections_max=9, lost=lambda: None))
    wire.connection.connection_made(wire)
    return app, wire, wire.connection


async def _rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_next_request_begins_when_the_reply_before_it_was_taken() -> None:
    """P11: one request is worked on ahead of a peer that does not read, and no more."""

    async def scenario() -> list[int]:
        app, wire, connection = await _connect()
        connection.data_received(LIVE * 4)
        counts = []
        for _ in range(3):
            await _rest()
            counts.append(len(app.begun))
            wire.drain()
        wire.is_full = False
        await _rest()
        # Another one, behind replies that were taken, begins at once.
        connection.data_received(LIVE)
        await _rest()
        counts.append(len(app.begun))
        connection.connection_lost(None)
        return counts

    assert asyncio.run(scenario()) == [1, 2, 3, 5]


def test_a_request_that_comes_while_replies_wait_does_not_begin() -> None:
    """Also where everything before it was answered: the answer has not left."""

    async def scenario() -> list[int]:
        app, wire, connection = await _connect()
        connection.data_received(LIVE)
        await _rest()
        connection.data_received(LIVE)
        await _rest()
        counts = [len(app.begun)]
        wire.drain()
        await _rest()
        counts.append(len(app.begun))
        connection.connection_lost(None)
        return counts

    assert asyncio.run(scenario()) == [1, 2]


def test_what_is_no_request_is_answered_behind_requests_that_wait_for_their_peer() -> None:
    """The order of replies is that of the requests, whenever the peer reads."""

    async def scenario() -> bytes:
        _, wire, connection = await _connect()
        connection.data_received(LIVE * 2)
        await _rest()
        connection.data_received(b"nonsense\r\n\r\n")
        await _rest()
        wire.is_full = False
        wire.drain()
        await _rest()
        connection.connection_lost(None)
        return wire.sent

    statuses = [part[:3] for part in asyncio.run(scenario()).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"400"]


@pytest.mark.parametrize("connections", [1, 3])
def test_reads_that_nobody_takes_are_not_made(server: Running, connections: int) -> None:
    """P11: of many reads sent ahead only those are made that the system can take."""
    server.create(num_partitions=1)
    server.publish(*[{"value": "x" * 1_000}] * 100)
    consumed = server.broker.topics["orders"].meter.consumed  # type: ignore[index]
    opened = [server.connect() for _ in range(connections)]
    for connection in opened:
        connection.sendall(READ * REQUESTS)
    made = -1
    # As long as any is made between two requests of another client, others may follow.
    while made != (made := server.inside(lambda: int(consumed.total))):
        for _ in range(20):
            assert server.get("/livez").status_code == 200
    for connection in opened:
        connection.close()

    assert 100 * connections <= made <= 100 * connections * WORTH
