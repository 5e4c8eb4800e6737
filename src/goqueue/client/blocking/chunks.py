"""Where a synchronous reader's chunks come from: a blocking connection, or the broker beside it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Final, NamedTuple, Protocol

from goqueue.base.errors import ClosedError, ConnectionLostError, GoQueueError
from goqueue.client.aio.link import Link
from goqueue.client.blocking.in_place import LocalFiles
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.protocol.chunk import Chunk
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Answer, decode
from goqueue.client.protocol.fetching import Fetching, NotInPlaceError, ReadOptions, parts_of
from goqueue.client.protocol.positions import Position, resolve, time_of
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation

IN_PLACE_MESSAGES_MIN: Final = 10_000
"""For fewer it is not worth while to open the broker's files."""


class Requests(Protocol):
    """Sends a request now, returns its reply later; one at a time."""

    @property
    def is_local(self) -> bool:
        """Whether the broker's files may be there to be opened."""
        ...

    def send(self, operation: Operation, header: calls.Call) -> object:
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
        self.is_local = False
        """What a broker in this process reads need not be read again."""

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


class _Arrival(NamedTuple):
    """A part of a reply with its frames, or what will be them when they are read."""

    part: calls.FetchedPart
    frames: memoryview | Future[memoryview]


class Source(Protocol):
    """Where the chunks of one reader come from."""

    def chunks(self, topic: str, options: ReadOptions) -> Iterator[Chunk]:
        """Yield the chunks of a topic."""
        ...

    def close(self) -> None:
        """Release what is held; who waits for a reply in another thread is told."""
        ...


class ChunkSource:
    """Reads one topic through one link, reconnecting and going on where it was."""

    def __init__(self, link: Requests, *, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._is_closed = False
        self._is_committed = True
        self._is_asked = False
        self._files = LocalFiles()

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
        yield from self.read(fetching)

    def read(self, fetching: Fetching) -> Iterator[Chunk]:
        """Yield the chunks of a reader that knows where to begin and end."""
        fetching.in_place = self._link.is_local and fetching.backlog >= IN_PLACE_MESSAGES_MIN
        self._is_asked = False
        while not fetching.is_over:
            try:
                yield from self._pieces(fetching)
            except NotInPlaceError:
                # What was asked for meanwhile goes with the connection.
                fetching.in_place = self._is_asked = False
                self._files.close()
                self._link.close()

    def _pieces(self, fetching: Fetching) -> Iterator[Chunk]:
        """Yield chunks; while the thread reads one in place, the one before it is handed out."""
        reading: _Arrival | None = None
        for arrival in self._arrivals(fetching):
            if reading is not None:
                yield from _taken(fetching, reading)
                reading = None
            if arrival is not None and isinstance(arrival.frames, Future):
                reading = arrival
            elif arrival is not None:
                yield from _taken(fetching, arrival)

    def _arrivals(self, fetching: Fetching) -> Iterator[_Arrival | None]:
        """Yield the parts of replies; None where all of them must be taken before it goes on."""
        on_header = partial(self._ask_behind, fetching)
        while True:
            if not self._is_asked:
                yield None
                if fetching.is_over:
                    return
                answer = self._receive(Operation.FETCH, fetching.request, on_header=on_header)
            else:
                self._is_asked = False
                try:
                    answer = self._link.receive(on_header)
                except ConnectionLostError:
                    continue
                except GoQueueError:
                    # What came before is handed out before it is told.
                    yield None
                    raise
            parts = list(parts_of(answer))
            self._files.open([part.place for part, _ in parts if part.place is not None])
            for part, frames in parts:
                in_place = part.place and self._files.read(part.place, part.size)
                yield _Arrival(part, in_place or frames)

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
                self._link.send(operation, header())
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
        self._files.close()

    def release(self) -> None:
        """Release the files; a reply under way is not waited for any more."""
        if self._is_asked:
            self._link.close()
        self._files.close()


def _taken(fetching: Fetching, arrival: _Arrival) -> list[Chunk]:
    if isinstance(arrival.frames, Future):
        return fetching.take_in_place(arrival.part, arrival.frames.result())
    return fetching.take_part(arrival.part, arrival.frames)
