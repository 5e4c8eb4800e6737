"""Polling over HTTP: members lease messages, and nobody else's state is touched."""

import re
from pathlib import Path
from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker, fill, values
from tests.transport.http.running import Running, error_of

RECEIPT = re.compile(r"orders:0:(\d+):1:[0-9a-f]{16}")


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_poll_answers_as_the_contract_has_it(server: Running, prefix: str) -> None:
    """Every message carries its place, its time, its parts, its receipt and its count."""
    server.create(num_partitions=1)
    server.publish(
        {"value": "one", "key": "k", "headers": {"a": "b"}, "priority": "high"}, {"value": "two"}
    )
    worker = Worker(server)
    reply = server.get(f"{prefix}/groups/billing/poll", member_id=worker.member, timeout="0s")
    body = reply.json()
    first, second = body["messages"]["0"]

    assert reply.status_code == 200
    assert set(body) == {"messages", "next_offset", "generation"}
    assert body["next_offset"] == {"0": 2}
    assert RECEIPT.fullmatch(first.pop("receipt_handle"))
    assert first == {
        "offset": 0,
        "timestamp": "2023-11-14T22:13:20.000000000Z",
        "key": "k",
        "value": "one",
        "topic": "orders",
        "partition": 0,
        "priority": "high",
        "headers": {"a": "b"},
        "delivery_count": 1,
    }
    assert (second["offset"], second["value"], second["priority"]) == (1, "two", "normal")
    assert "key" not in second


def test_what_is_leased_is_not_leased_again(server: Running) -> None:
    """A second poll gets the next messages, a third nothing, and both objects are then empty."""
    server.create(num_partitions=1)
    fill(server, 5)
    worker = Worker(server)
    first, second = worker.poll(3), worker.poll(3)
    empty = worker.ask().json()

    assert (values(first), values(second)) == (["m0", "m1", "m2"], ["m3", "m4"])
    assert (empty["messages"], empty["next_offset"]) == ({}, {})


def test_groups_do_not_disturb_each_other(server: Running) -> None:
    """While one group holds a message, another gets it too (trap A3)."""
    server.create(num_partitions=1)
    fill(server, 1)
    one, other = Worker(server, "one"), Worker(server, "other")

    assert values(one.poll()) == ["m0"]
    assert values(other.poll()) == ["m0"]


def test_the_limit_counts_over_all_partitions(server: Running) -> None:
    """``limit`` is for the whole poll (trap G4), and ``max_messages`` is another name for it."""
    server.create(num_partitions=3)
    for partition in range(3):
        fill(server, 10, partition=partition)
    worker = Worker(server)

    assert len(worker.poll(12)) == 12
    named = worker.ask(max_messages=5).json()["messages"]
    assert sum(map(len, named.values())) == 5
    assert len(worker.poll(1_000_000)) == 13


def test_a_group_of_several_topics_names_them(server: Running) -> None:
    """Every topic of a subscription is polled (trap G4), under "topic:partition"."""
    server.create("orders", num_partitions=1)
    server.create("refunds", num_partitions=1)
    fill(server, 1)
    fill(server, 2, topic="refunds")
    worker = Worker(server, topics=["orders", "refunds"])
    body = worker.ask().json()

    assert {key: values(part) for key, part in body["messages"].items()} == {
        "orders:0": ["m0"],
        "refunds:0": ["m0", "m1"],
    }
    assert body["next_offset"] == {"orders:0": 1, "refunds:0": 2}


def test_urgent_messages_come_first(server: Running) -> None:
    """The list is in the order of delivery: lanes share, and inside a lane offsets ascend."""
    server.create(num_partitions=1)
    for number in range(6):
        server.publish({"value": f"n{number}"})
    server.publish({"value": "c0", "priority": "critical"}, {"value": "c1", "priority": "critical"})
    polled = Worker(server).poll(4)
    order = values(polled)

    assert order[0] == "c0"
    assert [one for one in order if one[0] == "c"] == ["c0", "c1"]
    assert [one for one in order if one[0] == "n"] == ["n0", "n1"]
    assert len(order) == 4


def test_bytes_that_are_not_text_come_as_base64(server: Running) -> None:
    """What is not UTF-8 is base64 by itself; ``encoding=base64`` makes every value so."""
    server.create(num_partitions=1)
    server.publish({"value": "/w==", "key": "/w==", "encoding": "base64", "key_encoding": "base64"})
    server.publish({"value": "text"})
    first, second = Worker(server, "one").poll()
    wrapped = Worker(server, "two").poll(encoding="base64")

    assert (first["value"], first["encoding"], first["key_encoding"]) == ("/w==", *["base64"] * 2)
    assert (second["value"], "encoding" in second) == ("text", False)
    assert [one["value"] for one in wrapped] == ["/w==", "dGV4dA=="]


