"""An outbox in a thread that sends and receives by itself."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol

from goqueue.base.errors import ClosedError, ConnectionLostError, GoQueueError
from goqueue.client.protocol.exchange import Answer, Reply
from goqueue.client.protocol.outbox import UNANSWERED, Batch, OwnerType, Pause
from goqueue.client.protocol.sending import Sending
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation


class SenderLink(Protocol):
    """A blocking connection to a broker, or several to the nodes of a cluster."""

    def limit(self, seconds: float) -> None:
        """Wait no longer than this for what is asked from now on."""
        ...

    def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and wait for its reply."""
        ...

    def send_to(
        self,
        node: str,
        operation: Operation,
        header: calls.Call,
        payload: Sequence[Buffer] = (),
    ) -> int:
        """Send a request to a node and return its correlation."""
        ...

    def receive_any(self) -> Reply:
        """Wait for the next reply, whichever request it is for."""
        ...

    def receive_within(self, seconds: float) -> Reply | None:
        """Wait so long for the next reply, whichever request it is for."""
        ...

    def refresh_soon(self) -> None:
        """Have it asked where things are, if that is due."""
        ...

    def close(self) -> None:
        """End the connections."""
        ...


class BlockingSender(Generic[OwnerType]):
    """Performs the steps of an outbox. One thread at a time."""

    def __init__(
        self, link: SenderLink, outbox: Sending[OwnerType], *, is_limited: bool = False
    ) -> None:
        self._link = link
        self._outbox = outbox
        self._is_limited = is_limited
        """Whether answers are waited for no longer than their batches have time."""
        self._waiting: dict[int, list[Batch[OwnerType]]] = {}
        self.is_closed = False
        """Whether nothing is sent again; set by who closes, from any thread."""

    def __repr__(self) -> str:
        return f"<BlockingSender of {self._outbox!r} by {self._link!r}>"

    def submit(self, batches: list[Batch[OwnerType]]) -> None:
        """Send batches of one topic in one request; waits only while many are under way."""
        self._outbox.submit(batches)
        self._drive(lambda: self._outbox.has_slot)

    def flush(self) -> None:
        """Return when every batch is placed or failed."""
        self._drive(lambda: self._outbox.is_idle)

    def _drive(self, is_enough: Callable[[], bool]) -> None:
        try:
            while True:
                step = self._outbox.step(time.monotonic())
                if isinstance(step, list):
                    self._post(step)
                elif isinstance(step, Pause):
                    self._pause(step)
                elif step is not None:
                    self._introduce(step)
                elif is_enough():
                    return
                else:
                    self._take_reply()
        except BaseException:
            # An answer may still come, and must not be taken for that to another request.
            self._link.close()
            self._waiting = {}
            self._outbox.forget(ClosedError("interrupted"))
            raise

    def _post(self, batches: list[Batch[OwnerType]]) -> None:
        self._limit()
        try:
            if self.is_closed:
                raise ConnectionLostError("the producer was closed")
            header, payload = self._outbox.content(batches)
            node = self._outbox.node_of(batches)
            self._waiting[self._link.send_to(node, Operation.PRODUCE, header, payload)] = batches
        except UNANSWERED as error:
            self._lose([*self._waiting.values(), batches], error)
        except GoQueueError as error:
            self._outbox.failed(batches, error, time.monotonic())

    def _take_reply(self, seconds: float | None = None) -> None:
        try:
            within = self._link.receive_within
            reply = self._link.receive_any() if seconds is None else within(seconds)
        except GoQueueError as error:
            self._lose(list(self._waiting.values()), error)
            return
        if reply is None:
            return
        batches = self._waiting.pop(reply.correlation, None)
        if batches is None:
            return
        if isinstance(reply.outcome, GoQueueError):
            self._outbox.failed(batches, reply.outcome, time.monotonic())
        else:
            self._outbox.answered(batches, reply.outcome, time.monotonic())

    def _lose(self, groups: list[list[Batch[OwnerType]]], error: GoQueueError) -> None:
        """Take note that there is no connection any more for what is under way."""
        self._link.close()
        self._waiting = {}
        for batches in groups:
            self._outbox.failed(batches, error, time.monotonic())

    def _introduce(self, header: calls.InitProducer) -> None:
        self._limit()
        try:
            answer = self._link.request(Operation.INIT_PRODUCER, header)
        except GoQueueError as error:
            self._outbox.not_introduced(error, time.monotonic())
        else:
            self._outbox.introduced(answer, time.monotonic())

    def _limit(self) -> None:
        if self._is_limited:
            self._link.limit(self._outbox.deadline - time.monotonic())

    def _pause(self, pause: Pause) -> None:
        """Wait before the next try, but not beyond the time that is left for it."""
        self._link.refresh_soon()
        if self._waiting:
            # Other partitions go on meanwhile.
            self._take_reply(max(pause.until - time.monotonic(), 0))
            return
        until = min(pause.until, self._outbox.deadline)
        if not self.is_closed:
            time.sleep(max(until - time.monotonic(), 0))
        if self.is_closed or until < pause.until:
            self._outbox.expire(math.inf if self.is_closed else until)
