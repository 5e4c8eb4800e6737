"""Recurring schedules over HTTP, as anybody with curl meets them."""

from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running, error_of

BODY = {"name": "s", "topic": "orders", "value": "hello", "every": "30s"}


def pass_time(server: Running, clock: FakeClock, duration_ms: int) -> None:
    clock.advance(duration_ms)

    async def tick() -> None:
        server.broker.schedules.tick()
        await server.broker.schedules.settled()

    server.await_inside(tick())


def make(server: Running, **fields: Any) -> dict[str, Any]:
    reply = server.client.post("/schedules", json={**BODY, **fields})
    assert reply.status_code == 201, reply.text
    made: dict[str, Any] = reply.json()
    return made


def test_a_schedule_is_made_shown_and_published(server: Running, clock: FakeClock) -> None:
    """With its next ticks and its message; readers see what it published."""
    server.create(num_partitions=1)
    made = make(server, key="k", headers={"a": "b"}, priority="high", missed="skip")
    pass_time(server, clock, 30_000)
    shown = server.client.get("/v1/schedules/s").json()
    (message,) = server.read()["messages"]

    assert made["next_ticks"][0] == "2023-11-14T22:13:50.000000000Z"
    assert len(made["next_ticks"]) == 5
    assert (made["every"], made["tz"], made["missed"]) == ("30s", "UTC", "skip")
    assert (made["value"], made["key"], made["priority"]) == ("hello", "k", "high")
    assert made["headers"] == {"a": "b"}
    assert (shown["published"], shown["last_offset"]) == (1, 0)
    assert shown["last_tick"] == made["next_ticks"][0]
    assert (message["value"], message["key"], message["priority"]) == ("hello", "k", "high")
    assert message["headers"] == {
        "a": "b", "goqueue-schedule": "s", "goqueue-tick": made["next_ticks"][0]
    }  # fmt: skip


def test_pause_resume_trigger_and_delete(server: Running, clock: FakeClock) -> None:
    """Each answers with the schedule as it is then; a deleted one is not there."""
    server.create(num_partitions=1)
    make(server)
    paused = server.client.post("/schedules/s/pause").json()
    pass_time(server, clock, 60_000)
    triggered = server.client.post("/schedules/s/trigger").json()
    resumed = server.client.post("/schedules/s/resume").json()
    pass_time(server, clock, 30_000)

    assert (paused["state"], paused["next_ticks"]) == ("paused", [])
    assert (triggered["published"], triggered["last_offset"]) == (1, 0)
    assert (resumed["state"], len(resumed["next_ticks"])) == ("active", 5)
    assert len(server.read()["messages"]) == 2
    assert server.client.delete("/schedules/s").json() == {"deleted": True, "name": "s"}
    for reply in (
        server.client.get("/schedules/s"),
        server.client.delete("/schedules/s"),
        server.client.post("/schedules/s/pause"),
        server.client.post("/schedules/s/resume"),
        server.client.post("/schedules/s/trigger"),
    ):
        assert error_of(reply) == (404, "schedule not found: s")


def test_schedules_are_listed_in_pages(server: Running) -> None:
    """By name, each with its next tick."""
    server.create(num_partitions=1)
    for name in ("c", "a", "b"):
        make(server, name=name, cron="*/5 * * * *", every=None, tz="Europe/Berlin")
    page = server.client.get("/schedules", params={"limit": 2, "skip": 1}).json()

    assert [one["name"] for one in page["schedules"]] == ["b", "c"]
    assert [len(one["next_ticks"]) for one in page["schedules"]] == [1, 1]
    assert (page["count"], page["total"], page["limit"], page["skip"]) == (2, 3, 2, 1)
    assert page["schedules"][0]["cron"] == "*/5 * * * *"
    assert page["schedules"][0]["tz"] == "Europe/Berlin"


def test_bytes_travel_as_base64(server: Running, clock: FakeClock) -> None:
    """Value, key and headers, in and out."""
    server.create(num_partitions=1)
    made = make(
        server,
        value="/wA=",
        encoding="base64",
        key="/w==",
        key_encoding="base64",
        headers={"h": "/w=="},
        headers_encoding="base64",
    )
    pass_time(server, clock, 30_000)

    assert (made["value"], made["encoding"]) == ("/wA=", "base64")
    assert (made["key"], made["key_encoding"]) == ("/w==", "base64")
    assert (made["headers"], made["headers_encoding"]) == ({"h": "/w=="}, "base64")
    assert server.read()["messages"][0]["value"] == "/wA="


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"name": "../x"}, 400, "schedule name '../x' may only contain"),
        ({"name": "__x"}, 400, "schedule names beginning with '__' belong to the broker"),
        ({"name": ""}, 400, "schedule name is required"),
        ({"topic": "nowhere"}, 404, "topic not found: nowhere"),
        ({"every": "soon"}, 400, "every: 'soon' is not a duration"),
        ({"every": 30}, 400, 'every: must be text with a unit; write for example "30s"'),
        ({"tz": "Europe/Berlin"}, 400, "tz: is for cron; an interval has no time zone"),
        ({"headers": {"goqueue-delay-id": "x"}}, 400, "goqueue-delay-id is for delayed messages"),
        ({"every": "-5s"}, 400, "every: -5s is no time"),
        ({"every": "500ms"}, 400, "every: 500ms is not between 1s and 366 days"),
        ({"every": None}, 400, "give cron or every, one of them"),
        ({"cron": "* * * * *"}, 400, "give cron or every, one of them"),
        ({"every": None, "cron": "0 0 30 2 *"}, 400, "cron: '0 0 30 2 *': bad day-of-month"),
        ({"every": None, "cron": "0 0 0 0 0 0"}, 400, "has 6 fields; five are allowed"),
        (
            {"every": None, "cron": "* * * * *", "tz": "Mars/Olympus"},
            400,
            "tz: 'Mars/Olympus' is not known",
        ),
        ({"missed": "some"}, 400, "missed: must be one of skip, one, all"),
        ({"priority": "urgent"}, 400, "invalid priority"),
        ({"encoding": "hex"}, 400, "encoding of value"),
        ({"value": "x" * 70_000}, 413, "value: 70000 bytes; the limit of a schedule is 65536"),
        ({"headers": {"__origin": "x"}}, 400, "headers: names beginning with '__'"),
    ],
)
def test_what_is_wrong_is_named(
    server: Running, fields: dict[str, Any], status: int, message: str
) -> None:
    """The field at fault and its limit; nothing is made."""
    server.create(num_partitions=1)
    reply = server.client.post("/schedules", json={**BODY, **fields})

    assert reply.status_code == status
    assert message in error_of(reply)[1]
    assert server.client.get("/schedules").json()["total"] == 0


def test_a_name_is_taken_once(server: Running) -> None:
    """The second is refused, and the first stays as it is."""
    server.create(num_partitions=1)
    make(server)
    reply = server.client.post("/schedules", json={**BODY, "every": "60s"})

    assert (reply.status_code, reply.json()["code"]) == (409, "schedule_exists")
    assert server.client.get("/schedules/s").json()["every"] == "30s"
