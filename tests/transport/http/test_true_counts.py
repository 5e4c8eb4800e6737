"""Every number of messages that HTTP shows is one of messages, not of offsets."""

import re

from tests.transport.http.queueing import Worker
from tests.transport.http.running import Running
from tests.transport.http.test_transactions import Speaker


def fill(server: Running, topic: str) -> None:
    """Publish four messages among marks of transactions, aborted and cancelled messages."""
    speaker = Speaker(server, f"of-{topic}")
    for verb, values in (("commit", ("a", "b")), ("abort", ("x", "y")), ("commit", ("c",))):
        speaker.done("begin")
        for value in values:
            speaker.done("publish", topic=topic, value=value, partition=0)
        speaker.done(verb)
    server.publish(
        {"value": "never", "delay": "1h"}, {"value": "later", "delay": "1h"}, topic=topic
    )
    assert server.client.delete(f"/topics/{topic}/delayed/0/8").status_code == 200


def metric(server: Running, name: str, *labels: str) -> float:
    wanted = [line for line in server.get("/metrics").text.splitlines() if line.startswith(name)]
    (line,) = [line for line in wanted if all(label in line for label in labels)]
    return float(re.split(r"\s+", line)[-1])


def test_topics_lag_lanes_and_metrics_count_messages(server: Running) -> None:
    """Ten offsets, four messages: in the topic, the statistics, the lag and the gauges."""
    server.create(num_partitions=1)
    worker = Worker(server)
    assert worker.poll() == []
    fill(server, "orders")
    topic = server.get("/topics/orders").json()

    assert topic["partition_offsets"]["0"]["latest"] >= 9
    assert topic["total_messages"] == 4
    assert server.get("/stats").json()["topic_stats"]["orders"]["TotalMessages"] == 4
    lag = server.get("/groups/billing/lag").json()
    assert (lag["lag"], lag["partitions"][0]["delayed"]) == (4, 1)
    assert metric(server, "goqueue_consumer_lag{", 'topic="orders"') == 4
    lanes = server.get("/priority/stats").json()["topics"]["orders"]["partitions"]["0"]
    assert (sum(lanes["total"]), sum(lanes["pending"])) == (4, 4)
    first, *_ = worker.poll()
    assert worker.settle("ack", first).status_code == 200
    assert server.get("/groups/billing/lag").json()["lag"] == 3


def test_dead_letters_are_counted_as_they_are_listed(server: Running) -> None:
    """The depth is how many letters there are, in the list, in the page and in the gauge."""
    server.create(num_partitions=1)
    server.create("orders.dlq", num_partitions=1)
    fill(server, "orders.dlq")
    page = server.get("/dlq/orders").json()

    assert [one["offset"] for one in page["messages"]] == [0, 1, 6]
    assert page["depth"] == page["count"] == 3
    (listed,) = server.get("/dlq").json()["dlqs"]
    assert listed["depth"] == 3
    assert metric(server, "goqueue_consumer_dlq_depth", "orders") == 3
