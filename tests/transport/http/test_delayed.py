"""Delayed messages over HTTP, as anybody with curl meets them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from goqueue.testing.clock import FakeClock
from goqueue.wire.times import format_time_us
from tests.transport.http.running import Running, error_of

HOUR_MS = 3_600_000
NOT_FOUND = "delayed message not found or already delivered"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(tmp_path: Path, clock: FakeClock) -> Iterator[Running]:
    with Running(tmp_path, clock=clock) as running:
        yield running


def at(clock: FakeClock, delay_ms: int) -> str:
    return format_time_us(clock.now_us() + delay_ms * 1_000)


def pass_time(server: Running, clock: FakeClock, duration_ms: int) -> None:
    clock.advance(duration_ms)
    server.inside(server.broker.delays.timer.tick)


def delete(server: Running, path: str) -> httpx.Response:
    return server.client.delete(path)


def values(page: dict[str, Any]) -> list[str]:
    return [message["value"] for message in page["messages"]]


def test_a_delayed_message_is_hidden_until_it_is_due(server: Running, clock: FakeClock) -> None:
    """The result says when, reads leave it out and say so, and at its time it is there (A10)."""
    server.create(num_partitions=1)
    first, second = server.publish({"value": "later", "delay": "5s"}, {"value": "now"})

    assert first == {
        "partition": 0, "offset": 0, "delayed": True, "deliverAt": at(clock, 5_000)
    }  # fmt: skip
    assert second == {"partition": 0, "offset": 1}
    page = server.read()
    assert values(page) == ["now"]
    assert page["next_offset"] == 2
    assert page["hidden"] == {"count": 1, "offsets": [0]}
    shown = server.read(delayed="show")
    assert values(shown) == ["later", "now"]
    assert shown["messages"][0]["deliver_at"] == at(clock, 5_000)
    assert "hidden" not in shown
    pass_time(server, clock, 4_999)
    assert values(server.read()) == ["now"]
    pass_time(server, clock, 1)
    page = server.read()
    assert values(page) == ["later", "now"]
    assert "hidden" not in page


def test_a_delay_beats_a_time_and_the_past_is_now(server: Running, clock: FakeClock) -> None:
    """delay before deliverAt; zero, negative and past mean at once, in the partition asked for."""
    server.create(num_partitions=3)
    results = server.publish(
        {"value": "a", "delay": "1h", "deliverAt": at(clock, 60_000)},
        {"value": "b", "deliverAt": at(clock, 60_000)},
        {"value": "c", "delay": "-5s", "partition": 2},
        {"value": "d", "delay": "0", "partition": 2},
        {"value": "e", "deliverAt": "2001-01-01T00:00:00Z", "partition": 2},
    )

    assert [one.get("deliverAt") for one in results] == [
        at(clock, HOUR_MS), at(clock, 60_000), None, None, None
    ]  # fmt: skip
    assert [one["partition"] for one in results[2:]] == [2, 2, 2]
    assert values(server.read(2)) == ["c", "d", "e"]


def test_a_delayed_message_goes_where_its_key_leads(server: Running) -> None:
    """Its explicit partition is ignored, even one that does not exist; its key is not."""
    server.create(num_partitions=4)
    (plain,) = server.publish({"value": "p", "key": "user-7"})
    other = (plain["partition"] + 1) % 4
    keyed, absent = server.publish(
        {"value": "k", "key": "user-7", "delay": "1h", "partition": other},
        {"value": "n", "key": "user-7", "delay": "1h", "partition": 99},
    )

    assert keyed["partition"] == absent["partition"] == plain["partition"]


def test_delays_are_listed_by_place(server: Running, clock: FakeClock) -> None:
    """Every partition's, with the time left; a page at a time; an unknown topic has none (A7)."""
    server.create(num_partitions=3)
    server.publish(*[{"value": str(n), "delay": "1h"} for n in range(5)])
    pass_time(server, clock, 60_000)
    everything = server.get("/topics/orders/delayed").json()

    assert everything["count"] == everything["pending"] == 5
    places = [(one["partition"], one["offset"]) for one in everything["messages"]]
    assert len(set(places)) == 5
    assert everything["messages"][0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "deliver_at": at(clock, HOUR_MS - 60_000),
        "time_remaining": "59m0s",
        "state": "pending",
        "preview": "0",
        "value_bytes": 1,
    }
    page = server.get("/topics/orders/delayed", skip=3, limit=1).json()
    assert (page["count"], page["skip"], page["limit"]) == (1, 3, 1)
    assert [(one["partition"], one["offset"]) for one in page["messages"]] == places[3:4]
    empty = server.get("/topics/nowhere/delayed")
    assert empty.status_code == 200
    assert empty.json()["messages"] == []


