"""Readers on a road that breaks in the middle of a reply, or changes it."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import goqueue
from goqueue.base.errors import DataLossError

MESSAGES = 60_000
VALUE = b"v" * 200

Road = Callable[[int, bytes], bytes | None]
"""Gives what becomes of bytes that come from the broker at a position; None ends the connection."""


class Relay:
    """Forwards bytes to a broker and back, each connection by the next road."""

    def __init__(self, target: str, roads: list[Road]) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._roads = roads
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                road = self._roads[min(self.connections, len(self._roads) - 1)]
                self.connections += 1
                threading.Thread(target=self._serve, args=(client, road), daemon=True).start()

    def _serve(self, client: socket.socket, road: Road) -> None:
        with client, socket.create_connection(self._target) as broker:
            there = threading.Thread(target=self._pump, args=(client, broker, straight))
            there.start()
            self._pump(broker, client, road)
            there.join()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, road: Road) -> None:
        position = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                out = road(position, data)
                if out is None:
                    break
                sink.sendall(out)
                position += len(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def straight(_: int, data: bytes) -> bytes:
    return data


def cut_at(limit: int) -> Road:
    return lambda position, data: data if position + len(data) < limit else None


def flipped_at(place: int) -> Road:
    def flip(position: int, data: bytes) -> bytes:
        if not position <= place < position + len(data):
            return data
        changed = bytearray(data)
        changed[place - position] ^= 0x10
        return bytes(changed)

    return flip


@pytest.fixture(autouse=True)
def through_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything come over the road, which is what has faults here."""
    monkeypatch.setattr("goqueue.client.blocking.chunks.IN_PLACE_MESSAGES_MIN", 10 * MESSAGES)


@pytest.fixture
def filled(client: goqueue.Client, topic: str) -> str:
    """A topic of a few megabytes in one partition, so that a reply is larger than a buffer."""
    producer = client.producer(topic)
    for number in range(MESSAGES):
        producer.send(b"%07d" % number + VALUE, partition=0)
    producer.flush(60)
    return topic


@pytest.fixture
def relayed(address: str) -> Iterator[Callable[[list[Road]], Relay]]:
    relays: list[Relay] = []

    def make(roads: list[Road]) -> Relay:
        relays.append(Relay(address, roads))
        return relays[-1]

    yield make
    for relay in relays:
        relay.close()


@pytest.mark.parametrize("limit", [1_000_000, 3_000_000, 6_000_000])
def test_a_reply_cut_in_the_middle_is_asked_for_again(
    filled: str, relayed: Callable[[list[Road]], Relay], limit: int
) -> None:
    """Nothing is missing and nothing comes twice, though the next request was already sent."""
    # The first connection is the client's own, the others are the reader's.
    relay = relayed([straight, cut_at(limit), straight])
    with goqueue.connect(relay.address) as client:
        numbers = [int((m.value or b"")[:7]) for m in client.read(filled, end="latest")]

    assert numbers == list(range(MESSAGES))
    assert relay.connections == 3


@pytest.mark.parametrize("as_batches", [False, True])
def test_a_frame_that_came_damaged_is_not_skipped(
    filled: str, relayed: Callable[[list[Road]], Relay], *, as_batches: bool
) -> None:
    """A bit that flipped on the way is an error, not a quiet end of the data."""
    relay = relayed([straight, flipped_at(2_500_000)])
    with goqueue.connect(relay.address) as client:
        stream = client.read_batches(filled) if as_batches else client.read(filled)
        with pytest.raises(DataLossError, match="came damaged"):
            list(stream)
