"""Starting and stopping the listener."""

import asyncio
import signal
import socket
import threading
from pathlib import Path

import pytest

from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.storage.local import LocalDisk
from goqueue.transport.http import connection as connection_module
from goqueue.transport.http.server import HttpServer
from tests.transport.http.running import Running

REQUEST = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def test_the_port_that_was_taken_is_told(server: Running) -> None:
    """Port 0 takes a free port, and the address names it."""
    host, _, port = server.address.rpartition(":")

    assert host == "127.0.0.1"
    assert 0 < int(port) < 65_536
    assert server.get("/health").status_code == 200


def test_a_taken_port_is_an_error_of_the_start(server: Running, tmp_path: Path) -> None:
    """Two listeners on one port: the second fails when it starts, with the system's error."""

    async def start_another() -> None:
        config = BrokerConfig(data_dir=str(tmp_path / "other"))
        broker = Broker(config, LocalDisk(tmp_path / "other"))
        await HttpServer(Service(broker)).start(server.address)

    with pytest.raises(OSError, match="address already in use"):
        asyncio.run(start_another())


def test_signals_stay_with_who_started_the_server(tmp_path: Path) -> None:
    """The listener touches no signal, so Ctrl-C reaches the program that runs it."""

    async def life() -> tuple[object, object]:
        broker = Broker(BrokerConfig(data_dir=str(tmp_path)), LocalDisk(tmp_path))
        await broker.start()
        server = HttpServer(Service(broker))
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        await server.start("127.0.0.1:0")
        during = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        await server.stop()
        await server.stop()
        await broker.stop()
        return before, during

    before, during = asyncio.run(life())
    assert during == before


def test_stopping_closes_idle_connections(tmp_path: Path) -> None:
    """A connection that waits for nothing does not hold the broker up."""
    server = Running(tmp_path)
    with server.connect() as fresh, server.connect() as used:
        used.sendall(REQUEST)
        used.recv(65_536)
        server.close()
        endings = fresh.recv(1), used.recv(1)

    assert endings == (b"", b"")
    with pytest.raises(ConnectionRefusedError):
        server.connect()


def test_stopping_answers_what_is_under_way(tmp_path: Path) -> None:
    """A request whose body is still on its way is taken to its end, then the connection closes."""
    server = Running(tmp_path)
    server.create(num_partitions=1)
    body = b'{"messages":[{"value":"last"}]}'
    with server.connect() as connection:
        connection.sendall(
            b"POST /topics/orders/messages HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        going = connection.recv(65_536)
        stopping = threading.Thread(target=server.close)
        stopping.start()
        _wait_until_refused(server)
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    stopping.join()
    with Running(tmp_path) as again:
        stored = again.read()["messages"]

    assert going.startswith(b"HTTP/1.1 100 ")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer
    assert [message["value"] for message in stored] == ["last"]


def test_stopping_does_not_wait_forever(tmp_path: Path) -> None:
    """A client that never finishes its request is cut off after the time allowed."""
    server = Running(tmp_path, shutdown_timeout_ms=50)
    with server.connect() as connection:
        connection.sendall(
            b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
            b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n"
        )
        connection.recv(65_536)
        server.close()
        connection.settimeout(30)
        ending = _rest_of(connection)

    assert not ending.startswith(b"HTTP/1.1 2")


def test_a_connection_that_says_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an idle new connection nor one that drips its head is kept longer than allowed."""
    monkeypatch.setattr(connection_module, "HEAD_SECONDS_MAX", 0.05)
    with Running(tmp_path) as server, server.connect() as silent, server.connect() as dripping:
        dripping.sendall(b"GET /health HTTP/1.1\r\n")
        endings = _rest_of(silent), _rest_of(dripping)

    assert endings == (b"", b"")


def test_a_peer_that_does_not_read_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply nobody takes does not stay in memory longer than allowed."""
    monkeypatch.setattr(connection_module, "WRITE_SECONDS_MAX", 0.05)
    with Running(tmp_path) as server, server.connect() as connection:
        server.create(num_partitions=1)
        server.publish({"value": "x" * 15_000_000})
        server.client.close()
        connection.sendall(
            b"GET /topics/orders/partitions/0/messages HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        while "0 connections" not in repr(server.http):
            pass
        received = _rest_of(connection)

    assert len(received) < 15_000_000


def _wait_until_refused(server: Running) -> None:
    while True:
        try:
            server.connect().close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            # It was in the queue of the listener as that closed.
            continue


def _rest_of(connection: socket.socket) -> bytes:
    try:
        return b"".join(iter(lambda: connection.recv(65_536), b""))
    except ConnectionResetError:
        return b""
