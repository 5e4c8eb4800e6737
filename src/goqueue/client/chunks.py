"""Where a synchronous reader's chunks come from: a blocking connection, or the broker beside it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Protocol

from goqueue.base.errors import ClosedError, ConnectionLostError
from goqueue.client.blocking import BlockingLink
from goqueue.client.link import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Answer,
    Link,
    decode,
)
from goqueue.client.loop_thread import LoopThread
from goqueue.client.positions import Position, resolve, time_of
from goqueue.client.reader import Chunk, Fetching, ReadOptions
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation


class Requests(Protocol):
    """Sends a request now, returns its reply later; one at a time."""

    def send(self, operation: Operation, header: calls.Call) -> None:
        """Send a request."""
        ...

    def receive(self, on_header: Callable[[Buffer], None] | None = None) -> Answer:
        """Wait for the reply to the request sent; ``on_header`` may see its header early."""
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

    def receive(self, on_header: Callable[[Buffer], None] | None = None) -> Answer:
        """Wait for the reply to the request sent last. It comes whole: no header is early."""
        del on_header
        assert self._pending is not None, "a request was sent"
        try:
            return self._pending.result()
        except CancelledError as error:
            raise ClosedError("the client was closed") from error

    def close(self) -> None:
        """Release what is held."""
        if self._pending is not None:
            self._pending.cancel()


class ChunkSource:
    """Reads one topic through one link, reconnecting and going on where it was."""

    def __init__(self, link: BlockingLink | Requests, *, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._is_closed = False
        self._is_committed = True
        self._is_asked = False

    def chunks(self, topic: str, options: ReadOptions) -> Iterator[Chunk]:
        """Yield the chunks of a topic; the next is asked for before one is handed out."""
        fetching = Fetching(topic, options)
        self._is_committed = options.is_committed
        parts = fetching.pick(self._ranges(topic, None))
        end = None
        if not options.follow:
            end = self._resolve(topic, options.last, parts, other="latest")
        start = self._resolve(topic, options.start, parts)
        fetching.begin(parts, start=start, end=end)
        self._is_asked = False
        while not fetching.is_over:
            answer = self._receive(
                Operation.FETCH, fetching.request, on_header=partial(self._ask_behind, fetching)
            )
            chunks = fetching.take(answer)
            if not self._is_asked and not fetching.is_over:
                self._ask(fetching.request())
            yield from chunks

    def _ask_behind(self, fetching: Fetching, header: Buffer) -> None:
        """Ask for what follows a reply whose payload is still to come."""
        request = fetching.request_behind(header)
        if request is not None:
            self._ask(request)

    def _ask(self, request: calls.Fetch) -> None:
        with contextlib.suppress(ConnectionLostError):
            self._link.send(Operation.FETCH, request)
            self._is_asked = True

    def _receive(
        self,
        operation: Operation,
        header: Callable[[], calls.Call],
        *,
        on_header: Callable[[Buffer], None] | None = None,
    ) -> Answer:
        """Return the reply, asking again while the connection gets lost and time is left."""
        deadline = time.monotonic() + self._timeout_s
        backoff_s = BACKOFF_SECONDS
        while True:
            if self._is_closed:
                raise ClosedError("the client was closed")
            try:
                if not self._is_asked:
                    self._link.send(operation, header())
                self._is_asked = False
                return self._link.receive(on_header)
            except ConnectionLostError:
                self._is_asked = False
                if time.monotonic() > deadline:
                    raise
                time.sleep(0 if self._is_closed else backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _ranges(self, topic: str, timestamp_us: int | None) -> list[calls.OffsetsPart]:
        header = calls.Offsets(topic, timestamp_us, self._is_committed)
        answer = self._receive(Operation.OFFSETS, lambda: header)
        return decode(answer.header, calls.OffsetsReply).parts

    def _resolve(
        self,
        topic: str,
        position: Position,
        parts: list[calls.OffsetsPart],
        *,
        other: str = "earliest",
    ) -> dict[int, int]:
        moment = time_of(position)
        at_time = [] if moment is None else self._ranges(topic, moment)
        return resolve(position, parts, at_time, other=other)

    def close(self) -> None:
        """Release the link; who waits for a reply in another thread is told."""
        self._is_closed = True
        self._link.close()