def test_one_is_found_by_its_place(server: Running, clock: FakeClock) -> None:
    """By offset, by partition and offset; ambiguous offsets ask back; the state is told."""
    server.create(num_partitions=2)
    server.publish(*[{"value": str(n), "delay": f"{n + 1}h"} for n in range(3)])
    one = server.get("/topics/orders/delayed/1").json()

    assert (one["partition"], one["offset"], one["state"]) == (0, 1, "pending")
    assert error_of(server.get("/topics/orders/delayed/0"))[0] == 400
    placed = server.get("/topics/orders/delayed/0", partition=1).json()
    assert placed == server.get("/topics/orders/delayed/1/0").json()
    assert error_of(server.get("/topics/orders/delayed/x")) == (400, "invalid offset")
    assert error_of(server.get("/topics/orders/delayed/9"))[0] == 404
    assert error_of(server.get("/topics/orders/delayed/9/0"))[0] == 404
    assert error_of(server.get("/topics/nowhere/delayed/0"))[0] == 404
    pass_time(server, clock, HOUR_MS)
    done = server.get("/topics/orders/delayed/0/0").json()
    assert (done["state"], done["time_remaining"]) == ("delivered", "0s")


def test_a_cancelled_message_is_never_read(server: Running, clock: FakeClock) -> None:
    """Not at once, not at its time, not after it; once only (A8)."""
    server.create(num_partitions=1)
    server.publish({"value": "no", "delay": "5s"}, {"value": "yes", "delay": "5s"})
    reply = delete(server, "/topics/orders/delayed/0/0")

    assert reply.status_code == 200
    assert reply.json() == {"canceled": True, "topic": "orders", "partition": 0, "offset": 0}
    assert values(server.read()) == []
    pass_time(server, clock, 6_000)
    page = server.read()
    assert values(page) == ["yes"]
    assert page["hidden"] == {"count": 1, "offsets": [0]}
    assert server.get("/topics/orders/delayed/0/0").json()["state"] == "canceled"
    for place in ("0/0", "0/1", "0/7"):
        assert error_of(delete(server, f"/topics/orders/delayed/{place}")) == (404, NOT_FOUND)
    assert error_of(delete(server, "/topics/orders/delayed/7/0"))[0] == 404
    assert error_of(delete(server, "/topics/orders/delayed/a/0")) == (400, "invalid partition ID")
    assert error_of(delete(server, "/topics/orders/delayed/0/a")) == (400, "invalid offset")


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_message_is_given_another_time(server: Running, clock: FakeClock, method: str) -> None:
    """Later or sooner, by a delay or a time; what makes no sense changes nothing."""
    server.create(num_partitions=1)
    server.publish({"value": "a", "delay": "1m"}, {"value": "b", "delay": "1h"})

    def move(offset: int, body: object) -> httpx.Response:
        return server.client.request(method, f"/topics/orders/delayed/0/{offset}", json=body)

    assert move(0, {"delay": "2h"}).json()["deliver_at"] == at(clock, 2 * HOUR_MS)
    assert move(1, {"deliverAt": at(clock, 5_000)}).json()["time_remaining"] == "5s"
    for body in ({}, {"delay": "soon"}, {"deliverAt": "then"}, {"delay": "900000h"}):
        assert error_of(move(0, body))[0] == 400
    assert error_of(move(9, {"delay": "1s"})) == (404, NOT_FOUND)
    pass_time(server, clock, HOUR_MS)
    assert values(server.read()) == ["b"]
    assert move(0, {"delay": "-1s"}).status_code == 200
    pass_time(server, clock, 10)
    assert values(server.read()) == ["a", "b"]


