"""A producer in ordinary code: ``send`` gathers and goes on, ``publish`` waits for its message."""

from types import TracebackType
from typing import Protocol, Self, Unpack

from goqueue.base.errors import ClosedError
from goqueue.client.link import Link
from goqueue.client.loop_thread import LoopThread
from goqueue.client.pile import Place, SendFuture
from goqueue.client.producer import Gatherer
from goqueue.client.producer_options import ProducerOptions
from goqueue.client.publisher import Publisher
from goqueue.client.special import PublishFields
from goqueue.client.transaction import Transaction, required
from goqueue.client.transaction_session import TxSession


class Send(Protocol):
    """The call made per message."""

    def __call__(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> SendFuture:
        """Queue one message and return its future."""
        ...


class Producer:
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
    ) -> None:
        self._topic = topic
        self._thread = thread
        self._publisher = publisher
        self._session: TxSession | None = None
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

    def __repr__(self) -> str:
        return f"<Producer of {self._topic}>"

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
        return Transaction(required(self._session), self._topic, self._thread.run)

    @property
    def last_token(self) -> str:
        """The token of the last commit under this transactional id; empty if it had none."""
        return required(self._session).token

    def flush(self, timeout: float | None = None) -> None:
        """Send what is gathered and wait until every message is settled."""
        self._thread.run(self._gatherer.flush(), timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush and take no more; what is sent or published and not settled in time fails."""
        if not self._is_closed:
            self._is_closed = True
            if self._publisher is not None:
                self._publisher.close(timeout)
            if self._session is not None:
                self._thread.run(self._session.close())
            self._thread.run(self._gatherer.close(timeout_s=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
