"""Settling over HTTP in batches: all that can be settled is, and the rest is named."""

import random
from collections import Counter
from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker, fill, tick
from tests.transport.http.running import Running, error_of

VERBS = ["ack", "nack", "reject", "visibility"]


@pytest.fixture
def worker(server: Running) -> Worker:
    server.create(num_partitions=1)
    fill(server, 10)
    return Worker(server)


def test_a_batch_is_acked_at_once(worker: Worker) -> None:
    """One request settles everything of a poll and tells how far the group is."""
    done = worker.batch("ack", worker.poll())

    assert done == {
        "success": True,
        "settled": 10,
        "errors": [],
        "progress": [
            {
                "group": "billing",
                "topic": "orders",
                "partition": 0,
                "committed_offset": 10,
                "in_flight_count": 0,
            }
        ],
    }


def test_the_other_verbs_have_batches_too(worker: Worker, clock: FakeClock) -> None:
    """Nack and reject tell what became of the messages, an extension its deadline."""
    messages = worker.poll()
    extended = worker.batch("visibility", messages, timeout="2m")
    nacked = worker.batch("nack", messages[:4], delay="5s", reason="busy")
    rejected = worker.batch("reject", messages[4:])
    clock.advance(5_000)
    tick(worker.server)

    assert extended["new_deadline"] == "2023-11-14T22:15:20.000000000Z"
    assert (nacked["settled"], nacked["requeued"], nacked["dlq"]) == (4, 4, 0)
    assert (rejected["settled"], rejected["dlq"]) == (6, 6)
    assert [one["offset"] for one in worker.poll()] == [0, 1, 2, 3]


def test_each_message_may_have_its_own_words(worker: Worker, clock: FakeClock) -> None:
    """``messages`` carry a reason and a delay each; what they leave out comes from the batch."""
    first, second, third = worker.poll(3)
    body = {
        "delay": "1s",
        "messages": [
            {"receipt_handle": first["receipt_handle"], "delay": "10s"},
            {"receipt_handle": second["receipt_handle"], "reason": "busy"},
            {"receipt_handle": third["receipt_handle"]},
        ],
    }
    reply = worker.server.post("/messages/nack/batch", body)
    clock.advance(1_000)
    tick(worker.server)
    soon = [one["offset"] for one in worker.poll(2)]

    assert (reply.status_code, reply.json()["settled"]) == (200, 3)
    assert soon == [1, 2]


@pytest.mark.parametrize("verb", VERBS)
def test_a_malformed_receipt_refuses_the_whole_batch(worker: Worker, verb: str) -> None:
    """One bad receipt among 10,000 is named by its place, and nothing is changed."""
    messages = worker.poll()
    good = [one["receipt_handle"] for one in messages]
    receipts = (good * 1_000)[:10_000]
    receipts[6_789] = "orders:0:oops:1:0123456789abcdef"
    body = {"receipts": receipts, "extension_seconds": 5}
    reply = worker.server.post(f"/messages/{verb}/batch", body)
    status, text = error_of(reply)

    assert status == 400
    assert text.startswith("receipts[6789]: not a receipt")
    assert reply.json()["code"] == "invalid_receipt"
    assert worker.batch("ack", messages)["settled"] == 10


def test_stale_receipts_are_named_and_the_rest_is_settled(worker: Worker, clock: FakeClock) -> None:
    """Used, repeated, expired and forged receipts have their own errors, by index."""
    first, second = worker.poll(2)
    assert worker.settle("ack", first).status_code == 200
    clock.advance(30_000)
    tick(worker.server)
    rest = worker.poll(3)
    forged = {"receipt_handle": "orders:0:5:1:0123456789abcdef"}
    done = worker.batch("ack", [first, second, *rest, rest[0], forged])

    assert (done["success"], done["settled"]) == (False, 3)
    assert [(one["index"], one["code"]) for one in done["errors"]] == [
        (0, "stale_receipt"),
        (1, "receipt_expired"),
        (5, "stale_receipt"),
        (6, "unknown_receipt"),
    ]
    assert all(one["error"] for one in done["errors"])


