"""Traces as the SDK meets them: headers that come and go, searches, and everything a group does."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import InvalidRequestError, TraceNotFoundError
from goqueue.wire.trace_calls import TraceEntry
from tests.cli.running import BrokerProcess, run_process
from tests.client.consuming import eventually, take

PARENT = b"00-%032x-b7ad6b7169203331-01"
_numbers = count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("broker") / "data"
    broker = BrokerProcess(data, GOQUEUE_TRACING_SAMPLING_RATE="0.5")
    yield broker
    assert broker.stop() == 0


@pytest.fixture
def client(served: BrokerProcess) -> Iterator[goqueue.Client]:
    with goqueue.connect(served.native) as connected:
        yield connected


def make_topic(client: goqueue.Client, **settings: str | float) -> str:
    name = f"orders-{next(_numbers)}"
    client.create_topic(name, partitions=1, **{"trace_sampling": 1, **settings})
    return name


def publish(client: goqueue.Client, topic: str, number: int, **fields: object) -> None:
    with client.producer(topic) as producer:
        for place in range(number):
            producer.send(b"%d" % place, **fields)  # type: ignore[arg-type]


def events(trace: TraceEntry) -> list[str]:
    return [span.event_type for span in trace.spans]


def trace_at(client: goqueue.Client, topic: str, offset: int) -> TraceEntry:
    (found,) = client.search_traces(topic=topic, offset=offset)
    return client.find_trace(found.trace_id)


@pytest.mark.parametrize("number", [1, 50], ids=["rows", "batches"])
def test_a_consumer_gets_the_header_of_the_trace(client: goqueue.Client, number: int) -> None:
    """So that what it does can become part of it; readers get what was stored."""
    topic = make_topic(client)
    publish(client, topic, number, headers={"source": "shop"})
    with client.consumer(topic, [topic]) as consumer:
        messages = take(consumer, number)
        for message in messages:
            trace = trace_at(client, topic, message.offset)
            root = trace.spans[0].span_id
            assert message.headers == {
                "source": b"shop",
                "traceparent": f"00-{trace.trace_id}-{root}-01".encode(),
            }
            message.ack()
        consumer.flush()

    assert [message.headers for message in client.read(topic)] == [{"source": b"shop"}] * number
    assert events(trace_at(client, topic, 0))[-2:] == ["consume.fetched", "consume.acked"]


def test_half_of_the_messages_are_traced(client: goqueue.Client) -> None:
    """Those with a header are those with a trace, over every stage."""
    topic = make_topic(client, trace_sampling="broker")
    publish(client, topic, 400)
    with client.consumer(topic, [topic]) as consumer:
        messages = take(consumer, 400)
        for message in messages:
            message.ack()
    traced = {message.offset for message in messages if message.headers}
    found = client.search_traces(topic=topic, limit=1_000)

    assert len(traced) == 200
    assert {one.offset for one in found} == traced
    assert {(one.status, one.span_count) for one in found} == {("completed", 5)}


@pytest.mark.parametrize("number", [2, 50], ids=["rows", "batches"])
def test_a_sender_s_trace_is_kept(client: goqueue.Client, number: int) -> None:
    """A recorded one is always traced, one that is not never is, nonsense counts as absent."""
    topic = make_topic(client, trace_sampling=0)
    first = next(_numbers)
    headers = [
        {"traceparent": PARENT % (first * 1_000 + place)}
        if place % 2
        else {"traceparent": b"00-nonsense" if place % 4 else (PARENT % 7)[:-1] + b"0"}
        for place in range(number)
    ]
    with client.producer(topic) as producer:
        for one in headers:
            producer.send(b"x", headers=one)
    with client.consumer(topic, [topic]) as consumer:
        messages = take(consumer, number)
        for message in messages:
            message.ack()

    assert [message.headers for message in messages] == headers
    assert len(client.search_traces(topic=topic, limit=1_000)) == number // 2
    trace = client.find_trace(f"{first * 1_000 + 1:032x}")
    assert trace.offset == 1
    assert trace.spans[0].parent_span_id == "b7ad6b7169203331"
    assert events(trace)[-1] == "consume.acked"


def test_transactions_are_told(client: goqueue.Client) -> None:
    """What a transaction holds is acked with it, or given back."""
    topic, other = make_topic(client), make_topic(client)
    publish(client, topic, 2)
    producer = client.producer(other, transactional_id=topic)
    with client.consumer(topic, [topic]) as consumer:
        first, second = take(consumer, 2)
        with producer.transaction() as tx:
            tx.send(b"out")
            tx.ack(first)
        with pytest.raises(ValueError, match="no"), producer.transaction() as tx:  # noqa: PT012
            tx.ack(second)
            tx.send(b"never").result(60)
            raise ValueError("no")
    producer.close()

    eventually(lambda: trace_at(client, topic, 0).status == "completed")
    assert events(trace_at(client, topic, 0))[-3:] == [
        *("consume.fetched", "consume.held", "consume.acked"),
    ]
    assert "consume.acked" not in events(trace_at(client, topic, 1))
    assert trace_at(client, other, 0).status == "in_progress"


def test_committing_behind_messages_completes_them(client: goqueue.Client) -> None:
    topic = make_topic(client)
    publish(client, topic, 3)
    with client.consumer(topic, [topic]) as consumer:
        consumer.commit({(topic, 0): 2})

    assert [trace_at(client, topic, offset).status for offset in range(3)] == [
        *("completed", "completed", "in_progress"),
    ]


def test_a_message_past_its_time_to_live_is_expired(client: goqueue.Client) -> None:
    topic = make_topic(client, message_ttl_ms=1_000)
    publish(client, topic, 1, timestamp=datetime.now(UTC) - timedelta(hours=1))
    with client.consumer(topic, [topic]) as consumer:
        assert consumer.poll(timeout=0.1) == []
        eventually(lambda: trace_at(client, topic, 0).status == "expired")
        assert consumer.poll(timeout=0.1) == []


def test_searches_are_checked(client: goqueue.Client) -> None:
    for wrong in (
        {"limit": 0},
        {"limit": 10_000},
        {"status": "lost"},
        {"min_duration": "long"},
    ):
        with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
            client.search_traces(**wrong)
    with pytest.raises(InvalidRequestError):
        client.find_trace("nonsense")
    with pytest.raises(TraceNotFoundError):
        client.find_trace("f" * 32)


def test_the_tail_goes_on(client: goqueue.Client) -> None:
    """Each look brings what came since the one before."""
    topic = make_topic(client)
    place = client.tail_traces().next_place
    assert client.tail_traces(place).spans == []
    publish(client, topic, 1)
    tail = client.tail_traces(place)

    assert [span.event_type for span in tail.spans if span.topic == topic] == [
        *("publish.received", "publish.partitioned", "publish.persisted"),
    ]
    assert client.tail_traces(tail.next_place).spans == []
    assert client.trace_stats().sampling_rate == 0.5


def test_the_asynchronous_client_asks_the_same(served: BrokerProcess) -> None:
    async def ask() -> list[str]:
        async with await goqueue.aio.connect(served.native) as client:
            await client.create_topic("later", partitions=1, trace_sampling=1)
            async with client.producer("later") as producer:
                await producer.send(b"x", key=b"k")
            (found,) = await client.search_traces(topic="later", key=b"k", min_duration="0ms")
            return events(await client.find_trace(found.trace_id))

    assert asyncio.run(ask())[0] == "publish.received"


def test_the_command_line_searches_and_says_what_is_wrong(
    client: goqueue.Client, served: BrokerProcess
) -> None:
    topic = make_topic(client)
    publish(client, topic, 2, key=b"k")
    server = ("--server", served.native)
    (line, other) = run_process("trace", "search", "--topic", topic, *server).out.splitlines()[1:]
    listed = run_process("trace", "search", "--topic", topic, "--key", "k", "-o", "json", *server)

    assert line.split()[1:3] == [f"{topic}/0", "1"]
    assert other.split()[-1] == "in_progress"
    assert [one["offset"] for one in listed.data] == [1, 0]
    assert run_process("trace", "list", "-n", "1", "-o", "json", *server).data[0]["topic"] == topic
    assert "0.5" in run_process("trace", "stats", *server).out
    assert run_process("trace", "get", "xyz", *server).code == 2
    assert run_process("trace", "search", "--status", "lost", *server).code == 2
    assert run_process("trace", "f" * 32, *server).code == 1
    assert "no traces" in run_process("trace", "search", "--topic", "none", *server).err


def test_an_embedded_broker_traces_too(tmp_path: Path) -> None:
    with goqueue.open(tmp_path / "data") as client:
        topic = make_topic(client)
        publish(client, topic, 1)

        assert events(trace_at(client, topic, 0))[0] == "publish.received"
