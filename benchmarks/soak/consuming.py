"""The parts of the load that consume."""

import contextlib
import itertools
import random

import goqueue
from benchmarks.soak.http_calls import Http
from benchmarks.soak.stage import LATER, ONCE, ORDERS, PLAIN, TABLE, TYPED, WORK, Stage
from goqueue.base.errors import TopicNotFoundError

POLL_SECONDS = 0.5


def _ack_all(stage: Stage, consumer: goqueue.Consumer, name: str, *, polls: int = 0) -> None:
    """Ack what comes, for so many polls or until the load ends."""
    for number in itertools.count(1):
        messages = consumer.poll(500, timeout=POLL_SECONDS)
        for message in messages:
            message.ack()
        stage.counts[f"acked by {name}"] += len(messages)
        if stage.is_over or number == polls:
            return


def shared(stage: Stage) -> None:
    """One of the members that lease from every partition."""
    with stage.connect() as client, client.consumer("shared", [ORDERS], mode="shared") as consumer:
        _ack_all(stage, consumer, "shared")


def exclusive(stage: Stage) -> None:
    """Own partitions, in a group that others join and leave."""
    with stage.connect() as client, client.consumer("exclusive", [ORDERS, ONCE]) as consumer:
        _ack_all(stage, consumer, "exclusive")


def passing(stage: Stage) -> None:
    """Join the exclusive group for some seconds, leave, come again by a new connection."""
    for _ in stage.every(3):
        with stage.connect() as client, client.consumer("exclusive", [ORDERS, ONCE]) as consumer:
            _ack_all(stage, consumer, "passing", polls=5)
        stage.counts["members that left"] += 1


def keyed(stage: Stage) -> None:
    """In the order of keys; a few messages fail once and hold up their key."""
    with (
        stage.connect() as client,
        client.consumer("keyed", [ORDERS], mode="shared", ordering="key") as consumer,
    ):
        while not stage.is_over:
            messages = consumer.poll(500, timeout=POLL_SECONDS)
            for message in messages:
                if message.delivery_count == 1 and random.random() < 0.01:
                    message.nack(delay=0.2, reason="soak")
                else:
                    message.ack()
            stage.counts["acked in key order"] += len(messages)


def failing(stage: Stage) -> None:
    """Retries, rejections, leases that run out, dead letters."""
    with (
        stage.connect() as client,
        client.consumer(
            "work", [WORK], mode="shared", max_retries=2, visibility_timeout="5s"
        ) as consumer,
    ):
        while not stage.is_over:
            messages = consumer.poll(100, timeout=POLL_SECONDS)
            for message in messages:
                chance = random.random()
                if chance < 0.3:
                    message.nack(delay=0.5, reason="soak: try again")
                elif chance < 0.33:
                    message.reject("soak: never")
                elif chance < 0.34:
                    message.extend(10)
                    message.ack()
                elif chance > 0.001:
                    message.ack()
            stage.counts["settled in all ways"] += len(messages)


def redriving(stage: Stage) -> None:
    """Dead letters go back; what has come back too often is purged."""
    with stage.connect() as client:
        for number in stage.every(10):
            for topic in (WORK, TYPED):
                with contextlib.suppress(TopicNotFoundError):
                    client.dlq_peek(topic, limit=10)
                    if number % 5 == 4 or topic == TYPED:
                        client.dlq_purge(topic)
                    else:
                        client.dlq_redrive(topic)
                    stage.counts["redrives and purges"] += 1


def released(stage: Stage) -> None:
    """Take delayed messages as they come due, and those of the typed topic."""
    with stage.connect() as client, client.consumer("later", [LATER, TYPED]) as consumer:
        _ack_all(stage, consumer, "later")


def over_http(stage: Stage) -> None:
    """Poll, ack most, nack some, leave and join again now and then."""
    with Http(stage.http) as http:
        for _ in stage.every(0.1):
            joined = http.post("/groups/http/join", {"client_id": "soak", "topics": [PLAIN]})
            member = joined["member_id"]
            for _ in range(200):
                path = f"/groups/http/poll?member_id={member}&limit=200&timeout=500ms"
                parts = http.get(path)["messages"].values()
                receipts = [one["receipt_handle"] for part in parts for one in part]
                if receipts[1:]:
                    http.post("/messages/ack/batch", {"receipts": receipts[1:]})
                if receipts:
                    http.post("/messages/nack", {"receipt_handle": receipts[0]})
                stage.counts["settled over HTTP"] += len(receipts)
                if stage.is_over:
                    break
            http.post("/groups/http/leave", {"member_id": member})


def as_stream(stage: Stage) -> None:
    """Read by offset, message by message and as batches, on new connections."""
    for number in stage.every(2):
        with stage.connect() as client:
            if number % 2:
                for batch in client.read_batches(TABLE):
                    stage.counts["rows read"] += batch.num_rows
            else:
                read = client.read(ORDERS, start=-1_000)
                stage.counts["rows read"] += sum(1 for _ in read)
