"""Transactions, what comes and goes, and those who only look."""

import itertools
import random

from benchmarks.soak.consuming import POLL_SECONDS
from benchmarks.soak.http_calls import Http
from benchmarks.soak.stage import COOKED, ORDERS, PLAIN, Stage


def transforming(stage: Stage) -> None:
    """Consume, transform, produce; every fifth transaction is aborted and done again."""
    with (
        stage.connect() as client,
        client.consumer("cook", [PLAIN], mode="shared") as consumer,
        client.producer(COOKED, transactional_id="cook-1") as producer,
    ):
        for number in itertools.count():
            messages = consumer.poll(20, timeout=POLL_SECONDS)
            if messages:
                if number % 5 == 0:
                    aborted = producer.transaction()
                    aborted.begin()
                    for message in messages:
                        aborted.send(message.value, key=message.key)
                        aborted.ack(message)
                    aborted.abort()
                    stage.counts["transactions aborted"] += 1
                with producer.transaction() as tx:
                    for message in messages:
                        tx.send(message.value, key=message.key)
                        tx.ack(message)
                stage.counts["transactions committed"] += 1
            if stage.is_over:
                return
            stage.pause(0.1)


def new_producers(stage: Stage) -> None:
    """Use connections, producers and transactional ids once, and never again."""
    for number in stage.every(0.5):
        with stage.connect() as client:
            with client.producer(ORDERS) as producer:
                producer.send(b"from a new producer", key=b"new")
            if number % 4 == 0:
                name = f"once-{random.getrandbits(40)}"
                with (
                    client.producer(COOKED, transactional_id=name) as producer,
                    producer.transaction() as tx,
                ):
                    tx.send(b"from a new id")
                stage.counts["transactional ids"] += 1
        with Http(stage.http) as http:
            http.post(f"/topics/{PLAIN}/messages", {"messages": [{"value": "alone"}]})
        stage.counts["connections"] += 2


def coming_and_going(stage: Stage) -> None:
    """Topics and groups of new names that are deleted again."""
    with stage.connect() as client:
        for number in stage.every(2):
            name = f"passing-{random.getrandbits(40)}"
            client.create_topic(name, partitions=2)
            with client.producer(name) as producer:
                for _ in range(20):
                    producer.send(b"short-lived", key=b"k", delay=0.05 if number % 2 else None)
            group = f"group-{name}"
            with client.consumer(group, [name], ordering="key", mode="shared") as consumer:
                for message in consumer.poll(20, timeout=POLL_SECONDS):
                    if random.random() < 0.1:
                        message.reject("soak")
                    else:
                        message.ack()
            client.delete_group(group, force=True)
            client.delete_topic(name)
            if any(topic.name == f"{name}.dlq" for topic in client.list_topics()):
                client.delete_topic(f"{name}.dlq")
            stage.counts["topics and groups deleted"] += 1


def looking(stage: Stage) -> None:
    """Metrics, traces, lists."""
    paths = ("/metrics", "/readyz", "/traces/search?topic=orders&limit=50", "/groups/keyed/lag",
             "/transactions", "/dlq", "/reliability/stats", "/topics")  # fmt: skip
    with Http(stage.http) as http, stage.connect() as client:
        for number in stage.every(1):
            http.text("GET", paths[number % len(paths)])
            client.overview()
            stage.counts["looks"] += 1
