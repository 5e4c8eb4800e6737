"""Where a synchronous reader's chunks come from: a blocking connection, or the broker beside it."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Protocol, TypeVar

from goqueue.base.errors import ConnectionLostError
from goqueue.client.blocking import BlockingLink
from goqueue.client.link import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Answer,
    Link,
    ReplyHeader,
    decode,
)
from goqueue.client.loop_thread import LoopThread
from goqueue.client.positions import Position, resolve, time_of
from goqueue.client.reader import Chunk, Fetching, ReadOptions
from goqueue.wire import calls
from goqueue.wire.packet import Operation

Result = TypeVar("Result")


class Requests(Protocol):
    """Sends a request now, returns its reply later; one at a time."""

    def send(self, operation: Operation, header: calls.Call) -> None:
        """Send a request."""
        ...

    def receive(self) -> Answer:
        """Wait for the reply to the request sent last."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class EmbeddedRequests:
    """Requests to a broker in this process."""

    def __init__(self, link: Link, thread: LoopThread) -> None:
        self._link = link
        self._thread = thread
        self._pending: Future[Answer] | None = None

    def send(self, operation: Operation, header: calls.Call) -> None:
        """Send a request."""
        self._pending = self._thread.submit(self._link.request(operation, header))

    def receive(self) -> Answer:
        """Wait for the reply to the request sent last."""
        assert self._pending is not None, "a request was sent"
        return self._pending.result()

    def close(self) -> None:
        """Release what is held."""
        if self._pending is not None:
            self._pending.cancel()


class ChunkSource:
    """Reads one topic through one link, reconnecting and going on where it was."""

    def __init__(self, link: BlockingLink | Requests, *, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s

    def chunks(self, topic: str, options: ReadOptions) -> Iterator[Chunk]:
        """Yield the chunks of a topic; the next is asked for before one is handed out."""
        fetching = Fetching(topic, options)
        parts = fetching.pick(self._ranges(topic, None))
        end = None if options.follow else self._resolve(topic, options.end or "latest", parts)
        start = self._resolve(topic, options.start, parts)
        fetching.begin(parts, start=start, end=end)
        is_asked = False
        while not fetching.is_over:
            answer = self._receive(fetching, is_asked=is_asked)
            chunks = fetching.take(answer)
            is_asked = not fetching.is_over and self._ask(fetching)
            yield from chunks

    def _ask(self, fetching: Fetching) -> bool:
        try:
            self._link.send(Operation.FETCH, fetching.request())
        except ConnectionLostError:
            return False
        return True

    def _receive(self, fetching: Fetching, *, is_asked: bool) -> Answer:
        deadline = time.monotonic() + self._timeout_s
        backoff_s = BACKOFF_SECONDS
        while True:
            try:
                if not is_asked:
                    self._link.send(Operation.FETCH, fetching.request())
                return self._link.receive()
            except ConnectionLostError:
                is_asked = False
                if time.monotonic() > deadline:
                    raise
                time.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _ranges(self, topic: str, timestamp_us: int | None) -> list[calls.OffsetsPart]:
        header = calls.Offsets(topic, timestamp_us)
        return self._call(Operation.OFFSETS, header, calls.OffsetsReply).parts

    def _call(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        self._link.send(operation, header)
        return decode(self._link.receive().header, kind)

    def _resolve(
        self, topic: str, position: Position, parts: list[calls.OffsetsPart]
    ) -> dict[int, int]:
        moment = time_of(position)
        at_time = [] if moment is None else self._ranges(topic, moment)
        return resolve(position, parts, at_time)

    def close(self) -> None:
        """Release the link."""
        self._link.close()
