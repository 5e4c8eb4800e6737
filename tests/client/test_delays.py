"""Delayed messages through the SDK, against a real broker."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import goqueue
from goqueue import aio
from goqueue.base.errors import DelayConflictError, DelayedNotFoundError, InvalidRequestError
from goqueue.client.protocol.delays import delay_ms_of, due_us

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("delay", "expected_ms"),
    [
        ("5s", 5_000),
        ("1h30m", 5_400_000),
        ("-5s", -5_000),
        (5, 5_000),
        (0.0001, 1),
        (2.5, 2_500),
        (timedelta(seconds=1, microseconds=1), 1_001),
        (timedelta(0), 0),
    ],
)
def test_a_delay_is_read_and_never_cut_short(delay: str | float, expected_ms: int) -> None:
    """Text, seconds, a timedelta; a fraction of a millisecond counts as a whole one."""
    assert delay_ms_of(delay) == expected_ms


@pytest.mark.parametrize("delay", ["soon", "", True, float("nan"), float("inf"), b"5s", "900000h"])
def test_what_is_no_delay_is_refused(delay: str) -> None:
    """Before anything is sent, with the field named."""
    with pytest.raises(InvalidRequestError, match="delay"):
        delay_ms_of(delay)


def test_a_delay_beats_a_time_and_the_past_is_now() -> None:
    """The same rules as over HTTP."""
    later = datetime(2023, 11, 14, 23, 13, 20, tzinfo=UTC)

    assert due_us("5s", later, now_us=NOW_US) == NOW_US + 5_000_000
    assert due_us(None, later, now_us=NOW_US) == NOW_US + HOUR_US
    assert due_us(None, later, now_us=NOW_US + HOUR_US) is None
    assert due_us("-1s", later, now_us=NOW_US) is None
    with pytest.raises(InvalidRequestError):
        due_us(None, datetime(2400, 1, 1, tzinfo=UTC), now_us=NOW_US)


def test_delayed_messages_wait_and_readers_are_told(client: goqueue.Client, topic: str) -> None:
    """One by one and in batches: left out, named to on_hidden, shown on request."""
    producer = client.producer(topic)
    one = producer.send(b"one", partition=0, delay="1h").result(60)
    many = [producer.send(b"%d" % n, partition=0, delay=3_600 if n % 2 else None) for n in range(8)]
    assert all(future.result(60) for future in many)
    passed: list[tuple[int, tuple[int, int]]] = []
    seen = list(
        client.read(topic, on_hidden=lambda p, ranges: passed.extend((p, one) for one in ranges))
    )

    assert one.offset == 0
    assert [message.value for message in seen] == [b"0", b"2", b"4", b"6"]
    assert sum(end - start for _, (start, end) in passed) == 5
    shown = list(client.read(topic, delayed="show"))
    assert [message.offset for message in shown] == list(range(9))
    assert shown[0].deliver_at_us is not None
    batches = list(client.read_batches(topic, columns=["value", "offset"]))
    assert sum(batch.num_rows for batch in batches) == 4
    whole = list(client.read_batches(topic, delayed="show"))
    assert sum(batch.num_rows for batch in whole) == 9
    with pytest.raises(InvalidRequestError):
        list(client.read(topic, delayed="maybe"))


def test_a_message_comes_when_it_is_due(client: goqueue.Client, topic: str) -> None:
    """Not before; and then by itself: nobody has to ask the broker to look at its clock."""
    sent_us = time.time_ns() // 1_000
    client.producer(topic).send(b"soon", delay="300ms").result(60)
    while not (found := list(client.read(topic))):
        pass
    now_us = time.time_ns() // 1_000
    (message,) = found

    assert message.deliver_at_us is not None
    assert message.deliver_at_us >= sent_us + 300_000
    assert now_us >= message.deliver_at_us
    assert client.delayed(topic) == []


def test_messages_are_listed_cancelled_and_moved(client: goqueue.Client, topic: str) -> None:
    """By place and by the name their sender gave them."""
    producer = client.producer(topic)
    first = producer.send(b"a", delay="1h").result(60)
    producer.send(b"b", delay="1h", delay_id="bill-7").result(60)
    at = datetime.now(UTC) + timedelta(days=30)
    producer.send(b"c", deliver_at=at, delay_id="bill-8").result(60)

    assert len(client.delayed(topic)) == 3
    assert len(client.delayed(topic, skip=1, limit=1)) == 1
    (found,) = client.find_delayed(topic, first.partition, first.offset)
    assert (found.topic, found.state) == (topic, "pending")
    (cancelled,) = client.cancel_delayed(topic, first.partition, first.offset)
    assert cancelled.state == "canceled"
    (named,) = client.find_delayed(topic, id="bill-8")
    assert abs(named.deliver_at - at) < timedelta(milliseconds=2)
    (moved,) = client.reschedule_delayed(topic, id="bill-7", deliver_at=at)
    assert abs(moved.deliver_at - at) < timedelta(milliseconds=2)
    (moved,) = client.reschedule_delayed(topic, id="bill-7", delay="2h")
    assert moved.deliver_at < at
    client.cancel_delayed(topic, id="bill-7")
    with pytest.raises(DelayedNotFoundError):
        client.cancel_delayed(topic, id="bill-7")
    with pytest.raises(DelayedNotFoundError):
        client.cancel_delayed(topic, first.partition, first.offset)
    with pytest.raises(InvalidRequestError):
        client.cancel_delayed(topic, 0)
    with pytest.raises(InvalidRequestError):
        client.cancel_delayed(topic, 0, 0, id="x")
    with pytest.raises(InvalidRequestError):
        client.reschedule_delayed(topic, id="bill-8")


@pytest.mark.parametrize("delay_id", ["", "x" * 257, b"bytes"])
def test_a_name_is_text_of_some_length(client: goqueue.Client, topic: str, delay_id: str) -> None:
    """Refused before it is sent."""
    with pytest.raises(InvalidRequestError, match="delay_id"):
        client.producer(topic).send(b"x", delay="1h", delay_id=delay_id)


def test_the_asynchronous_client_does_the_same(address: str, topic: str) -> None:
    """send, delayed, cancel, reschedule and reading, awaited."""

    async def main() -> None:
        async with await aio.connect(address) as client:
            producer = client.producer(topic)
            place = await producer.send(b"x", delay=timedelta(hours=1), delay_id="it")
            hidden: list[int] = []
            seen = [
                message
                async for message in client.read(
                    topic, on_hidden=lambda _, ranges: hidden.append(len(ranges))
                )
            ]

            assert seen == []
            assert hidden == [1]
            assert len(await client.delayed(topic)) == 1
            assert len(await client.find_delayed(topic, place.partition, place.offset)) == 1
            assert await client.reschedule_delayed(topic, id="it", delay=60)
            assert await client.cancel_delayed(topic, id="it")

    asyncio.run(main())


def test_an_embedded_broker_hides_too(tmp_path: Path) -> None:
    """goqueue.open: the same rules without a socket, over a restart of the broker."""
    with goqueue.open(str(tmp_path)) as client:
        client.create_topic("t", partitions=1)
        client.producer("t").send(b"later", delay="1h").result(60)
        client.producer("t").send(b"never", delay="1h").result(60)
        client.producer("t").send(b"now").result(60)
        client.cancel_delayed("t", 0, 1)

        assert [message.value for message in client.read("t")] == [b"now"]
    with goqueue.open(str(tmp_path)) as client:
        assert [message.value for message in client.read("t")] == [b"now"]
        assert [one.offset for one in client.delayed("t")] == [0]


def test_a_message_takes_the_place_of_another(client: goqueue.Client, topic: str) -> None:
    """Sent or published, in batches and alone; a name that is taken may be an error."""
    with client.producer(topic) as producer:
        producer.publish(b"a", key=b"k", delay="1h", delay_id="n")
        place = producer.publish(b"b", delay="1h", delay_id="n", on_conflict="replace")
        refused = producer.send(b"c", delay="1h", delay_id="n", on_conflict="error")
        other = producer.send(b"d", delay="1h", delay_id="m", on_conflict="error")
        with pytest.raises(DelayConflictError, match="delay_id: a message waits as 'n'"):
            refused.result(60)
        other.result(60)
        many = [
            # One key, so one partition: only there has the order of messages a meaning.
            producer.send(b"%d" % n, key=b"k", delay="1h", delay_id="n", on_conflict="replace")
            for n in range(100)
        ]
        places = {(one.partition, one.offset) for one in (future.result(60) for future in many)}
    (found,) = client.find_delayed(topic, id="n")

    assert (found.delay_id, found.preview, found.value_bytes) == ("n", b"99", 2)
    assert (found.partition, found.offset) in places
    assert client.find_delayed(topic, place.partition, place.offset)[0].state == "canceled"
    assert [one.preview for one in client.delayed(topic) if one.delay_id == "m"] == [b"d"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delay_id": "n", "on_conflict": "maybe"}, "must be one of error, replace"),
        ({"on_conflict": "replace"}, "needs a delay_id"),
    ],
)
def test_what_is_no_wish_is_refused(
    client: goqueue.Client, topic: str, fields: dict[str, str], message: str
) -> None:
    """Before anything is sent."""
    with (
        client.producer(topic) as producer,
        pytest.raises(InvalidRequestError, match=message),
    ):
        producer.send(b"v", delay="1h", **fields)  # type: ignore[arg-type]


def test_replacing_is_not_for_transactions(client: goqueue.Client, topic: str) -> None:
    """What is aborted was never there: it must not have cancelled anything."""
    producer = client.producer(topic, transactional_id=f"{topic}-tx")
    with (
        pytest.raises(InvalidRequestError, match="on_conflict: not in a transaction"),
        producer.transaction() as tx,
    ):
        tx.send(b"v", delay="1h", delay_id="n", on_conflict="replace")  # type: ignore[call-arg]


def test_the_other_clients_replace_as_well(address: str, topic: str, tmp_path: Path) -> None:
    """Asynchronous, and with the broker in the process."""

    async def main() -> None:
        async with await aio.connect(address) as client, client.producer(topic) as producer:
            await producer.publish(b"a", delay="1h", delay_id="n")
            await producer.send(b"b", delay="1h", delay_id="n", on_conflict="replace")
            (found,) = await client.find_delayed(topic, id="n")
            assert found.preview == b"b"

    asyncio.run(main())
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic("t", partitions=2)
        with client.producer("t") as producer:
            producer.publish(b"a", delay="1h", delay_id="n")
            producer.publish(b"b", delay="1h", delay_id="n", on_conflict="replace")
        assert [one.preview for one in client.delayed("t")] == [b"b"]
