"""How fast GoQueue takes and gives messages by HTTP, a thousand to a request."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from typing import Any

from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.peers.goqueue import GoQueueClient
from benchmarks.peers.peer import PARTITIONS
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload

BATCH_MESSAGES = 1000
CONNECTIONS = 3
VALUE_BYTES = 100
TIMEOUT_SECONDS = 60


def trials(bench: Bench) -> list[Trial]:
    """Publish in and read out over connections that are kept alive."""
    name = bench.goqueue.name
    return [
        Trial(case="in", peer=name, measure=partial(publish, bench)),
        Trial(case="out", peer=name, measure=partial(read, bench)),
    ]


def publish(bench: Bench) -> Measured:
    """Post batches whose JSON was made beforehand, as a load generator does."""
    client = bench.goqueue.client()
    topic = bench.fresh_topic()
    client.create(topic, partitions=PARTITIONS)
    batches = _batches_per_connection(bench)
    body = _body(bench)

    def post(connection: HTTPConnection, _number: int) -> int:
        done = 0
        for _ in range(batches):
            connection.request("POST", f"/topics/{topic}/messages", body)
            results = _answer(connection)["results"]
            assert not any("error" in result for result in results), "a message was refused"
            done += len(results)
        return done

    messages, seconds = _timed(client, post)
    found = client.count(topic)
    client.delete(topic)
    assert messages == found, f"published {messages}, found {found}"
    return {RATE: messages / seconds}


def read(bench: Bench) -> Measured:
    """Get each partition from its start, parsing every answer."""
    client = bench.goqueue.client()
    topic = bench.fresh_topic()
    client.create(topic, partitions=PARTITIONS)
    expected = _batches_per_connection(bench) * BATCH_MESSAGES * CONNECTIONS
    pool = bench.pool(VALUE_BYTES // 2)
    text = (Message(key, value.hex().encode()) for key, value in pool.take(expected))
    client.publish(topic, text)

    def get(connection: HTTPConnection, partition: int) -> int:
        offset = done = 0
        while True:
            connection.request(
                "GET",
                f"/topics/{topic}/partitions/{partition}/messages"
                f"?offset={offset}&limit={BATCH_MESSAGES}",
            )
            answer = _answer(connection)
            if not answer["messages"]:
                return done
            done += len(answer["messages"])
            offset = answer["next_offset"]

    messages, seconds = _timed(client, get)
    client.delete(topic)
    assert messages == expected, f"read {messages} of {expected} messages"
    return {RATE: messages / seconds}


WORKLOAD = Workload(
    name="http",
    title="HTTP, 1000 messages of 100 B to a request, three connections",
    trials=trials,
)


def _timed(client: GoQueueClient, work: Callable[[HTTPConnection, int], int]) -> tuple[int, float]:
    connections = [
        HTTPConnection(LOOPBACK, client.http_port, timeout=TIMEOUT_SECONDS)
        for _ in range(CONNECTIONS)
    ]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for connection in connections:
            connection.connect()
        start = time.perf_counter()
        messages = sum(threads.map(work, connections, range(CONNECTIONS)))
        seconds = time.perf_counter() - start
    for connection in connections:
        connection.close()
    return messages, seconds


def _answer(connection: HTTPConnection) -> dict[str, Any]:
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, f"HTTP {response.status}: {body[:200]!r}"
    answer: dict[str, Any] = json.loads(body)
    return answer


def _body(bench: Bench) -> bytes:
    messages = [
        {"key": key, "value": value}
        for key, value in bench.pool(VALUE_BYTES).take_text(BATCH_MESSAGES)
    ]
    return json.dumps({"messages": messages}).encode()


def _batches_per_connection(bench: Bench) -> int:
    # A fifth of the native load: JSON is that much slower.
    return max(1, bench.options.messages // 5 // BATCH_MESSAGES // CONNECTIONS)
