"""Recurring schedules through the SDK: blocking, asynchronous, and a broker in the process."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import goqueue
from goqueue import aio
from goqueue.base.errors import InvalidRequestError, ScheduleExistsError, ScheduleNotFoundError


def test_every_call_of_the_blocking_client(client: goqueue.Client, topic: str) -> None:
    """Made, listed, described, paused, resumed, triggered, deleted."""
    name = f"{topic}-every"
    made = client.create_schedule(
        name, topic, b"v", every="1h", key=b"k", headers={"a": "b"}, priority="low", missed="all"
    )
    with pytest.raises(ScheduleExistsError):
        client.create_schedule(name, topic, b"v", every="1h")
    after = client.trigger_schedule(name)
    (message,) = list(client.read(topic))

    assert (made.every_ms, made.key, made.headers, made.priority) == (
        3_600_000, b"k", {"a": b"b"}, 3
    )  # fmt: skip
    assert len(made.next_ticks) == 5
    assert timedelta(0) < made.next_ticks[0] - datetime.now(UTC) <= timedelta(hours=1)
    assert (after.last_partition, after.last_offset) == (message.partition, message.offset)
    assert (message.key, message.value, message.priority) == (b"k", b"v", 3)
    assert (message.headers or {})["goqueue-schedule"] == name.encode()
    assert name in [one.name for one in client.list_schedules()]
    assert client.pause_schedule(name).state == "paused"
    assert client.resume_schedule(name).state == "active"
    assert client.describe_schedule(name).published == 1
    client.delete_schedule(name)
    with pytest.raises(ScheduleNotFoundError):
        client.describe_schedule(name)


def test_a_cron_line_has_a_zone(client: goqueue.Client, topic: str) -> None:
    """Nine o'clock in New York is not nine o'clock in UTC."""
    made = client.create_schedule(
        f"{topic}-cron", topic, b"v", cron="0 9 * * *", tz="America/New_York"
    )

    assert {tick.hour for tick in made.next_ticks} <= {13, 14}
    assert (made.cron, made.tz, made.missed) == ("0 9 * * *", "America/New_York", "one")
    client.delete_schedule(made.name)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "give cron or every"),
        ({"cron": "* * * * *", "every": 5}, "give cron or every"),
        ({"cron": ""}, "cron: is empty"),
        ({"every": "0s"}, "every: '0s' is no time"),
        ({"every": "500ms"}, "every: 500ms is not between"),
        ({"cron": "* * * * *", "tz": "Nowhere"}, "tz: 'Nowhere' is not known"),
        ({"every": 5, "missed": "never"}, "missed: must be one of"),
    ],
)
def test_what_is_wrong_is_named(
    client: goqueue.Client, topic: str, fields: dict[str, object], message: str
) -> None:
    """Whether the client or the broker finds it."""
    with pytest.raises(InvalidRequestError, match=message):
        client.create_schedule(f"{topic}-bad", topic, b"v", **fields)  # type: ignore[arg-type]


def test_an_unknown_field_is_a_mistake_of_the_program(client: goqueue.Client, topic: str) -> None:
    """It is told at once, with its name."""
    with pytest.raises(TypeError, match="has no partition"):
        client.create_schedule("s", topic, b"v", every=5, partition=1)  # type: ignore[call-arg]


def test_the_asynchronous_client_has_the_same(address: str, topic: str) -> None:
    """The same calls, awaited."""

    async def main() -> None:
        async with await aio.connect(address) as client:
            name = f"{topic}-aio"
            await client.create_schedule(name, topic, b"v", every=timedelta(hours=1))
            triggered = await client.trigger_schedule(name)
            assert triggered.published == 1
            await client.delete_schedule(name)

    asyncio.run(main())


def test_a_broker_in_the_process_ticks(tmp_path: Path) -> None:
    """By the clock of the machine: a second is the shortest interval."""
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic("t", partitions=1)
        client.create_schedule("s", "t", b"v", every=1)
        ticks = []
        for message in client.read("t", follow=True):
            ticks.append((message.headers or {})["goqueue-tick"])
            if len(ticks) == 2:
                break

        assert len(set(ticks)) == 2
