"""A bad network between a client and a broker: loses requests, loses answers, delays copies."""

import contextlib
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Self

from goqueue.wire.packet import Kind, Operation, Packet, PacketReader, encode_packet

SECONDS_MAX = 120


class Fate(Enum):
    """What becomes of a request."""

    PASS = auto()
    LOSE_REQUEST = auto()
    """The connection ends before the broker gets it."""
    LOSE_REPLY = auto()
    """The broker gets and answers it; the connection ends before the client hears of it."""
    SWALLOW = auto()
    """The broker gets and answers it; the client hears nothing and the connection stays."""
    DELAY = auto()
    """The connection ends; the broker gets the request when ``release`` is called."""


class Proxy:
    """Forwards packets; the fate of each request is planned by its operation."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._plans: dict[int, deque[Fate]] = defaultdict(deque)
        self._changed = threading.Condition()
        self.seen: dict[int, int] = defaultdict(int)
        self.sockets: set[socket.socket] = set()
        self.released = threading.Event()
        self.is_reachable = True
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def plan(self, operation: Operation, *fates: Fate) -> None:
        """Say what becomes of the next requests of a kind; the others pass."""
        self._plans[operation].extend(fates)

    def plans_end(self) -> None:
        """Let everything pass from now on."""
        self._plans.clear()

    def cut(self) -> None:
        """End every connection."""
        for one in list(self.sockets):
            _end(one)

    def release(self) -> None:
        """Deliver what was delayed."""
        self.released.set()

    def wait_for(self, operation: Operation, count: int = 1) -> None:
        """Return when the broker has answered so many requests of a kind."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.seen[operation] >= count, SECONDS_MAX)

    # In threads.

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_reachable:
                _end(client)
                continue
            try:
                broker = socket.create_connection(self._target, SECONDS_MAX)
            except OSError:
                _end(client)
                continue
            _Pair(self, client, broker).start()

    def take_fate(self, operation: int) -> Fate:
        plan = self._plans[operation]
        return plan.popleft() if plan else Fate.PASS

    def note(self, operation: int) -> None:
        with self._changed:
            self.seen[operation] += 1
            self._changed.notify_all()


class _Pair:
    """One connection of a client and its counterpart."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._fates: dict[int, Fate] = {}
        self._answered = threading.Event()
        self._is_client_gone = False
        broker.settimeout(None)

    def start(self) -> None:
        self._proxy.sockets |= {self._client, self._broker}
        for deed in (self._requests, self._replies):
            threading.Thread(target=self._run, args=(deed,), daemon=True).start()

    def _run(self, deed: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            deed()
        self._end()

    def _end(self) -> None:
        for one in (self._client, self._broker):
            self._proxy.sockets.discard(one)
            _end(one)

    def _requests(self) -> None:
        reader = PacketReader()
        while data := self._client.recv(1 << 18):
            for packet in reader.feed(data):
                fate = self._proxy.take_fate(packet.operation)
                if fate is Fate.LOSE_REQUEST:
                    return
                if fate is Fate.DELAY:
                    self._delay(packet)
                    return
                self._fates[packet.correlation] = fate
                self._broker.sendall(_raw(packet))

    def _delay(self, packet: Packet) -> None:
        """Let the client go; the broker's side waits and then delivers."""
        self._is_client_gone = True
        self._proxy.sockets.discard(self._client)
        _end(self._client)
        assert self._proxy.released.wait(SECONDS_MAX)
        self._fates[packet.correlation] = Fate.SWALLOW
        self._answered.clear()
        self._broker.sendall(_raw(packet))
        self._answered.wait(SECONDS_MAX)

    def _replies(self) -> None:
        reader = PacketReader(64 << 20, header_bytes_max=64 << 20)
        while data := self._broker.recv(1 << 18):
            for packet in reader.feed(data):
                fate = self._fates.pop(packet.correlation, Fate.PASS)
                self._proxy.note(packet.operation)
                self._answered.set()
                if fate is Fate.LOSE_REPLY:
                    return
                if fate is Fate.PASS and not self._is_client_gone:
                    self._client.sendall(_raw(packet))


def _raw(packet: Packet) -> bytes:
    return b"".join(
        encode_packet(
            operation=packet.operation,
            kind=Kind(packet.kind),
            correlation=packet.correlation,
            header=bytes(packet.header),
            payload=[packet.payload],
        )
    )


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
