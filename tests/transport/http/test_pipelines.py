"""Requests that come one behind the other: each has its own reply, and none more than its share."""

import asyncio
import json
import socket
import threading
from http import HTTPStatus

import pytest

from goqueue.transport.http import connection as connection_module
from goqueue.transport.http.app import App
from goqueue.transport.http.connection import (
    BODY_BYTES_AHEAD,
    HEADERS_MAX,
    REQUESTS_AHEAD,
    HttpConnection,
)
from goqueue.transport.http.exchange import Exchange
from goqueue.transport.http.hub import Hub
from goqueue.transport.http.reply import refusal
from tests.transport.http.running import Running

LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def publish(value: bytes) -> bytes:
    body = b'{"messages":[{"value":"%b"}]}' % value
    head = b"POST /topics/orders/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


@pytest.mark.parametrize("bad", [b"BAD\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 500])
def test_what_came_before_nonsense_is_answered_first(server: Running, bad: bytes) -> None:
    """A publish that was stored is answered as such, whatever comes behind it."""
    server.create(num_partitions=1)
    answer = server.exchange(publish(b"one") + LIVE + bad)

    assert statuses(answer)[:2] == [200, 200]
    assert statuses(answer)[2:] in ([400], [431])
    assert b"connection: close" in answer
    assert server.get("/topics/orders").json()["total_messages"] == 1


def test_nonsense_in_the_body_of_a_request_that_waits_is_not_half_a_request(
    server: Running,
) -> None:
    """A request whose body cannot be read is dropped; those before it have their replies."""
    server.create(num_partitions=1)
    broken = (
        b"POST /topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
        b"zz\r\n"
    )
    answer = server.exchange(LIVE + publish(b"one") + broken)

    assert statuses(answer) == [200, 200, 400]
    assert server.get("/topics/orders").json()["total_messages"] == 1


def test_a_patient_crowd_is_served(server: Running) -> None:
    """One behind the other, thousands of requests of one connection are answered."""
    total = 3_000
    with server.connect() as connection:
        sender = threading.Thread(target=_send_many, args=(connection, total))
        sender.start()
        answer = b""
        while answer.count(b"HTTP/1.1 ") < total:
            piece = connection.recv(65_536)
            assert piece, "the broker closed the connection"
            answer += piece
        sender.join(60)

    assert statuses(answer) == [200] * total


def _send_many(connection: socket.socket, total: int) -> None:
    for _ in range(total // 30):
        connection.sendall(LIVE * 30)


class Wire(asyncio.Transport):
    """A peer that sends what it is told to, and notes whether it is listened to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_heard = True
        self.sent = b""
        self.aborted = asyncio.Event()

    def close(self) -> None:
        """Wait for a peer that does not read."""

    def abort(self) -> None:
        self.aborted.set()

    def pause_reading(self) -> None:
        self.is_heard = False

    def resume_reading(self) -> None:
        self.is_heard = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep nothing: what is written is sent at once."""


class Waiting(App):
    """Answers a request when it is told to."""

    def __init__(self) -> None:
        super().__init__([])
        self.requests: list[Exchange] = []

    async def answer(self, exchange: Exchange) -> None:
        self.requests.append(exchange)
        await asyncio.Event().wait()


def test_a_body_is_not_read_far_ahead() -> None:
    """P11: however many requests are before it, a body waits in the socket until it is its turn."""

    async def scenario() -> list[bool]:
        app, wire = Waiting(), Wire()
        connection = HttpConnection(Hub(app, connections_max=9, lost=lambda: None))
        connection.connection_made(wire)
        connection.data_received(LIVE * 3)
        connection.data_received(
            b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n"
        )
        connection.data_received(bytes(BODY_BYTES_AHEAD))
        heard = [wire.is_heard]
        connection.data_received(b"x")
        heard.append(wire.is_heard)
        for number in range(3):
            await asyncio.sleep(0)
            await app.requests[number].send(refusal(HTTPStatus.OK, "", code=""))
            heard.append(wire.is_heard)
        await asyncio.sleep(0)
        app.requests[3].take()
        connection.go_on(app.requests[3])
        heard.append(wire.is_heard)
        connection.connection_lost(None)
        return heard

    assert asyncio.run(scenario()) == [True, False, False, False, False, True]


def test_requests_are_not_taken_far_ahead() -> None:
    """While one is being answered a few others may come, and no more than that."""

    async def scenario() -> list[bool]:
        app, wire = Waiting(), Wire()
        connection = HttpConnection(Hub(app, connections_max=9, lost=lambda: None))
        connection.connection_made(wire)
        heard = []
        for _ in range(REQUESTS_AHEAD + 1):
            connection.data_received(LIVE)
            heard.append(wire.is_heard)
        await asyncio.sleep(0)
        await app.requests[0].send(refusal(HTTPStatus.OK, "", code=""))
        heard.append(wire.is_heard)
        connection.connection_lost(None)
        return heard

    assert asyncio.run(scenario()) == [True] * REQUESTS_AHEAD + [False, True]


def test_what_follows_an_upgrade_is_not_a_request(server: Running) -> None:
    """Nothing else is spoken here, and the bytes of another protocol are not mistaken for ours."""
    upgrade = (
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\nupgrade: h2c\r\nconnection: Upgrade\r\n\r\n"
    )
    with server.connect() as connection:
        connection.sendall(upgrade + b"POST /nope HTTP/1.1\r\ncontent-length: 40\r\n\r\n")
        answer = b""
        try:
            answer += connection.recv(65_536)
            connection.sendall(LIVE)
            while piece := connection.recv(65_536):
                answer += piece
        except OSError:
            pass

    assert statuses(answer) == [200]


def test_trailers_are_no_headers(server: Running) -> None:
    """What comes behind a body cannot change what the head said."""
    body = b'{"name":"trailed"}'
    request = (
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\nsec-fetch-site: cross-site\r\n\r\n"
    )
    answer = server.exchange(request % (len(body), body) + LAST)

    assert statuses(answer) == [201, 200]


def test_headers_have_a_number(server: Running) -> None:
    """As many as anybody needs; one more answers 431 and says so."""
    head = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    few = head + b"a: b\r\n" * (HEADERS_MAX - 2) + b"\r\n"
    many = head + b"a: b\r\n" * (HEADERS_MAX - 1) + b"\r\n"
    refused = server.exchange(many)

    assert statuses(server.exchange(few)) == [200]
    assert statuses(refused) == [431]
    assert str(HEADERS_MAX) in json.loads(refused.partition(b"\r\n\r\n")[2])["error"]


def test_a_body_that_waits_to_be_asked_for_is_asked_for(server: Running) -> None:
    """Also where another request is before it."""
    body = b'{"name":"behind"}'
    head = (
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
        b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    )
    with server.connect() as connection:
        connection.settimeout(30)
        connection.sendall(LIVE + head % len(body))
        answer = b""
        while b"HTTP/1.1 100 " not in answer:
            answer += connection.recv(65_536)
        connection.sendall(body)
        while b"HTTP/1.1 201 " not in answer:
            answer += connection.recv(65_536)

    assert statuses(answer) == [200, 100, 201]


def test_a_body_that_did_not_wait_to_be_asked_for_is_taken(server: Running) -> None:
    """Once it is here there is nothing to ask for, and the connection serves what follows it."""
    request = (
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
        b'expect: 100-continue\r\ncontent-length: 18\r\n\r\n{"name":"at-once"}'
    )

    assert statuses(server.exchange(request + LAST)) == [201, 200]


def test_an_address_without_a_path_is_the_root(server: Running) -> None:
    """As the standard has it."""
    answer = server.exchange(
        b"GET http://x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )

    assert statuses(answer) == [200]
    assert answer.endswith(server.get("/").content)


def test_a_connection_that_is_closed_and_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where less is left than makes the broker wait: a slot is not held for ever."""
    monkeypatch.setattr(connection_module, "WRITE_SECONDS_MAX", 0.05)

    async def scenario() -> bool:
        wire = Wire()
        connection = HttpConnection(Hub(Waiting(), connections_max=9, lost=lambda: None))
        connection.connection_made(wire)
        connection.data_received(b"nonsense\r\n\r\n")
        await asyncio.wait_for(wire.aborted.wait(), 60)
        return wire.sent.startswith(b"HTTP/1.1 400 ")

    assert asyncio.run(scenario())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: y\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n", 200),
        (b"GET /livez HTTP/1.0\r\n\r\n", 200),
    ],
)
def test_a_request_has_one_host(server: Running, head: bytes, status: int) -> None:
    """None or two are no request; in HTTP/1.0 there need not be any."""
    answer = server.exchange(head)

    assert statuses(answer) == [status]
    assert (b"a request has one Host header" in answer) == (status == 400)