def test_messages_are_cancelled_and_moved_by_their_name(server: Running, clock: FakeClock) -> None:
    """A delay_id names every waiting message that has it, whatever partition it is in."""
    server.create(num_partitions=3)
    server.publish(
        *[{"value": str(n), "delay": "1h", "delay_id": "invoice 7"} for n in range(2)],
        {"value": "other", "delay": "1h", "delay_id": "other"},
    )
    path = "/topics/orders/delayed/id/invoice%207"
    found = server.get(path).json()

    assert (found["delay_id"], found["count"]) == ("invoice 7", 2)
    moved = server.client.patch(path, json={"delay": "2h"}).json()
    assert {one["deliver_at"] for one in moved["messages"]} == {at(clock, 2 * HOUR_MS)}
    gone = delete(server, path).json()
    assert (gone["canceled"], gone["count"]) == (True, 2)
    assert error_of(delete(server, path)) == (404, NOT_FOUND)
    assert server.get("/topics/orders/delayed").json()["count"] == 1


def test_the_numbers_add_up(server: Running, clock: FakeClock) -> None:
    """Statistics and metrics: scheduled is delivered, cancelled and pending."""
    server.create(num_partitions=1)
    server.publish(*[{"value": str(n), "delay": f"{n + 1}m"} for n in range(4)], {"value": "now"})
    delete(server, "/topics/orders/delayed/0/3")
    pass_time(server, clock, 2 * 60_000)
    stats = server.get("/delay/stats").json()

    assert stats["by_topic"] == {"orders": 1}
    names = ("scheduled", "delivered", "canceled", "pending")
    assert [stats[f"total_{name}"] for name in names] == [4, 2, 1, 1]
    assert stats["timer_wheel"]["current_active"] == 1
    prefix = "goqueue_broker_delayed_messages"
    assert server.metric(f'{prefix}_scheduled_total{{topic="orders"}}') == 4
    assert server.metric(f'{prefix}_fired_total{{topic="orders"}}') == 2
    assert server.metric(f'{prefix}_pending{{topic="orders"}}') == 1


def test_priorities_are_counted(server: Running) -> None:
    """By topic and partition, most urgent first."""
    server.create(num_partitions=1)
    lanes = ["critical", "low", "low", None, "background"]
    server.publish(*[{"value": "v", **({"priority": lane} if lane else {})} for lane in lanes])
    stats = server.get("/priority/stats").json()

    assert stats["total_by_priority"] == [1, 0, 1, 2, 1]
    partition = stats["topics"]["orders"]["partitions"]["0"]
    assert partition["total"] == [1, 0, 1, 2, 1]
    assert partition["consumed"] == [0] * 5


def test_a_page_of_nothing_but_hidden_messages_ends(server: Running) -> None:
    """A long stretch that is not due is passed page by page, each with its count."""
    server.create(num_partitions=1, config={"durability": "os"})
    for _ in range(3):
        server.publish(*[{"value": "v", "delay": "1h"}] * 8_000)
    offset = passed = 0
    while True:
        page = server.read(offset=offset)
        if page["next_offset"] == offset:
            break
        passed += page["hidden"]["count"]
        assert len(page["hidden"]["offsets"]) <= 1_000
        offset = page["next_offset"]

    assert passed == offset == 24_000


