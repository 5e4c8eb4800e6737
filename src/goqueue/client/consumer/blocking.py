"""The synchronous consumer: messages of a group in an ordinary loop.

The consuming thread polls and settles through a connection of its own; the next poll is under way
while messages are handed out. Everything that must go on meanwhile is in ``consumer_upkeep``.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from itertools import islice
from logging import getLogger
from typing import Final

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    InvalidRequestError,
    ProtocolError,
    UnsupportedError,
)
from goqueue.base.units import SECOND_MS
from goqueue.client.blocking.channel import Channel
from goqueue.client.blocking.link import ChannelRequest
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.consumer.decode import Portion
from goqueue.client.consumer.delivery import Delivery, Order
from goqueue.client.consumer.hold import Place
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.polling import WAIT_MS, Asked, Polling
from goqueue.client.consumer.run import Handle, Workers
from goqueue.client.consumer.targets import LOOK_SECONDS, NOT_A_MEMBER, ONE_BROKER
from goqueue.client.consumer.upkeep import Upkeep, check_refused
from goqueue.client.protocol.exchange import Answer, Reply, decode
from goqueue.client.protocol.leaving import Closes
from goqueue.wire.queue_calls import Settled

CONCURRENCY_MAX: Final = 1_000
PORTION_WORTH_SETTLING: Final = 64
"""Messages of one lease that are worth a request of their own while a poll is under way."""

log = getLogger("goqueue.consumer")


class Consumer(Polling, Closes):
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
        super().__init__(upkeep, options, timeout_s=timeout_s)
        self._channel = channel
        self._thread = thread
        self._on_close = on_close
        # Held by whoever uses the channel: the consuming thread, or the loop while that is busy.
        self._io = threading.Lock()
        self._is_stopping = False
        self._stopping = threading.Event()
        self._pending: dict[int, list[Order]] = {}
        self._polls: dict[int, float] = {}
        """When the polls under way were sent, by their correlations."""
        self._asked: dict[int, str] = {}
        """Which nodes they were sent to."""
        self._is_idle = False
        """Whether the consuming thread has nothing to hand out and waits for more."""
        self._poll_error: GoQueueError | None = None
        self._workers: Workers | None = None
        self._is_left = False
        """Whether who closed could not wait for the channel: who has it ends it."""
        upkeep.pump = self._pump
        try:
            thread.run(upkeep.start())
        except BaseException:
            channel.end()
            raise

    @property
    def is_running(self) -> bool:
        """Tell whether nobody has stopped or closed it."""
        return not self._is_stopping

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
        self._thread.run(self._upkeep.flush(), timeout, what="the answers to settlements")
        check_refused(self._hold)

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
        """Stop, wait for handlers, settle, give back the rest, leave the group.

        Raises if something was settled and the broker could not store it.
        """
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
            with self._turn_within(self._timeout_s) as is_ours:
                if is_ours:
                    self._channel.end()
                else:
                    self._is_left = True
            self._on_close(self)
        check_refused(self._hold, is_closing=True)

    def _await_polls(self) -> None:
        """Take what polls under way bring: not given back, it would be settled by leaving."""
        deadline_s = time.monotonic() + self._timeout_s
        with self._turn_within(self._timeout_s) as is_ours, contextlib.suppress(GoQueueError):
            while is_ours and self._polls and time.monotonic() < deadline_s:
                self._await(deadline_s)

    @contextlib.contextmanager
    def _turn_within(self, seconds: float) -> Generator[bool, None, None]:
        """Have the channel to oneself; without it, and with False, when that takes too long.

        It may never come: a signal's handler that closes is in the way of what it waits for.
        """
        is_ours = self._io.acquire(timeout=max(seconds, 0))
        if not is_ours and seconds > 0:
            log.warning("waited %g s for the thread that consumes; closing without it", seconds)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._io.release()

    # Polling.

    def _next(self, deadline_s: float | None = None) -> Portion | None:
        """Return messages to hand out; None when the consumer stops or the time is over."""
        if self._upkeep.is_asleep:
            self._in_loop(self._upkeep.wake)
        if deadline_s is None:
            with self._io:
                return self._in_turn(None)
        # Another thread may be at it, and wait for as long as there are no messages.
        if not self._io.acquire(timeout=max(deadline_s - time.monotonic(), 0)):
            return None
        try:
            return self._in_turn(deadline_s)
        finally:
            self._io.release()

    def _in_turn(self, deadline_s: float | None) -> Portion | None:
        """Return messages to hand out. Call with the channel to oneself."""
        try:
            return self._next_of_ours(deadline_s)
        finally:
            if self._is_left:
                self._channel.end()

    def _next_of_ours(self, deadline_s: float | None) -> Portion | None:
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
        # One broker gets one poll at a time; of several, each that has none.
        for _ in range(self._hold.nodes):
            should_poll = self._has_room(len(self._polls))
            if not (should_poll or self._is_worth_settling()):
                break
            requests = self._requests(polls=should_poll)
            if not requests:
                break
            self._send(requests)
            if not requests[-1].is_poll:
                break
        cluster = self._targets.cluster
        if cluster is not None and cluster.is_due(time.monotonic()):
            self._in_loop(self._upkeep.refresh)

    def _send(self, requests: list[Asked]) -> None:
        correlations: list[int] = []
        try:
            correlations = self._channel.send(
                [ChannelRequest(one.operation, one.header, one.node) for one in requests]
            )
            for correlation, asked in zip(correlations, requests, strict=True):
                self._pending[correlation] = asked.orders
            if requests[-1].is_poll:
                self._polls[correlations[-1]] = time.monotonic()
                self._asked[correlations[-1]] = requests[-1].node
                self._targets.begun(requests[-1].node)
        except BaseException:
            # Whoever interrupts us may well go on afterwards: nothing comes that nobody expects.
            if not (correlations and correlations[0] in self._pending):
                self._fail([asked.orders for asked in requests])
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

    def _await(self, deadline_s: float | None) -> None:
        """Wait for a reply and take it."""
        timeout_s = WAIT_MS / SECOND_MS
        if deadline_s is not None:
            timeout_s = min(timeout_s, max(deadline_s - time.monotonic(), 0))
        is_routed = self._targets.is_routed
        if is_routed and len(self._polls) < self._hold.nodes:
            # Some leaders rest, and are polled again soon.
            timeout_s = min(timeout_s, LOOK_SECONDS)
        if not self._receive(timeout_s) and self._polls and not is_routed:
            waited_s = time.monotonic() - min(self._polls.values())
            if waited_s > self._timeout_s + WAIT_MS / SECOND_MS:
                self._forget_pending()
                raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s")

    def _receive(self, timeout_s: float) -> bool:
        """Take a reply, all of it or none; return False if there is none."""
        try:
            reply = self._channel.receive(timeout_s)
            if reply is not None:
                self._take(reply)
        except BaseException as fault:
            # Whoever interrupts us may well go on afterwards.
            self._forget_pending()
            if isinstance(fault, ProtocolError):
                raise ConnectionLostError(f"connection lost: {fault.message}") from fault
            raise
        return reply is not None

    def _take(self, reply: Reply) -> None:
        self._went_well()
        correlation, outcome = reply
        # Kept until it is taken: should that fail, it is sent again with all that is pending.
        orders = self._pending.get(correlation, [])
        asked_s = self._polls.get(correlation)
        node = self._asked.get(correlation, ONE_BROKER)
        if isinstance(outcome, Answer):
            if asked_s is not None:
                self._targets.went_well(node)
                if self._take_polled(outcome, asked_s, orders):
                    self._in_loop(self._upkeep.nudge)
            elif orders:
                self._hold.answered(orders, decode(outcome.header, Settled).parts)
        else:
            self._take_error(orders, asked_s, outcome, node)
        self._pending.pop(correlation, None)
        if self._polls.pop(correlation, None) is not None:
            self._asked.pop(correlation, None)
            self._targets.ended(node)

    def _take_error(
        self, orders: list[Order], asked_s: float | None, error: GoQueueError, node: str
    ) -> None:
        if orders:
            self._not_settled(orders, error)
        if asked_s is not None and self._targets.takes(node, error, time.monotonic()):
            if isinstance(error, NOT_A_MEMBER):
                self._in_loop(self._upkeep.nudge)
            return
        if asked_s is None or (orders and isinstance(error, UnsupportedError)):
            return
        if asked_s >= self._rejoined_s or not isinstance(error, NOT_A_MEMBER):
            self._poll_error = error

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
        self._stopping.wait(self._pause_s(error))

    def _forget_pending(self) -> None:
        """Begin anew: what a poll may have brought comes back by itself, all else is sent again."""
        self._channel.close()
        pending, self._pending = self._pending, {}
        self._polls.clear()
        self._asked.clear()
        self._targets.forget()
        self._fail(list(pending.values()))

    def _fail(self, batches: list[list[Order]]) -> None:
        for orders in batches:
            if orders:
                self._hold.failed(orders)

    def _in_loop(self, call: Callable[[], None]) -> None:
        self._thread.loop.call_soon_threadsafe(call)
