"""The parts of the load that publish."""

import json
import random
from typing import Any, Final

from benchmarks.soak.http_calls import Http
from benchmarks.soak.stage import LATER, ONCE, ORDERS, PLAIN, TABLE, TYPED, WORK, Stage
from goqueue.base.errors import DelayedNotFoundError

KEYS: Final = 2_000
VALUE_BYTES: Final = 200
TABLE_KEYS: Final = 5_000


def _value() -> bytes:
    return random.randbytes(VALUE_BYTES // 2).hex().encode()


def _key(keys: int) -> bytes:
    return b"key-%d" % random.randrange(keys)


def _traceparent() -> dict[str, str]:
    return {"traceparent": f"00-{random.randbytes(16).hex()}-{random.randbytes(8).hex()}-01"}


def in_batches(stage: Stage) -> None:
    """Half of everything: batches with keys and priorities, some with a trace of the sender."""
    with stage.connect() as client, client.producer(ORDERS) as producer:
        for due in stage.batches(0.5):
            for number in due:
                fields: dict[str, Any] = {}
                if number % 10 == 0:
                    fields["priority"] = random.randrange(5)
                if number % 50 == 0:
                    fields["headers"] = _traceparent()
                producer.send(_value(), key=_key(KEYS), **fields)
            stage.counts["published in batches"] += len(due)


def one_by_one(stage: Stage) -> None:
    """Every message waits for its ack."""
    with stage.connect() as client, client.producer(ORDERS, linger_ms=0) as producer:
        for due in stage.batches(0.05):
            for _ in due:
                producer.publish(_value(), key=_key(KEYS))
            stage.counts["published one by one"] += len(due)


def over_http(stage: Stage) -> None:
    """Put several messages into a request, some with a priority and a trace."""
    with Http(stage.http) as http:
        for due in stage.batches(0.15):
            messages: list[dict[str, object]] = [
                {"key": _key(KEYS).decode(), "value": _value().decode()} for _ in due
            ]
            if due.start % 10 == 0:
                messages[0] |= {"priority": "high", "headers": _traceparent()}
            http.post(f"/topics/{PLAIN}/messages", {"messages": messages})
            stage.counts["published over HTTP"] += len(due)


def to_table(stage: Stage) -> None:
    """Keys that come again and again, and are sometimes deleted."""
    with stage.connect() as client, client.producer(TABLE) as producer:
        for due in stage.batches(0.1):
            for number in due:
                producer.send(None if number % 20 == 0 else _value(), key=_key(TABLE_KEYS))
            stage.counts["published to be compacted"] += len(due)


def to_work(stage: Stage) -> None:
    """Messages that will fail."""
    with stage.connect() as client, client.producer(WORK) as producer:
        for due in stage.batches(0.05):
            for _ in due:
                producer.send(_value(), key=_key(KEYS))
            stage.counts["published to fail"] += len(due)


def delayed(stage: Stage) -> None:
    """Delays of up to twenty seconds; a third is cancelled, some get another time."""
    with stage.connect() as client, client.producer(LATER) as producer:
        names: list[str] = []
        for due in stage.batches(0.04):
            for number in due:
                name = f"d-{random.getrandbits(48)}"
                producer.send(_value(), key=_key(KEYS), delay=random.uniform(0, 20), delay_id=name)
                if number % 3 == 0:
                    names.append(name)
            producer.flush()
            stage.counts["published with a delay"] += len(due)
            for name in names:
                try:
                    if random.random() < 0.8:
                        client.cancel_delayed(LATER, id=name)
                        stage.counts["delays cancelled"] += 1
                    else:
                        client.reschedule_delayed(LATER, id=name, delay=5)
                        stage.counts["delays moved"] += 1
                except DelayedNotFoundError:
                    stage.counts["delays over before they were cancelled"] += 1
            names.clear()


def with_dedup_ids(stage: Stage) -> None:
    """Send a quarter of all twice."""
    with stage.connect() as client, client.producer(ONCE) as producer:
        for due in stage.batches(0.04):
            for number in due:
                text = f"id-{random.getrandbits(64)}"
                for _ in range(2 if number % 4 == 0 else 1):
                    producer.send(_value(), key=_key(KEYS), dedup_id=text)
            stage.counts["published with a dedup id"] += len(due)


def with_schema(stage: Stage) -> None:
    """One in twenty does not fit, and becomes a dead letter."""
    with stage.connect() as client, client.producer(TYPED) as producer:
        for due in stage.batches(0.03):
            for number in due:
                good = {"id": number, "name": "x" * 50}
                value = {"name": "no id"} if number % 20 == 0 else good
                producer.send(json.dumps(value).encode(), key=_key(KEYS))
            stage.counts["published with a schema"] += len(due)