def test_a_full_schedule_is_told_message_by_message(server: Running) -> None:
    """One more than may wait is refused with a code worth a retry; others are taken."""
    server.create(num_partitions=1)
    server.inside(lambda: setattr(server.broker.topic("orders"), "delayed_max", 1))
    (first,) = server.publish({"value": "a", "delay": "1h"})
    (second,) = server.publish({"value": "b", "delay": "1h"})
    (third,) = server.publish({"value": "c"})

    assert first["delayed"]
    assert second["code"] == "delayed_full"
    assert third["offset"] == 1


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_delay_is_on_time_after_the_clock_was_set(
    server: Running, clock: FakeClock, jump_ms: int
) -> None:
    """A delay takes as long as it says and shows what is left; a time of day is never early."""
    server.create(num_partitions=1)
    clock.jump(jump_ms)
    server.publish({"value": "delay", "delay": "2s"})
    unset = format_time_us((clock.steady_ms() + 3_000) * 1_000)
    server.publish({"value": "time", "deliverAt": unset})

    assert server.get("/topics/orders/delayed/0/0").json()["time_remaining"] == "2s"
    pass_time(server, clock, 1_999)
    assert values(server.read()) == []
    pass_time(server, clock, 1)
    assert values(server.read()) == ["delay"]
    pass_time(server, clock, 999)
    assert values(server.read()) == ["delay"]
    pass_time(server, clock, 1 + max(-jump_ms, 0))
    assert values(server.read()) == ["delay", "time"]


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_new_time_is_on_time_after_the_clock_was_set(
    server: Running, clock: FakeClock, jump_ms: int
) -> None:
    """PATCH with a delay counts from now, whatever the clock shows."""
    server.create(num_partitions=1)
    server.publish({"value": "a", "delay": "24h"})
    clock.jump(jump_ms)
    moved = server.client.patch("/topics/orders/delayed/0/0", json={"delay": "2s"})

    assert moved.status_code == 200
    assert server.get("/topics/orders/delayed/0/0").json()["time_remaining"] == "2s"
    pass_time(server, clock, 1_999)
    assert values(server.read()) == []
    pass_time(server, clock, 1)
    assert values(server.read()) == ["a"]


def test_a_list_shows_what_waits(server: Running) -> None:
    """The name, the key and the beginning of the value; what is not text is spelled out."""
    server.create(num_partitions=1)
    long = "ä" * 100
    server.publish(
        {"value": long, "key": "k" * 100, "delay": "1h", "delay_id": "a"},
        {"value": "/wA=", "encoding": "base64", "delay": "1h"},
    )
    first, second = server.get("/topics/orders/delayed").json()["messages"]

    assert (first["delay_id"], first["key"]) == ("a", "k" * 64)
    assert (first["preview"], first["value_bytes"]) == ("ä" * 32, 200)
    assert (second["preview"], second["value_bytes"]) == ("\\xff\x00", 2)
    assert "delay_id" not in second
    assert server.get("/topics/orders/delayed/id/a").json()["messages"] == [first]


def test_a_name_that_is_taken(server: Running) -> None:
    """Both wait, the second is refused, or it takes the place of the first."""
    server.create(num_partitions=3)
    body = {"delay": "1h", "delay_id": "n"}
    server.publish({"value": "a", "key": "x", **body}, {"value": "b", "key": "y", **body})
    refused, other = server.publish(
        {"value": "c", **body, "on_conflict": "error"}, {"value": "plain"}
    )
    (placed,) = server.publish({"value": "d", **body, "on_conflict": "replace"})
    named = server.get("/topics/orders/delayed/id/n").json()

    assert (refused["partition"], refused["offset"], refused["code"]) == (-1, -1, "delay_conflict")
    assert "error" not in other
    assert [one["preview"] for one in named["messages"]] == ["d"]
    assert named["messages"][0]["offset"] == placed["offset"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delay_id": "n", "on_conflict": "maybe"}, "on_conflict: must be error or replace"),
        ({"on_conflict": "replace"}, "on_conflict: needs a delay_id"),
    ],
)
def test_what_is_no_wish_is_refused(server: Running, fields: dict[str, Any], message: str) -> None:
    """With the field named."""
    server.create(num_partitions=1)
    (result,) = server.publish({"value": "v", "delay": "1h", **fields})

    assert result["error"] == message