def test_a_redelivered_message_has_its_true_count(server: Running) -> None:
    """The count goes up with each delivery and with nothing else (trap A4)."""
    server.create(num_partitions=1)
    fill(server, 1)
    worker = Worker(server)
    counts: list[Any] = []
    for _ in range(3):
        (message,) = worker.poll()
        counts.append((message["delivery_count"], message["receipt_handle"].split(":")[3]))
        assert worker.settle("nack", message, delay="0s").status_code == 200

    assert counts == [(1, "1"), (2, "2"), (3, "3")]


BAD_QUERIES = {
    "timeout=soon": "invalid timeout",
    "timeout=-5s": "invalid timeout",
    "timeout=" + "9" * 70 + "s": "invalid timeout",
    "limit=0": "invalid limit",
    "limit=-1": "invalid limit",
    "limit=many": "invalid limit",
    "limit=99999999999999999999": "invalid limit",
    "generation=-1": "invalid generation",
    "encoding=utf-16": "encoding: must be",
}


@pytest.mark.parametrize("query", BAD_QUERIES)
def test_bad_questions_are_refused_and_lease_nothing(server: Running, query: str) -> None:
    """Absurd values answer 400, name themselves and change nothing."""
    server.create(num_partitions=1)
    fill(server, 1)
    worker = Worker(server)
    reply = server.client.get(f"/groups/billing/poll?member_id={worker.member}&{query}")
    status, text = error_of(reply)

    assert status == 400
    assert text.startswith(BAD_QUERIES[query])
    assert len(worker.poll()) == 1


def test_absurdly_long_waits_are_cut_to_a_minute(server: Running) -> None:
    """A timeout of centuries is clamped; messages that are there are answered at once."""
    server.create(num_partitions=1)
    fill(server, 1)

    assert len(Worker(server).poll(timeout="999999999h")) == 1


def test_strangers_are_refused(server: Running) -> None:
    """No member 400, an unknown group or member 404, a generation that is over 409."""
    server.create(num_partitions=1)
    worker = Worker(server)
    stale = server.post("/groups/billing/join", {"client_id": "b", "topics": ["orders"]})
    assert stale.status_code == 200
    unknown = server.get("/groups/nobody/poll", member_id=worker.member)
    stranger = server.get("/groups/billing/poll", member_id="stranger")

    assert error_of(server.get("/groups/billing/poll")) == (400, "member_id is required")
    assert error_of(unknown) == (404, "group not found")
    assert error_of(stranger)[0] == 404
    assert error_of(worker.ask(generation=worker.generation))[0] == 409
    assert worker.ask(generation=0).status_code == 200


def test_a_head_request_leases_nothing(server: Running) -> None:
    """Nobody would see what it leased: 405."""
    server.create(num_partitions=1)
    fill(server, 1)
    worker = Worker(server)
    query = {"member_id": worker.member, "timeout": "0s"}
    reply = server.client.head("/groups/billing/poll", params=query)

    assert (reply.status_code, reply.headers["allow"]) == (405, "GET")
    assert len(worker.poll()) == 1


def test_a_member_holds_no_more_than_it_may(server: Running) -> None:
    """``max_in_flight`` bounds what one member has leased."""
    server.create(num_partitions=1)
    fill(server, 10)
    worker = Worker(server, max_in_flight=4)
    held = worker.poll()

    assert len(held) == 4
    assert worker.poll() == []
    assert worker.batch("ack", held[:2])["settled"] == 2
    assert len(worker.poll()) == 2


def test_delivery_survives_a_restart(tmp_path: Path) -> None:
    """After a restart acked messages stay acked, and a receipt of before settles still."""
    clock = FakeClock()
    with Running(tmp_path / "data", clock=clock) as server:
        server.create(num_partitions=1)
        fill(server, 3)
        worker = Worker(server)
        first, second = worker.poll(2)
        assert worker.settle("ack", first).status_code == 200
    with Running(tmp_path / "data", clock=clock) as server:
        worker.server = server
        rest = worker.poll()
        late = worker.settle("ack", second)
        offsets = server.get("/groups/billing/offsets").json()

        assert values(rest) == ["m2"]
        assert (late.status_code, late.json()["committed_offset"]) == (200, 2)
        assert offsets["topics"] == {"orders": {"0": 2}}
