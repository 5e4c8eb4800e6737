"""pika's asyncio connection with callbacks turned into awaits: confirms, and one job at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection


@asynccontextmanager
async def connect(parameters: Any) -> AsyncIterator["Connection"]:  # noqa: ANN401 - pika ships no types
    """Open a connection and close it again."""
    connection = Connection(parameters)
    await connection.opened
    try:
        yield connection
    finally:
        await connection.close()


class Connection:
    """A connection whose waiting callers fail when it is lost."""

    def __init__(self, parameters: Any) -> None:  # noqa: ANN401 - as above
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[object] = self._loop.create_future()
        self._closed: asyncio.Future[object] = self._loop.create_future()
        self._channels: list[ConfirmingChannel | ConsumingChannel] = []
        self._connection: Any = AsyncioConnection(
            parameters,
            on_open_callback=self.opened.set_result,
            on_open_error_callback=lambda _connection, error: self.opened.set_exception(error),
            on_close_callback=self._lost,
            custom_ioloop=self._loop,
        )

    async def confirming(self) -> "ConfirmingChannel":
        """Open a channel whose publishes are confirmed."""
        raw = await self._channel()
        channel = ConfirmingChannel(raw)
        self._channels.append(channel)
        done = self._loop.create_future()
        raw.confirm_delivery(channel.confirmed, callback=done.set_result)
        await done
        return channel

    async def consuming(self, queue: str) -> "ConsumingChannel":
        """Open a channel that has one unacked job of the queue at a time."""
        raw = await self._channel()
        channel = ConsumingChannel(raw)
        self._channels.append(channel)
        done = self._loop.create_future()
        raw.basic_qos(prefetch_count=1, callback=done.set_result)
        await done
        done = self._loop.create_future()
        raw.basic_consume(queue, channel.received, callback=done.set_result)
        await done
        return channel

    async def close(self) -> None:
        """Close the channels and the connection."""
        if not self._closed.done():
            self._connection.close()
        await self._closed

    async def _channel(self) -> Any:  # noqa: ANN401 - as above
        opened = self._loop.create_future()
        self._connection.channel(on_open_callback=opened.set_result)
        return await opened

    def _lost(self, _connection: object, reason: BaseException) -> None:
        self._closed.set_result(None)
        for channel in self._channels:
            channel.fail(reason)


class ConfirmingChannel:
    """Publishes that each wait for their confirm."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - as above
        self._channel = channel
        self._tag = 0
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}

    async def publish(self, queue: str, *, key: bytes, value: bytes) -> None:
        """Return when the node has confirmed the message."""
        properties = pika.BasicProperties(delivery_mode=2, message_id=key.decode())
        self._channel.basic_publish("", queue, value, properties)
        self._tag += 1
        confirmed = asyncio.get_running_loop().create_future()
        self._unconfirmed[self._tag] = confirmed
        await confirmed

    def confirmed(self, frame: Any) -> None:  # noqa: ANN401 - as above
        """Answer one publish, or all up to a tag."""
        tag = frame.method.delivery_tag
        tags = list(takewhile(tag.__ge__, self._unconfirmed)) if frame.method.multiple else [tag]
        for each in tags:
            waiting = self._unconfirmed.pop(each)
            if isinstance(frame.method, pika.spec.Basic.Nack):
                waiting.set_exception(ConnectionError("the node refused a message"))
            else:
                waiting.set_result(None)

    def fail(self, reason: BaseException) -> None:
        """Let those that wait know that the connection is lost."""
        for waiting in self._unconfirmed.values():
            waiting.set_exception(reason)


class ConsumingChannel:
    """A worker's jobs, one at a time."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - as above
        self._channel = channel
        self._jobs: asyncio.Queue[int | BaseException] = asyncio.Queue()

    async def take(self) -> None:
        """Wait for a job and ack it."""
        found = await self._jobs.get()
        if isinstance(found, BaseException):
            raise found
        self._channel.basic_ack(found)

    def received(self, _channel: object, method: Any, _header: object, _body: bytes) -> None:  # noqa: ANN401 - as above
        """Keep the job for the worker."""
        self._jobs.put_nowait(method.delivery_tag)

    def fail(self, reason: BaseException) -> None:
        """Let the worker know that the connection is lost."""
        self._jobs.put_nowait(reason)
