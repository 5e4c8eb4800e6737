"""pika's callback connection as two plain calls: publish with confirms, and consume."""

import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import pika

WINDOW_MESSAGES = 4000
"""Unconfirmed messages: enough to keep the node busy, few enough to bound memory."""
BURST_MESSAGES = 200
"""Published before the loop may look at the socket again."""


class _Session:
    """A connection with one channel whose loop runs until the work is done."""

    def __init__(self, parameters: Any) -> None:  # noqa: ANN401 - pika ships no types
        self._problem: str | None = None
        self._started = self._seconds = 0.0
        self._connection: Any = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._open),
            on_open_error_callback=self._fail,
            on_close_callback=self._closed,
        )
        self._channel: Any = None

    def run(self) -> float:
        """Run to the end and return the seconds the work took."""
        self._connection.ioloop.start()
        self._connection.ioloop.close()
        if self._problem is not None:
            raise ConnectionError(self._problem)
        return self._seconds

    def _open(self, channel: Any) -> None:  # noqa: ANN401 - as above
        self._channel = channel
        self._started = time.perf_counter()
        self._begin()

    def _begin(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        self._seconds = time.perf_counter() - self._started
        self._connection.close()

    def _fail(self, _connection: object, error: object) -> None:
        self._problem = str(error)
        self._connection.ioloop.stop()

    def _closed(self, _connection: object, reason: object) -> None:
        if not self._seconds:
            self._problem = str(reason)
        self._connection.ioloop.stop()


class Publish(_Session):
    """Publish ``(queue, key, value)`` triples, never more than a window ahead of the confirms."""

    def __init__(self, parameters: Any, routed: Iterator[tuple[str, bytes, bytes]]) -> None:  # noqa: ANN401 - as above
        super().__init__(parameters)
        self._routed = routed
        self._tag = 0
        self._unconfirmed: dict[int, None] = {}
        self._exhausted = self._waiting = False

    def _begin(self) -> None:
        self._channel.confirm_delivery(self._confirm)
        self._burst()

    def _burst(self) -> None:
        self._waiting = False
        for _ in range(min(BURST_MESSAGES, WINDOW_MESSAGES - len(self._unconfirmed))):
            message = next(self._routed, None)
            if message is None:
                self._exhausted = True
                break
            queue, key, value = message
            properties = pika.BasicProperties(delivery_mode=2, message_id=key.decode())
            self._channel.basic_publish("", queue, value, properties)
            self._tag += 1
            self._unconfirmed[self._tag] = None
        self._proceed()

    def _confirm(self, frame: Any) -> None:  # noqa: ANN401 - as above
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._problem = "the node refused a message"
        tag = frame.method.delivery_tag
        # Confirms of several queues interleave, so only a set of tags tells what is outstanding.
        if frame.method.multiple:
            for confirmed in list(takewhile(tag.__ge__, self._unconfirmed)):
                del self._unconfirmed[confirmed]
        else:
            del self._unconfirmed[tag]
        self._proceed()

    def _proceed(self) -> None:
        if self._exhausted:
            if not self._unconfirmed:
                self._finish()
        elif len(self._unconfirmed) < WINDOW_MESSAGES and not self._waiting:
            self._waiting = True
            self._connection.ioloop.call_later(0, self._burst)


class Consume(_Session):
    """Take this many messages from several queues, acked one by one where a prefetch is given."""

    def __init__(
        self,
        parameters: Any,  # noqa: ANN401 - as above
        queues: Sequence[str],
        *,
        count: int,
        prefetch: int | None = None,
    ) -> None:
        super().__init__(parameters)
        self._prefetch = prefetch
        self._queues = queues
        self._left = count
        self._size = 0

    def _begin(self) -> None:
        if self._prefetch is not None:
            self._channel.basic_qos(prefetch_count=self._prefetch)
        for queue in self._queues:
            self._channel.basic_consume(queue, self._receive, auto_ack=self._prefetch is None)

    def _receive(self, channel: Any, method: Any, _header: object, body: bytes) -> None:  # noqa: ANN401
        self._size += len(body)
        if self._prefetch is not None:
            channel.basic_ack(method.delivery_tag)
        self._left -= 1
        if self._left == 0:
            self._finish()
