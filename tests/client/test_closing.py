"""Ends: what was gathered goes out, who waits is told, and nothing works afterwards."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import ClosedError, GoQueueError, ProtocolError
from tests.transport.native.running import Running

TOPIC = "orders"


@pytest.fixture(params=["over a socket", "in this process"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[goqueue.Client]:
    """A client of either kind, with a topic and a message."""
    with ExitStack() as stack:
        if request.param == "in this process":
            opened = stack.enter_context(goqueue.open(tmp_path / "data"))
        else:
            server = stack.enter_context(Running(tmp_path / "data"))
            opened = stack.enter_context(goqueue.connect(server.address, timeout=60))
        opened.create_topic(TOPIC, partitions=1)
        opened.producer(TOPIC).send(b"there").result(60)
        yield opened


CALLS: dict[str, Callable[[goqueue.Client], Any]] = {
    "create": lambda client: client.create_topic("new"),
    "configure": lambda client: client.configure_topic(TOPIC, retention_ms=1),
    "delete": lambda client: client.delete_topic(TOPIC),
    "describe": lambda client: client.describe_topic(TOPIC),
    "list": lambda client: client.list_topics(),
    "offsets": lambda client: client.offsets(TOPIC),
    "ping": lambda client: client.ping(),
    "producer": lambda client: client.producer(TOPIC),
    "read": lambda client: list(client.read(TOPIC)),
    "read_batches": lambda client: list(client.read_batches(TOPIC)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_closed_client_does_nothing(
    client: goqueue.Client, call: Callable[[goqueue.Client], Any]
) -> None:
    """Every call after close says that the client is closed."""
    client.close()

    with pytest.raises(ClosedError):
        call(client)


def test_closing_twice_is_closing_once(client: goqueue.Client) -> None:
    """Producers and clients may be closed in any order and again."""
    producer = client.producer(TOPIC)
    producer.send(b"more")
    client.close()
    client.close()
    producer.close()

    with pytest.raises(ClosedError):
        producer.send(b"late")


def test_closing_a_client_sends_what_its_producers_gathered(tmp_path: Path) -> None:
    """A context manager that ends loses nothing."""
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic(TOPIC, partitions=1)
        futures = [client.producer(TOPIC, linger_ms=60_000).send(b"x") for _ in range(3)]
    assert [future.done() for future in futures] == [True] * 3

    with goqueue.open(tmp_path / "data") as client:
        assert sum(1 for _ in client.read(TOPIC)) == 3


def test_a_follower_in_another_thread_is_told(client: goqueue.Client) -> None:
    """Closing a client ends its readers, also one that waits for news."""
    first = threading.Event()
    outcome: list[BaseException | None] = []

    def follow() -> None:
        try:
            for _ in client.read(TOPIC, follow=True):
                first.set()
            outcome.append(None)
        except GoQueueError as error:
            outcome.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(60)
    client.close()
    thread.join(60)

    assert not thread.is_alive()
    assert isinstance(outcome[0], ClosedError)


def test_a_reader_may_stop_early(client: goqueue.Client) -> None:
    """Leaving a loop in the middle leaves nothing behind that disturbs."""
    for _ in range(20):
        messages = client.read(TOPIC, follow=True)
        assert next(messages).value == b"there"
        messages.close()

    client.ping()


def test_a_loop_closes_as_well(tmp_path: Path) -> None:
    """The asynchronous client flushes, closes, and says so afterwards."""

    async def scenario(address: str) -> None:
        client = await goqueue.aio.connect(address)
        await client.create_topic(TOPIC, partitions=1)
        producer = client.producer(TOPIC, linger_ms=60_000)
        future = producer.send(b"x")
        await client.close()
        await client.close()
        assert future.result(0).offset == 0
        with pytest.raises(ClosedError):
            producer.send(b"y")
        with pytest.raises(ClosedError):
            await client.describe_topic(TOPIC)
        with pytest.raises(ClosedError):
            [message async for message in client.read(TOPIC)]

    with Running(tmp_path / "data") as server:
        asyncio.run(scenario(server.address))


def test_a_reader_in_a_loop_may_be_cancelled(tmp_path: Path) -> None:
    """A task that follows a topic ends when it is cancelled, and the client goes on."""

    async def scenario(address: str) -> int:
        async with await goqueue.aio.connect(address) as client:
            await client.create_topic(TOPIC, partitions=1)
            await client.producer(TOPIC).send(b"x")
            seen = asyncio.Event()

            async def follow() -> None:
                async for _ in client.read(TOPIC, follow=True):
                    seen.set()

            task = asyncio.create_task(follow())
            await asyncio.wait_for(seen.wait(), 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await client.offsets(TOPIC))[0]

    with Running(tmp_path / "data") as server:
        assert asyncio.run(scenario(server.address)) == 1


def test_something_else_than_a_broker_is_recognised(tmp_path: Path) -> None:
    """Whoever answers HTTP is not a broker; the client says so at once instead of trying on."""
    del tmp_path

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ProtocolError, match="native protocol"):
                await asyncio.wait_for(goqueue.aio.connect(f"127.0.0.1:{port}"), 20)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:7070", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:0", "[::1]:99999"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """The error shows what an address looks like."""
    with pytest.raises(GoQueueError, match="host:port"):
        goqueue.connect(address)


def test_a_client_forgets_producers_that_were_closed(client: goqueue.Client) -> None:
    """One that makes a producer for every job does not grow with the jobs."""
    known = len(client._producers)  # noqa: SLF001
    for number in range(5):
        with client.producer(TOPIC) as producer:
            producer.send(b"x")
        with client.producer(TOPIC, transactional_id=f"job-{number}"):
            pass

    assert len(client._producers) == known  # noqa: SLF001


def test_an_async_client_forgets_producers_that_were_closed(tmp_path: Path) -> None:
    """The same in a loop."""

    async def main(address: str) -> None:
        async with await goqueue.aio.connect(address) as client:
            await client.create_topic(TOPIC, partitions=1)
            for _ in range(5):
                async with client.producer(TOPIC) as producer:
                    await producer.send(b"x")

            assert not client._producers  # noqa: SLF001

    with Running(tmp_path / "data") as server:
        asyncio.run(main(server.address))
