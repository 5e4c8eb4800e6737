"""How fast a consumer that speaks HTTP gets on: polls of a hundred messages, each acked at once."""

import json
import time
from functools import partial
from http.client import HTTPConnection
from typing import Any

from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.peers.peer import PARTITIONS
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload

POLL_MESSAGES = 100
VALUE_BYTES = 100
TIMEOUT_SECONDS = 60
CASE = "poll of 100, batch ack"


def trials(bench: Bench) -> list[Trial]:
    """One member of one group, on one connection that is kept alive."""
    return [Trial(case=CASE, peer=bench.goqueue.name, measure=partial(consume, bench))]


def consume(bench: Bench) -> Measured:
    """Poll and ack until nothing is left, parsing every answer."""
    client = bench.goqueue.client()
    topic = bench.fresh_topic()
    client.create(topic, partitions=PARTITIONS)
    # A tenth of the native load: every message is leased, written as JSON and acked.
    expected = max(bench.options.messages // 10, POLL_MESSAGES)
    pool = bench.pool(VALUE_BYTES // 2)
    client.publish(
        topic, (Message(key, value.hex().encode()) for key, value in pool.take(expected))
    )
    connection = HTTPConnection(LOOPBACK, client.http_port, timeout=TIMEOUT_SECONDS)
    joined = _ask(
        connection, "POST", f"/groups/{topic}/join", {"client_id": "b", "topics": [topic]}
    )
    poll = f"/groups/{topic}/poll?member_id={joined['member_id']}&limit={POLL_MESSAGES}&timeout=0s"
    done = 0
    start = time.perf_counter()
    while done < expected:
        polled = _ask(connection, "GET", poll)
        receipts = [one["receipt_handle"] for part in polled["messages"].values() for one in part]
        assert receipts, f"nothing left after {done} of {expected} messages"
        done += _ask(connection, "POST", "/messages/ack/batch", {"receipts": receipts})["settled"]
    seconds = time.perf_counter() - start
    _ask(connection, "DELETE", f"/groups/{topic}?force=true")
    connection.close()
    client.delete(topic)
    assert done == expected, f"acked {done} of {expected} messages"
    return {RATE: done / seconds}


def _ask(connection: HTTPConnection, method: str, path: str, body: object = None) -> dict[str, Any]:
    connection.request(method, path, None if body is None else json.dumps(body))
    response = connection.getresponse()
    text = response.read()
    assert response.status == 200, f"HTTP {response.status}: {text[:200]!r}"
    answer: dict[str, Any] = json.loads(text)
    return answer


WORKLOAD = Workload(
    name="http-consume",
    title="HTTP, one member, polls of 100 messages of 100 B and a batch ack of each",
    trials=trials,
)
