"""The synchronous consumer: messages of a group in an ordinary loop.

The consuming thread polls and settles through a connection of its own; the next poll is under way
while messages are handed out. Everything that must go on meanwhile is in ``consumer_upkeep``.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator, Mapping
from itertools import islice
from types import TracebackType
from typing import Final, Self

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    CorruptFrameError,
    DeadlineExceededError,
    GoQueueError,
    InvalidRequestError,
    ProtocolError,
)
from goqueue.base.units import SECOND_MS
from goqueue.client.consumer_channel import Channel, Reply, Request
from goqueue.client.consumer_hold import Place, settlements
from goqueue.client.consumer_membership import NOT_A_MEMBER
from goqueue.client.consumer_options import ConsumerOptions
from goqueue.client.consumer_run import Handle, Workers
from goqueue.client.consumer_upkeep import Upkeep, refused_error
from goqueue.client.deliver_decode import Portion
from goqueue.client.delivery import Delivery, Order
from goqueue.client.link import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX
from goqueue.client.loop_thread import LoopThread
from goqueue.client.reader import FETCH_BYTES
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Poll

WAIT_MS: Final = 1_000
CONCURRENCY_MAX: Final = 1_000
PORTION_WORTH_SETTLING: Final = 64
"""Messages of one lease that are worth a request of their own while a poll is under way."""


class Consumer:
    """A member of a group. Iterate over it, or ``run`` a handler; close it afterwards."""

    def __init__(
        self,
        upkeep: Upkeep,
        channel: Channel,
        thread: LoopThread,
        options: ConsumerOptions,
        *,
        timeout_s: float,
        on_close: Callable[["Consumer"], None] = lambda _: None,
    ) -> None:
        self._upkeep = upkeep
        self._hold = upkeep.hold
        self._channel = channel
        self._thread = thread
        self._options = options
        self._timeout_s = timeout_s
        self._on_close = on_close
        # Held by whoever uses the channel: the consuming thread, or the loop while that is busy.
        self._io = threading.Lock()
        self._is_stopping = False
        self._stopping = threading.Event()
        self._pending: dict[int, list[Order] | None] = {}
        self._polls: dict[int, float] = {}
        """When the polls under way were sent, by their correlations."""
        self._is_idle = False
        """Whether the consuming thread has nothing to hand out and waits for more."""
        self._rejoined_s = -math.inf
        self._poll_error: GoQueueError | None = None
        self._lost_s: float | None = None
        self._backoff_s = BACKOFF_SECONDS
        self._workers: Workers | None = None
        self._is_closed = False
        upkeep.pump = self._pump
        try:
            thread.run(upkeep.start())
        except BaseException:
            channel.end()
            raise

    def __repr__(self) -> str:
        return f"<Consumer {self.member_id} of {self._options.group}: {self._hold!r}>"

    @property
    def member_id(self) -> str:
        """What the group calls this consumer."""
        return self._upkeep.membership.member_id

    @property
    def is_running(self) -> bool:
        """Tell whether nobody has stopped or closed it."""
        return not self._is_stopping

    @property
    def assignment(self) -> list[Place]:
        """The partitions this consumer reads, as far as it was told."""
        return list(self._upkeep.membership.assigned)

    # Messages.

    def __iter__(self) -> Generator[Delivery, None, None]:
        """Yield messages as they come; ends after ``stop`` or ``close``."""
        if self._is_closed:
            raise ClosedError("the consumer was closed")
        return self._auto_acked() if self._options.auto_ack else self._messages()

    def poll(self, max_messages: int = 500, timeout: float = 1.0) -> list[Delivery]:
        """Return some messages, waiting for the first at most so many seconds."""
        if self._is_closed:
            raise ClosedError("the consumer was closed")
        deadline_s = time.monotonic() + timeout
        while (portion := self._next(deadline_s)) is not None:
            with self._io:
                taken = list(islice(self._hold.open(portion), max_messages))
            if taken and not portion.lease.is_over:
                return taken
            for message in taken:
                self._hold.give_up(portion, message.offset)
        return []

    def run(self, handler: Handle, *, concurrency: int = 1, timeout: float | None = None) -> None:
        """Handle messages in so many threads until ``stop``.

        A message is acked when the handler returns and nacked when it raises; leases of handlers
        that take long are extended. At the end, also by Ctrl-C, handlers under way are waited for,
        ``timeout`` seconds at most.
        """
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise InvalidRequestError(f"concurrency: must be 1 to {CONCURRENCY_MAX}")
        if self._is_closed:
            raise ClosedError("the consumer was closed")
        self._hold.extends_handed = True
        self._workers = workers = Workers(
            self._messages(), handler, settled=self._hurry, stop=self.stop
        )
        try:
            workers.start(concurrency)
            workers.join()
        except BaseException:
            self.stop()
            workers.join(self._timeout_s if timeout is None else timeout)
            raise
        finally:
            self._hold.extends_handed = False
        workers.check()
        self.flush()

    def _messages(self) -> Generator[Delivery, None, None]:
        while (portion := self._next()) is not None:
            lease = portion.lease
            for message in self._hold.open(portion):
                if lease.is_over:
                    self._hold.give_up(portion, message.offset)
                    break
                yield message

    def _auto_acked(self) -> Generator[Delivery, None, None]:
        for message in self._messages():
            yield message
            message.lease.open.discard(message.offset)

    # Settlements.

    def flush(self, timeout: float | None = None) -> None:
        """Send every settlement, wait for the answers, raise if any was refused.

        With ``on_refused`` refusals go there and nothing is raised.
        """
        self._thread.run(self._upkeep.flush(), timeout)
        count, refused = self._hold.take_refused()
        if count:
            raise refused_error(count, refused)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Settle everything before an offset of partitions this consumer owns."""
        self._thread.run(self._upkeep.membership.commit(offsets))

    # The end.

    def stop(self) -> None:
        """Hand out no more; from any thread. Iterators end, ``run`` returns."""
        # Nothing here waits for a lock: it may be a signal's handler that calls.
        self._is_stopping = True
        self._hold.end_current()
        with contextlib.suppress(RuntimeError):
            self._in_loop(self._stop)
        self._channel.wake()

    def _stop(self) -> None:
        self._stopping.set()
        self._hold.release_all()

    def close(self, timeout: float | None = None) -> None:
        """Stop, wait for handlers, settle, give back the rest, leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        self.stop()
        try:
            if self._workers is not None:
                self._workers.join(self._timeout_s if timeout is None else timeout)
            if self._hold.is_auto_commit:
                self._await_polls()
            self._thread.run(self._upkeep.stop())
        finally:
            with self._io:
                self._channel.end()
            self._on_close(self)

    def _await_polls(self) -> None:
        """Take what polls under way bring: not given back, it would be settled by leaving."""
        deadline_s = time.monotonic() + self._timeout_s
        with self._io, contextlib.suppress(GoQueueError):
            while self._polls and time.monotonic() < deadline_s:
                self._await(deadline_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Polling.

    def _next(self, deadline_s: float | None = None) -> Portion | None:
        """Return messages to hand out; None when the consumer stops or the time is over."""
        if self._upkeep.is_asleep:
            self._in_loop(self._upkeep.wake)
        with self._io:
            while not self._is_stopping:
                self._check()
                portion = self._hold.next_portion(time.monotonic())
                # Said before asking: who settles from now on wakes whoever waits.
                self._is_idle = portion is None
                try:
                    self._ask()
                    if portion is not None:
                        return portion
                    if deadline_s is not None and time.monotonic() >= deadline_s:
                        return None
                    self._await(deadline_s)
                except ConnectionLostError as error:
                    self._pause(error)
                    if portion is not None:
                        return portion
        return None

    def _ask(self) -> None:
        """Keep polls under way as long as there is room for what they bring."""
        requests: list[Request] = []
        batches: list[list[Order] | None] = []
        should_poll = self._hold.has_room(self._options, polls=len(self._polls))
        if should_poll or self._is_worth_settling():
            group, member = self._options.group, self.member_id
            for header, orders in settlements(group, member, self._hold.collect()):
                requests.append((Operation.SETTLE, header))
                batches.append(orders)
        if should_poll:
            requests.append(
                (Operation.POLL, self._poll_request(self._hold.poll_limit(self._options)))
            )
            batches.append(None)
        if not requests:
            return
        correlations: list[int] = []
        try:
            correlations = self._channel.send(requests)
            self._pending.update(zip(correlations, batches, strict=True))
            if should_poll:
                self._polls[correlations[-1]] = time.monotonic()
        except BaseException:
            # Whoever interrupts us may well go on afterwards: nothing comes that nobody expects.
            if not (correlations and correlations[0] in self._pending):
                self._fail([orders for orders in batches if orders])
            self._forget_pending()
            raise

    def _is_worth_settling(self) -> bool:
        """Tell whether to send settlements without a poll."""
        if self._is_idle and self._hold.is_by_key:
            # What comes next may wait for them. One at a time: meanwhile the others gather. Those
            # that were refused for a while go with the next poll.
            return not any(self._pending.values()) and self._hold.has_news
        return self._hold.settled_count >= PORTION_WORTH_SETTLING

    def _hurry(self) -> None:
        """Send settlements soon if messages may be waiting for them; from any thread."""
        if self._is_idle and self._hold.is_by_key:
            self._channel.wake()

    def _poll_request(self, limit: int) -> Poll:
        # A lease begins when the broker finds something: the wait must be a small part of it.
        wait_ms = min(WAIT_MS, max(self._hold.lease_ms // 4, 1))
        return Poll(
            self._options.group,
            self.member_id,
            self._upkeep.membership.generation,
            limit,
            FETCH_BYTES,
            wait_ms,
            self._hold.is_by_key and self._channel.kept is not None,
        )

    def _await(self, deadline_s: float | None) -> None:
        """Wait for a reply and take it."""
        timeout_s = WAIT_MS / SECOND_MS
        if deadline_s is not None:
            timeout_s = min(timeout_s, max(deadline_s - time.monotonic(), 0))
        if not self._receive(timeout_s) and self._polls:
            waited_s = time.monotonic() - min(self._polls.values())
            if waited_s > self._timeout_s + WAIT_MS / SECOND_MS:
                self._forget_pending()
                raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s")

    def _receive(self, timeout_s: float) -> bool:
        """Take a reply, all of it or none: those behind it may speak of what it brought."""
        try:
            reply = self._channel.receive(timeout_s)
            if reply is not None:
                self._take(reply)
        except BaseException as fault:
            # Whoever interrupts us may well go on afterwards.
            self._forget_pending()
            if isinstance(fault, ProtocolError | CorruptFrameError):
                raise ConnectionLostError(f"connection lost: {fault.message}") from fault
            raise
        return reply is not None

    def _take(self, reply: Reply) -> None:
        self._lost_s = None
        self._backoff_s = BACKOFF_SECONDS
        if reply.correlation not in self._pending and self._channel.kept is not None:
            raise ProtocolError("a reply that nobody waits for")
        orders = self._pending.pop(reply.correlation, None)
        if orders is None:
            asked_s = self._polls.pop(reply.correlation, None)
            if reply.answer is None or asked_s is None:
                is_old = asked_s is not None and asked_s < self._rejoined_s
                if not (is_old and isinstance(reply.error, NOT_A_MEMBER)):
                    self._poll_error = reply.error
                return
            limit = self._hold.poll_limit(self._options)
            polled = self._hold.take(
                reply.answer, asked_s=asked_s, limit=limit, kept=self._channel.kept
            )
            if polled.generation != self._upkeep.membership.generation:
                self._in_loop(self._upkeep.nudge)
        elif reply.answer is not None:
            self._hold.answered(orders, reply.answer)
        else:
            error = reply.error
            is_hopeless = error is not None and not (
                error.retryable or isinstance(error, NOT_A_MEMBER)
            )
            self._hold.failed(orders, error if is_hopeless else None)

    def _pump(self) -> None:
        """Take the replies that are there, in the loop, while the consuming thread is busy."""
        if not self._pending or not self._io.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(GoQueueError):
                while self._pending and self._receive(0):
                    pass
        finally:
            self._io.release()

    # When something is wrong.

    def _check(self) -> None:
        """Deal with the error of the last poll, and with replies that made no sense."""
        if self._hold.is_doubtful:
            self._hold.is_doubtful = False
            self._forget_pending()
        if self._upkeep.failure is not None:
            raise self._upkeep.failure
        error, self._poll_error = self._poll_error, None
        if error is None:
            return
        if isinstance(error, NOT_A_MEMBER):
            self._thread.run(self._upkeep.rejoin())
            self._rejoined_s = time.monotonic()
        elif error.retryable:
            self._pause(error)
        else:
            raise error

    def _pause(self, error: GoQueueError) -> None:
        """Wait a little before the next try, or give up when the time for tries is over."""
        now_s = time.monotonic()
        if self._lost_s is None:
            self._lost_s = now_s
        if now_s - self._lost_s > self._timeout_s:
            self._lost_s = None
            raise error
        self._stopping.wait(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _forget_pending(self) -> None:
        """Begin anew: what a poll may have brought comes back by itself, all else is sent again."""
        self._channel.close()
        pending, self._pending = self._pending, {}
        self._polls.clear()
        self._fail([orders for orders in pending.values() if orders])

    def _fail(self, batches: list[list[Order]]) -> None:
        for orders in batches:
            self._hold.failed(orders)

    def _in_loop(self, call: Callable[[], None]) -> None:
        self._thread.loop.call_soon_threadsafe(call)