def test_a_batch_may_span_groups_topics_and_partitions(server: Running) -> None:
    """Receipts of different leases are sorted out by the broker."""
    server.create("orders", num_partitions=2)
    server.create("refunds", num_partitions=1)
    for partition in (0, 1):
        fill(server, 3, partition=partition)
    fill(server, 3, topic="refunds")
    one = Worker(server, "one", topics=["orders", "refunds"])
    two = Worker(server, "two")
    messages = [*one.poll(), *two.poll()]
    random.Random(1).shuffle(messages)
    done = one.batch("ack", messages)

    assert (done["success"], done["settled"]) == (True, 15)
    assert {(p["group"], p["topic"], p["partition"]) for p in done["progress"]} == {
        ("one", "orders", 0),
        ("one", "orders", 1),
        ("one", "refunds", 0),
        ("two", "orders", 0),
        ("two", "orders", 1),
    }
    assert {p["committed_offset"] for p in done["progress"]} == {3}


BAD_BODIES: list[tuple[dict[str, Any], str]] = [
    ({}, "at least one receipt is required"),
    ({"receipts": []}, "at least one receipt is required"),
    ({"messages": []}, "at least one receipt is required"),
    ({"receipts": ["x"], "messages": [{}]}, "give receipts or messages, not both"),
    ({"receipts": "x"}, "receipts: expected array"),
    ({"receipts": [1]}, "receipts[0]: expected str"),
    ({"receipts": ["x"] * 10_001}, "receipts: expected array of length <= 10000"),
    ({"receipts": [""]}, "receipts[0]: receipt_handle is required"),
    ({"messages": [{}]}, "messages[0]: receipt_handle is required"),
    ({"messages": [{"delay": "soon"}]}, "messages[0].delay: 'soon' is not a duration"),
    ({"receipts": ["x"], "delay": "-1s"}, "delay: must be between"),
]


@pytest.mark.parametrize(("body", "text"), BAD_BODIES)
def test_bad_batches_are_refused(server: Running, body: dict[str, Any], text: str) -> None:
    """What is no batch answers 400 and names the field."""
    status, found = error_of(server.post("/messages/nack/batch", body))

    assert status == 400
    assert found.startswith(text)


def test_ten_thousand_receipts_are_settled_in_one_request(server: Running) -> None:
    """The largest batch there may be is acked, however its receipts are mixed."""
    server.create(num_partitions=1)
    fill(server, 10_000)
    worker = Worker(server, max_in_flight=10_000)
    messages = [one for _ in range(10) for one in worker.poll(1_000)]
    random.Random(2).shuffle(messages)
    done = worker.batch("ack", messages)

    assert (done["success"], done["settled"]) == (True, 10_000)
    assert done["progress"][0]["committed_offset"] == 10_000


def test_every_message_ends_exactly_once(server: Running) -> None:
    """Polls, acks, nacks, rejections at random: nothing is lost, nothing ends twice."""
    count, chance = 400, random.Random(3)
    server.create(num_partitions=3)
    for partition in range(3):
        fill(server, count, partition=partition)
    workers = [Worker(server, "g", mode="shared", max_retries=3) for _ in range(3)]
    acked: Counter[tuple[int, int]] = Counter()
    dead: Counter[tuple[int, int]] = Counter()
    while sum(acked.values()) + sum(dead.values()) < 3 * count:
        worker = chance.choice(workers)
        held = worker.poll(chance.randrange(1, 200))
        chance.shuffle(held)
        while held:
            some = [held.pop() for _ in range(min(len(held), chance.randrange(1, 50)))]
            places = [(one["partition"], one["offset"]) for one in some]
            match chance.randrange(5):
                case 0 | 1:
                    assert worker.batch("ack", some)["settled"] == len(some)
                    acked.update(places)
                case 2:
                    for message, place in zip(some, places, strict=True):
                        reply = worker.settle("nack", message, delay="0s").json()
                        dead.update([place] if reply["action"] == "dlq" else [])
                case 3:
                    assert worker.batch("reject", some)["dlq"] == len(some)
                    dead.update(places)
                case _:
                    late = worker.batch("nack", some, delay="0s")
                    gone = [one for one in some if one["delivery_count"] == 4]
                    dead.update((one["partition"], one["offset"]) for one in gone)
                    assert late["dlq"] == len(gone)
    everything = {(partition, offset) for partition in range(3) for offset in range(count)}

    assert set(acked) | set(dead) == everything
    assert not set(acked) & set(dead)
    assert max([*acked.values(), *dead.values()]) == 1
    assert all(worker.poll() == [] for worker in workers)
    server.await_inside(server.broker.dead_letters.idle())
    lag = server.get("/groups/g/lag").json()
    assert lag["lag"] == 0
    assert sum(part["in_flight"] + part["waiting"] for part in lag["partitions"]) == 0
    assert sum(part["dead"] for part in lag["partitions"]) == sum(dead.values())
    assert server.get("/topics/orders.dlq").json()["total_messages"] == sum(dead.values())
