"""How long others wait while many connections ask for messages and never read a reply."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection

import msgspec

import goqueue
from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.goqueue import GoQueueClient
from benchmarks.percentiles import percentile
from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload
from goqueue.wire import calls
from goqueue.wire.packet import Kind, Operation, encode_packet

CONNECTIONS = 200
REQUESTS = 50
"""Requests sent ahead on each of them."""

MESSAGES = 2_000
VALUE_BYTES = 500
RATE_HZ = 50
SECONDS = 10
TIMEOUT_SECONDS = 60

HTTP_P99 = Metric(name="HTTP p99", unit="ms", better=Better.LOWER)
NATIVE_P99 = Metric(name="native p99", unit="ms", better=Better.LOWER)
WORST = Metric(name="worst", unit="ms", better=Better.LOWER)

Flood = Callable[[GoQueueClient, str], tuple[int, bytes]]
"""Makes the port and the bytes that one of the connections sends."""


def trials(bench: Bench) -> list[Trial]:
    """Publish and read at a fixed pace: alone, and beside either kind of flood."""
    name = bench.goqueue.name
    floods = {"alone": None, "HTTP reads": http_reads, "native fetches": native_fetches}
    return [
        Trial(case=case, peer=name, measure=partial(measure, bench, flood))
        for case, flood in floods.items()
    ]


def measure(bench: Bench, flood: Flood | None) -> Measured:
    """Return how long the requests of two others took, from the moment each was due."""
    client = bench.goqueue.client()
    topic, quiet = bench.fresh_topic(), bench.fresh_topic()
    client.create(topic, partitions=1)
    client.create(quiet, partitions=1)
    pool = bench.pool(VALUE_BYTES // 2)
    text = (Message(key, value.hex().encode()) for key, value in pool.take(MESSAGES))
    client.publish(topic, text)
    pace = Pace(rate_hz=RATE_HZ, count=RATE_HZ * SECONDS)
    with ThreadPoolExecutor(2) as threads, connections(client, topic, flood):
        by_http = threads.submit(ask_by_http, client, quiet, pace)
        by_native = threads.submit(ask_by_native, client, quiet, pace)
        waits = by_http.result(), by_native.result()
    client.delete(topic)
    client.delete(quiet)
    http, native = (percentile(each, 0.99) * 1000 for each in waits)
    return {HTTP_P99: http, NATIVE_P99: native, WORST: max(map(max, waits)) * 1000}


@contextmanager
def connections(client: GoQueueClient, topic: str, flood: Flood | None) -> Iterator[None]:
    """Hold connections whose replies nobody reads."""
    with ExitStack() as opened:
        if flood is not None:
            port, request = flood(client, topic)
            sockets = [
                opened.enter_context(socket.create_connection((LOOPBACK, port), TIMEOUT_SECONDS))
                for _ in range(CONNECTIONS)
            ]
            for each in sockets:
                each.sendall(request)
        yield


def http_reads(client: GoQueueClient, topic: str) -> tuple[int, bytes]:
    """Read the most messages a request may, again and again."""
    head = f"GET /topics/{topic}/partitions/0/messages?limit=1000 HTTP/1.1\r\nhost: {LOOPBACK}"
    return client.http_port, f"{head}\r\n\r\n".encode() * REQUESTS


def native_fetches(client: GoQueueClient, topic: str) -> tuple[int, bytes]:
    """Fetch the most bytes a request may, again and again."""
    fetch = calls.Fetch(topic, 4 << 20, 0, [calls.FetchPart(0, 0)])
    packets = [_packet(Operation.HELLO, calls.Hello(calls.PROTOCOL_VERSION, "unread"), 0)]
    packets += [_packet(Operation.FETCH, fetch, number) for number in range(1, REQUESTS + 1)]
    return client.port, b"".join(packets)


def ask_by_http(client: GoQueueClient, topic: str, pace: Pace) -> list[float]:
    """Publish a message, or read one, by turns."""
    connection = HTTPConnection(LOOPBACK, client.http_port, timeout=TIMEOUT_SECONDS)

    def ask(number: int) -> None:
        if number % 2:
            connection.request("GET", f"/topics/{topic}/partitions/0/messages?limit=1")
        else:
            body = b'{"messages":[{"value":"x"}]}'
            connection.request("POST", f"/topics/{topic}/messages", body)
        response = connection.getresponse()
        response.read()
        assert response.status == 200, f"HTTP {response.status}"

    try:
        return _timed(pace, ask, time.perf_counter())
    finally:
        connection.close()


def ask_by_native(client: GoQueueClient, topic: str, pace: Pace) -> list[float]:
    """Publish a message and wait for its place."""
    started = time.perf_counter()
    with goqueue.connect(client.address) as link, link.producer(topic, linger_ms=0) as producer:
        return _timed(pace, lambda _number: producer.publish(b"x", key=b"key"), started)


WORKLOAD = Workload(
    name="unread",
    title=f"waits of others beside {CONNECTIONS} connections with {REQUESTS} reads nobody takes",
    trials=trials,
    rounds_max=3,
)


def _timed(pace: Pace, ask: Callable[[int], object], started: float) -> list[float]:
    """Return how long each took from when it was due; the first begins with connecting."""
    waits = []
    for number in range(pace.count):
        time.sleep(max(0.0, pace.delay(number, started=started)))
        ask(number)
        waits.append(time.perf_counter() - pace.due(number, started=started))
    return waits


def _packet(operation: Operation, call: calls.Call, number: int) -> bytes:
    pieces = encode_packet(
        operation=operation,
        kind=Kind.REQUEST,
        correlation=number,
        header=msgspec.msgpack.encode(call),
    )
    return b"".join(pieces)
