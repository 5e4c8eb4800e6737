"""Producers as programs have them: one for ordinary code, one for event loops.

``send`` gathers and goes on, ``publish`` waits for its message.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol, Unpack

from goqueue.base.errors import ClosedError, GoQueueError
from goqueue.client.aio.link import Link, call
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.producer.awaited import AwaitedSends
from goqueue.client.producer.gatherer import Gatherer
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.pile import SendFuture
from goqueue.client.producer.publisher import Publisher
from goqueue.client.producer.special import PublishFields
from goqueue.client.protocol.leaving import AsyncCloses, Closes
from goqueue.client.protocol.outcome import Place
from goqueue.client.tx.session import TxSession
from goqueue.client.tx.transaction import AsyncTransaction, Transaction, required
from goqueue.wire import calls
from goqueue.wire.packet import Operation


class Send(Protocol):
    """The call made per message."""

    def __call__(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> SendFuture:
        """Queue one message and return its future."""
        ...


class _OfTopic:
    """What both kinds of producer share."""

    _topic: str
    _gatherer: Gatherer
    _session: TxSession | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._topic}>"

    @property
    def last_token(self) -> str:
        """The token of the last commit under this transactional id; empty if it had none.

        With ``goqueue.aio`` it is known within ``async with`` only.
        """
        return required(self._session).token

    def _check(self) -> None:
        if self._session is None:
            # What fails within a transaction is told by its commit.
            self._gatherer.untold.check()


class Producer(_OfTopic, Closes):
    """Publishes to one topic. Safe to share between threads."""

    send: Send
    """Queue one message and return its future; blocks only while the buffer is full."""

    def __init__(
        self,
        link: Link,
        thread: LoopThread,
        topic: str,
        *,
        partitions: int,
        options: ProducerOptions,
        publisher: Publisher | None = None,
        timeout_s: float = 30.0,
        on_close: Callable[["Producer"], None] = lambda _: None,
    ) -> None:
        self._topic = topic
        self._thread = thread
        self._publisher = publisher
        self._on_close = on_close
        if options.transactional_id is None:
            self._gatherer = Gatherer(link, thread.loop, topic, options, loop_thread=thread.ident)
            self._gatherer.learn(partitions)
        else:
            self._session = TxSession(
                link, options, thread.loop, loop_thread=thread.ident, timeout_s=timeout_s
            )
            thread.run(self._session.start(topic))
            self._gatherer = self._session.gatherers[topic]
        self._is_closed = False
        # An attribute, not a method: one call per message instead of two.
        self.send = self._gatherer.send

    def publish(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> Place:
        """Publish one message, behind all that were sent, and return where it is.

        The same as ``send(...).result()`` with less to do while nothing else is under way: no other
        thread is woken. While several threads publish, their messages go out together.
        """
        if self._is_closed:
            raise ClosedError("the producer was closed")
        publisher = self._publisher
        if publisher is None or not publisher.begin():
            return self.send(value, key=key, **fields).result()
        try:
            if self._gatherer.is_idle:
                return publisher.publish(value, key, fields)
        finally:
            publisher.end()
        # Behind what is under way; others may go on sending for ever, so nobody waits for its end.
        return self.send(value, key=key, **fields).result()

    def transaction(self) -> Transaction:
        """Return a transaction, to be used with ``with``; needs a ``transactional_id``."""
        return Transaction(required(self._session), self._topic, self._thread)

    def flush(self, timeout: float | None = None) -> None:
        """Send what is gathered and wait until every message is settled.

        Raises if messages failed whose futures nobody has asked; with ``on_error`` they go there.
        """
        self._thread.run(self._gatherer.flush(), timeout, what="the acks of messages")
        self._check()

    def close(self, timeout: float | None = None) -> None:
        """Flush and take no more; what is sent or published and not settled in time fails.

        Raises as ``flush`` does.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._publisher is not None:
                self._publisher.close(timeout)
            if self._session is not None:
                self._thread.run(self._session.close())
            self._thread.run(self._gatherer.close(timeout_s=timeout))
        finally:
            self._on_close(self)
        self._check()


class AsyncProducer(_OfTopic, AsyncCloses):
    """Publishes to one topic. ``send`` queues at once and returns a future that can be awaited."""

    def __init__(
        self,
        link: Link,
        topic: str,
        options: ProducerOptions,
        timeout_s: float,
        *,
        on_close: Callable[["AsyncProducer"], None] = lambda _: None,
    ) -> None:
        self._link = link
        self._on_close = on_close
        self._topic = topic
        self._timeout_s = timeout_s
        self._awaited: AwaitedSends | None = None
        loop = asyncio.get_running_loop()
        here = threading.get_ident()
        if options.transactional_id is None:
            self._gatherer = Gatherer(link, loop, topic, options, loop_thread=here)
            self._awaited = AwaitedSends(self._gatherer, loop)
        else:
            self._session = TxSession(link, options, loop, loop_thread=here, timeout_s=timeout_s)
            self._gatherer = self._session.gatherer(topic)
        self._starting = loop.create_task(self._start())

    async def _start(self) -> None:
        if self._session is not None:
            await self._session.start(self._topic)
            return
        try:
            state = await call(
                self._link,
                Operation.DESCRIBE_TOPIC,
                calls.TopicCall(self._topic),
                calls.TopicState,
                timeout_s=self._timeout_s,
            )
        except GoQueueError as error:
            self._gatherer.fail(error)
        else:
            self._gatherer.learn(len(state.partitions))

    def send(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> SendFuture:
        """Queue one message. A full buffer raises BufferFullError; ``drain`` waits for room."""
        return self._gatherer.send(value, key, **fields)

    async def publish(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> Place:
        """Publish one message without lingering and return where it is.

        Messages of tasks that call this in the same turn of the event loop go out together.
        """
        waiting = None if self._awaited is None else self._awaited.publish(value, key, fields)
        if waiting is None:
            return await self.send(value, key=key, **fields)
        return (await waiting).result()

    def transaction(self) -> AsyncTransaction:
        """Return a transaction, to be used with ``async with``; needs a ``transactional_id``."""
        return AsyncTransaction(required(self._session), self._topic, self._starting)

    async def drain(self) -> None:
        """Return when the buffer has room again."""
        await self._starting
        await self._gatherer.room()

    async def flush(self) -> None:
        """Send what is gathered and return when every message is settled.

        Raises if messages failed whose futures nobody has asked; with ``on_error`` they go there.
        """
        await self._starting
        await self._gatherer.flush()
        self._check()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and take no more; what is not settled in time fails. Raises as ``flush`` does."""
        try:
            if self._session is not None:
                await asyncio.wait({self._starting})
                await self._session.close()
            else:
                await self._starting
            await self._gatherer.close(timeout_s=timeout_s)
        finally:
            self._on_close(self)
        self._check()

    async def _ready(self) -> None:
        await self._starting
