"""Requests of HTTP answered without a task, and the same ones served by tasks, end alike."""

import asyncio
import json
import re
import secrets
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from goqueue.runtime import broker as broker_module
from goqueue.runtime import commit
from goqueue.service.service import Service
from goqueue.transport.http.api import operations
from goqueue.transport.http.app import App
from goqueue.transport.http.connection import HttpConnection
from goqueue.transport.http.exchange import Exchange
from goqueue.transport.http.hub import Hub
from tests.runtime.rig import Rig
from tests.transport.http.test_pipelines import Wire
from tests.transport.test_fast_requests import UNSTEADY, files_of, in_virtual_time

STEPS = 80
CONNECTIONS = 4
PAUSE_MS = 500
"""Of the time of the simulation."""
TOPICS = ("orders", "orders", "orders", "orders", "unique", "none", "bad name")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    # However slow this machine is just now, the quick path is taken.
    monkeypatch.setattr(commit, "INLINE_SYNC_SECONDS_MAX", 1e9)


class LocalWire(Wire):
    """A peer on this machine, who may do everything."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9) if name == "peername" else default


class CountingApp(App):
    """An application whose requests take the quick way where they may, or never do."""

    is_always_slow = False
    quick_count = 0

    def is_quick(self, exchange: Exchange) -> bool:
        is_quick = not self.is_always_slow and super().is_quick(exchange)
        self.quick_count += is_quick
        return is_quick


class Road:
    """A broker and the connections to it."""

    def __init__(self, *, is_quick: bool) -> None:
        self.rig = Rig()
        self.is_quick = is_quick
        self.receipts: list[str] = []

    async def open(self) -> None:
        service = Service(await self.rig.start())
        self.app = CountingApp(operations(service), gate=service.gate, turns=service.turns)
        self.app.is_always_slow = not self.is_quick
        polling = self.rig.broker.consume._polling  # noqa: SLF001 - receipts that repeat
        homes = self.rig.broker.consume.ledgers._homes._homes  # noqa: SLF001 - see above
        polling._leasing._nonce = lambda: len(homes) + 1  # noqa: SLF001 - see above
        hub = Hub(self.app, connections_max=99, lost=lambda: None)
        self.wires = [LocalWire() for _ in range(CONNECTIONS)]
        self.connections = [HttpConnection(hub) for _ in self.wires]
        for connection, wire in zip(self.connections, self.wires, strict=True):
            connection.connection_made(wire)

    async def ask(self, asked: Sequence[tuple[int, bytes]]) -> None:
        """Send the bytes of one moment, each on its connection, and wait until all is answered."""
        for place, data in asked:
            self.connections[place].data_received(data)
        for _ in range(400):
            await asyncio.sleep(0)
        self.rig.clock.advance(PAUSE_MS)
        await asyncio.sleep(PAUSE_MS / 1_000)
        found = re.findall(rb'"receipt_handle":"([^"]+)"', b"".join(one.sent for one in self.wires))
        self.receipts = [receipt.decode() for receipt in found]

    @property
    def said(self) -> list[bytes]:
        return [re.sub(rb"date: [^\r]*\r\n", b"", wire.sent) for wire in self.wires]

    def counts(self) -> list[str]:
        own = [line for line in self.rig.metrics_text().splitlines() if line[:8] == "goqueue_"]
        return sorted(line for line in own if not any(name in line for name in UNSTEADY))


def request(method: str, path: str, body: object = None, *, more: str = "") -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n"
    return f"{head}{more}\r\n".encode() + content


def a_publish(random: Random, *, is_plain: bool) -> bytes:
    """Return a request to publish: one plain message; or perhaps one that needs more, or is bad."""
    message: dict[str, Any] = {"value": random.choice(["", "v", 'a "value" in it', "ü" * 40])}
    if random.random() < 0.7:
        message["key"] = random.choice(["", "k", f"k{random.randrange(9)}"])
    if is_plain:
        return request(
            "POST", f"/topics/{random.choice(TOPICS[:-1])}/messages", {"messages": [message]}
        )
    if random.random() < 0.1:
        message |= random.choice(
            [{"priority": "high"}, {"headers": {"h": "1"}}, {"delay": "5s"}, {"dedup_id": "1"}]
        )
    if random.random() < 0.05:
        message["value"] = 5
    more = random.choice([""] * 9 + ["origin: http://elsewhere\r\n", "traceparent: odd\r\n"])
    path = f"/topics/{random.choice(TOPICS).replace(' ', '%20')}/messages"
    sent = request("POST", path, {"messages": [message] * random.choice([1] * 9 + [3])}, more=more)
    return sent if random.random() < 0.95 else sent.replace(b"}", b"]", 1)


def of_a_moment(random: Random, receipts: list[str], member: str) -> list[tuple[int, bytes]]:
    """Return what is sent at the same time: publishes of many connections, requests behind one
    another on one of them, perhaps in pieces, or what a worker asks.
    """
    if random.random() < 0.4:
        verb = random.choice(["ack", "poll", "next", "next"])
        receipt = random.choice(receipts) if receipts and random.random() < 0.9 else "nonsense"
        place = random.randrange(CONNECTIONS)
        if verb == "ack":
            return [(place, request("POST", "/messages/ack", {"receipt_handle": receipt}))]
        if verb == "poll":
            path = f"/groups/g/poll?member_id={member}&timeout=10ms&limit={random.randint(1, 3)}"
            return [(place, request("GET", path))]
        body = {"member_id": member, "timeout": "10ms", "limit": random.choice([1, 1, 2, 0])}
        settled = {random.choice(["ack", "ack", "nack"]): [receipt]} if receipts else {}
        return [(place, request("POST", "/groups/g/next", body | settled))]
    if random.random() < 0.5:
        # In which order requests of several connections are appended is not promised, so that
        # these are all of one kind.
        places = random.sample(range(CONNECTIONS), random.randint(1, CONNECTIONS))
        return [(place, a_publish(random, is_plain=True)) for place in places]
    count = random.choice([1, 1, 1, 2, 12])
    data = b"".join(a_publish(random, is_plain=False) for _ in range(count))
    place, cut = (
        random.randrange(CONNECTIONS),
        random.choice([0, 0, 0, random.randrange(len(data))]),
    )
    return [(place, piece) for piece in (data[:cut], data[cut:]) if piece]


async def work(road: Road, seed: int) -> list[object]:
    random = Random(seed)
    await road.open()
    broker, disk = road.rig.broker, road.rig.disk
    broker.create_topic("orders", partitions=2)
    broker.create_topic("unique", partitions=2, settings={"dedup_window_ms": 60_000})
    join = {"client_id": "c", "topics": ["orders"], "mode": "shared"}
    await road.ask([(0, request("POST", "/groups/g/join", join))])
    found = re.search(rb'"member_id":"([^"]+)"', road.wires[0].sent)
    assert found is not None, road.wires[0].sent
    for _ in range(STEPS):
        if random.random() < 0.04:
            disk.fill_up()
        elif random.random() < 0.12:
            disk.make_room()
        await road.ask(of_a_moment(random, road.receipts, found[1].decode()))
    ledgers = [list(hosted.ledger.snapshot()) for hosted in broker.consume.ledgers]
    for connection in road.connections:
        connection.connection_lost(None)
    return [*ledgers, dict(files_of(disk.crash(), "logs"))]


@pytest.mark.parametrize("seed", range(4))
def test_requests_without_a_task_end_like_those_with_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same replies in the same order, the same files, the same counts."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0")
    quick, general = Road(is_quick=True), Road(is_quick=False)
    left = [in_virtual_time(work(road, seed)) for road in (quick, general)]

    assert quick.said == general.said
    assert left[0] == left[1]
    assert quick.counts() == general.counts()
    assert quick.app.quick_count > STEPS
    assert general.app.quick_count == 0
