"""The asynchronous twin and the broker in this process."""

import asyncio
from pathlib import Path

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import DataDirLockedError, TopicNotFoundError


def test_sending_and_reading_in_a_loop(address: str) -> None:
    """Futures are awaited, messages iterated, everything closed by the context managers."""

    async def scenario() -> list[bytes | None]:
        async with await goqueue.aio.connect(address) as client:
            await client.create_topic("aio", partitions=2)
            async with client.producer("aio", linger_ms=0) as producer:
                places = await asyncio.gather(
                    *(producer.send(b"%d" % n, key=b"k") for n in range(500))
                )
            assert [place.offset for place in places] == list(range(500))
            return [message.value async for message in client.read("aio")]

    assert asyncio.run(scenario()) == [b"%d" % n for n in range(500)]


def test_batches_and_topics(address: str) -> None:
    """The same calls as the synchronous client's."""

    async def scenario() -> None:
        async with await goqueue.aio.connect(address) as client:
            await client.create_topic("aio-topics", partitions=1, retention_ms="1h")
            producer = client.producer("aio-topics")
            for number in range(10):
                producer.send(b"%d" % number)
            await producer.flush()
            rows = [b.num_rows async for b in client.read_batches("aio-topics", columns=["value"])]
            assert sum(rows) == 10
            state = await client.configure_topic("aio-topics", retention_ms="2h")
            assert state.settings["retention_ms"] == 2 * 3_600_000
            assert "aio-topics" in [topic.name for topic in await client.list_topics()]
            await client.delete_topic("aio-topics")
            with pytest.raises(TopicNotFoundError):
                await client.describe_topic("aio-topics")

    asyncio.run(scenario())


def test_a_topic_that_is_not_there_fails_the_future(address: str) -> None:
    """A producer of a missing topic refuses what it gathered, saying why."""

    async def scenario() -> None:
        async with await goqueue.aio.connect(address) as client:
            with pytest.raises(TopicNotFoundError):
                await client.producer("missing").send(b"x")

    asyncio.run(scenario())


def test_the_broker_in_this_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """open() needs no server, keeps its data, excludes others and prints nothing."""
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic("local")
        client.producer("local").send(b"kept").result(60)
        with pytest.raises(DataDirLockedError):
            goqueue.open(tmp_path / "data")
    with goqueue.open(tmp_path / "data") as client:
        values = [message.value for message in client.read("local")]

    assert values == [b"kept"]
    assert capfd.readouterr() == ("", "")
