"""Publishing JSON of ten fields into a topic that enforces a schema, beside one that does not.

The yardstick is what people do without a broker that knows schemas: each message is parsed and
handed to ``jsonschema`` before it is sent. Only that check is timed, in this process.
"""

import json
import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import jsonschema

import goqueue
from benchmarks.messages import Message
from benchmarks.peers.peer import PARTITIONS
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload

POOL = 1_000
CHECKED = 5_000
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "customer": {"type": "string", "maxLength": 50},
        "total": {"type": "number"},
        "currency": {"enum": ["EUR", "USD", "JPY"]},
        "paid": {"type": "boolean"},
        "email": {"type": "string", "pattern": "^[a-z0-9]+@[a-z.]+$"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 9},
        "placed_at": {"type": "string"},
        "quantity": {"type": "integer"},
        "address": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
    "required": ["id", "customer", "total", "currency"],
    "additionalProperties": False,
}


def orders(count: int) -> Iterator[Message]:
    """Yield messages that fit, over and over from one pool."""
    random = Random(1)
    pool = [
        json.dumps(
            {
                "id": number,
                "customer": f"customer {random.randrange(1_000)}",
                "total": random.randrange(10_000) / 100,
                "currency": random.choice(["EUR", "USD", "JPY"]),
                "paid": random.random() < 0.5,
                "email": f"c{random.randrange(1_000)}@example.com",
                "tags": ["new", "gift"],
                "placed_at": "2026-01-31T12:00:00Z",
                "quantity": random.randrange(9),
                "address": {"city": "Lisbon"},
            }
        ).encode()
        for number in range(POOL)
    ]
    for number in range(count):
        yield Message(f"key-{number % POOL}".encode(), pool[number % POOL])


def trials(bench: Bench) -> list[Trial]:
    """Publish the same messages with and without a schema, and check them by hand."""
    name = bench.goqueue.name
    return [
        Trial(case="enforced", peer=name, measure=partial(publish, bench, is_enforced=True)),
        Trial(case="not enforced", peer=name, measure=partial(publish, bench, is_enforced=False)),
        Trial(case="enforced", peer="jsonschema", measure=check_by_hand),
    ]


def publish(bench: Bench, *, is_enforced: bool) -> Measured:
    """Publish one by one; every message is stored."""
    topic, count = bench.fresh_topic(), bench.options.messages
    client = bench.goqueue.client()
    with goqueue.connect(client.address) as connected:
        connected.schemas.register(topic, SCHEMA)
        validation = "on" if is_enforced else "off"
        connected.create_topic(topic, partitions=PARTITIONS, schema_validation=validation)
    seconds = client.publish(topic, orders(count))
    assert client.count(topic) == count
    client.delete(topic)
    return {RATE: count / seconds}


def check_by_hand() -> Measured:
    """Parse and check each message, as a careful producer would."""
    validator = jsonschema.Draft7Validator(SCHEMA)
    values = [value for _, value in orders(CHECKED)]
    start = time.perf_counter()
    assert all(validator.is_valid(json.loads(value)) for value in values)
    return {RATE: CHECKED / (time.perf_counter() - start)}


WORKLOAD = Workload(
    name="schema", title="publish JSON of ten fields with a schema enforced", trials=trials
)
