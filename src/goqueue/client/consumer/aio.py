"""The asynchronous consumer: messages of a group in an event loop."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from goqueue.base.errors import ClosedError, GoQueueError, InvalidRequestError, UnsupportedError
from goqueue.client.aio.link import Link, resolve
from goqueue.client.consumer.decode import Portion
from goqueue.client.consumer.delivery import Delivery, Order
from goqueue.client.consumer.hold import Place
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.polling import Asked, Polling
from goqueue.client.consumer.run import note_failure
from goqueue.client.consumer.targets import LOOK_SECONDS, NOT_A_MEMBER
from goqueue.client.consumer.upkeep import Upkeep, check_refused
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.leaving import AsyncCloses

CONCURRENCY_MAX: Final = 10_000

AsyncHandle = Callable[[Delivery], Awaitable[object]]


class AsyncConsumer(Polling, AsyncCloses):
    """A member of a group. Iterate over it, or ``run`` a handler; close it afterwards.

    It joins when it is first used, or when it is entered as a context manager.
    """

    def __init__(
        self,
        link: Link,
        options: ConsumerOptions,
        *,
        timeout_s: float,
        on_close: Callable[["AsyncConsumer"], None] = lambda _: None,
    ) -> None:
        super().__init__(Upkeep(link, options, timeout_s=timeout_s), options, timeout_s=timeout_s)
        self._link = link
        self._on_close = on_close
        self._starting: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._polls: dict[asyncio.Future[Answer], tuple[float, list[Order], str]] = {}
        """Polls under way, when they were sent, what they settle, and where."""
        self._waiting: set[asyncio.Future[None]] = set()
        """Those who have nothing to hand out, and wait for a reply."""
        self._poll_error: GoQueueError | None = None
        # Held by whoever asks for the next message.
        self._turn = asyncio.Lock()
        self._working: set[asyncio.Task[None]] = set()
        self._upkeep.pump = self._take_replies

    async def start(self) -> None:
        """Join the group, if that has not been done."""
        if self._is_closed:
            raise ClosedError("the consumer was closed")
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._upkeep.start())
        try:
            await asyncio.shield(self._starting)
        except GoQueueError:
            self._starting = None
            raise

    # Messages.

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Yield messages as they come; ends after ``stop`` or ``close``."""
        return self._auto_acked() if self._options.auto_ack else self._messages()

    async def poll(self, max_messages: int = 500, wait_s: float = 1.0) -> list[Delivery]:
        """Return some messages, waiting for the first at most so many seconds."""
        await self.start()
        deadline_s = time.monotonic() + wait_s
        while (portion := await self._next(deadline_s)) is not None:
            taken = list(islice(self._hold.open(portion), max_messages))
            if taken:
                return taken
        return []

    async def run(self, handler: AsyncHandle, *, concurrency: int = 1) -> None:
        """Handle so many messages at a time until ``stop``.

        A message is acked when the handler returns and nacked when it raises; leases of handlers
        that take long are extended. When this is cancelled, handlers under way are waited for.
        """
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise InvalidRequestError(f"concurrency: must be 1 to {CONCURRENCY_MAX}")
        await self.start()
        self._hold.extends_handed = True
        messages = self._messages()
        loop = asyncio.get_running_loop()
        workers = [loop.create_task(self._work(messages, handler)) for _ in range(concurrency)]
        self._working.update(workers)
        try:
            await asyncio.shield(asyncio.gather(*workers))
        except BaseException:
            self.stop()
            await asyncio.wait(workers, timeout=self._timeout_s)
            raise
        finally:
            self._working.difference_update(workers)
            self._hold.extends_handed = False
            await messages.aclose()
        await self.flush()

    async def _work(self, messages: AsyncGenerator[Delivery, None], handler: AsyncHandle) -> None:
        while True:
            async with self._turn:
                message = await anext(messages, None)
            if message is None:
                return
            try:
                await handler(message)
            except BaseException as error:
                note_failure(message, error)
                if not isinstance(error, Exception):
                    raise
            else:
                if not message.is_settled:
                    message.ack()
            if self._hold.is_by_key:
                # Messages may wait for what was settled.
                self._wake()

    async def _messages(self) -> AsyncGenerator[Delivery, None]:
        await self.start()
        while (portion := await self._next()) is not None:
            lease = portion.lease
            for message in self._hold.open(portion):
                if lease.is_over:
                    self._hold.give_up(portion, message.offset)
                    break
                yield message

    async def _auto_acked(self) -> AsyncGenerator[Delivery, None]:
        async for message in self._messages():
            yield message
            message.lease.open.discard(message.offset)

    # Settlements.

    async def flush(self) -> None:
        """Send every settlement, wait for the answers, raise if any was refused.

        With ``on_refused`` refusals go there and nothing is raised.
        """
        await self._upkeep.flush()
        check_refused(self._hold)

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """Settle everything before an offset of partitions this consumer owns."""
        await self._upkeep.membership.commit(offsets)

    # The end.

    def stop(self) -> None:
        """Hand out no more. Iterators end, ``run`` returns."""
        self._stopping.set()
        self._hold.release_all()
        self._wake()

    async def close(self) -> None:
        """Stop, wait for handlers, settle, give back the rest, leave the group.

        Raises if something was settled and the broker could not store it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.stop()
        try:
            others = self._working - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=self._timeout_s)
            await self._end_polls()
            if self._starting is not None:
                await asyncio.gather(self._starting, return_exceptions=True)
                await self._upkeep.stop()
        finally:
            self._on_close(self)
        check_refused(self._hold, is_closing=True)

    async def _end_polls(self) -> None:
        if self._polls and self._hold.is_auto_commit:
            # What they bring is taken and given back: leaving would settle it.
            await asyncio.wait(self._polls, timeout=self._timeout_s)
            self._take_replies()
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)
        self._take_replies()

    async def _ready(self) -> None:
        await self.start()

    # Polling.

    async def _next(self, deadline_s: float | None = None) -> Portion | None:
        """Return messages to hand out; None when the consumer stops or the time is over."""
        self._upkeep.wake()
        has_waited = False
        while not self._stopping.is_set():
            if self._upkeep.failure is not None:
                raise self._upkeep.failure
            self._take_replies()
            if self._poll_error is not None:
                await self._deal_with_error()
            portion = self._hold.next_portion(time.monotonic())
            self._ask(is_idle=portion is None)
            if portion is not None:
                if not has_waited:
                    # A loop that never waits for anything must not keep heartbeats from going out.
                    await asyncio.sleep(0)
                return portion
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return None
            has_waited = True
            await self._await(deadline_s)
        return None

    def _ask(self, *, is_idle: bool) -> None:
        """Keep polls under way as long as there is room for what they bring."""
        if not self._has_room(len(self._polls)):
            is_worth = is_idle and self._hold.is_by_key and not self._upkeep.sending
            if is_worth and self._hold.has_news:
                # What comes next may wait for them. One at a time: meanwhile the others gather.
                self._upkeep.send(self._hold.collect())
            return
        # One broker gets one poll at a time; of several, each that has none.
        for _ in range(self._hold.nodes):
            requests = self._requests(polls=True)
            for asked in requests:
                if asked.is_poll:
                    self._poll(asked)
                else:
                    self._upkeep.send(asked.orders)
            if not (requests and requests[-1].is_poll) or not self._has_room(len(self._polls)):
                break
        self._upkeep.refresh()

    def _poll(self, asked: Asked) -> None:
        poll: asyncio.Future[Answer]
        link = self._link.at(asked.node)
        if link.is_ready:
            poll = asyncio.get_running_loop().create_future()
            link.begin(asked.operation, asked.header, (), partial(resolve, poll))
        else:
            poll = asyncio.ensure_future(link.request(asked.operation, asked.header))
        self._polls[poll] = time.monotonic(), asked.orders, asked.node
        self._targets.begun(asked.node)
        poll.add_done_callback(self._wake)

    def _wake(self, _: object = None) -> None:
        """Let those go on who wait for a reply, or for the end."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _await(self, deadline_s: float | None) -> None:
        if not self._polls:
            # No leader can be polled at present.
            await asyncio.sleep(self._look_s(deadline_s))
            return
        woken = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            is_alone = not self._targets.is_routed
            if deadline_s is None and not self._hold.is_by_key and is_alone:
                await woken
                return
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
            if not is_alone and len(self._polls) < self._hold.nodes:
                # Some leaders rest, and are polled again soon.
                left_s = self._look_s(deadline_s)
            # In the order of keys, messages may wait for what is being settled.
            sending = self._upkeep.sending if self._hold.is_by_key else ()
            awaited: list[asyncio.Future[Any]] = [woken, *sending]
            await asyncio.wait(awaited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(woken)

    @staticmethod
    def _look_s(deadline_s: float | None) -> float:
        """Return after how many seconds to look for leaders again."""
        if deadline_s is None:
            return LOOK_SECONDS
        return max(min(deadline_s - time.monotonic(), LOOK_SECONDS), 0)

    def _take_replies(self) -> None:
        """Take what polls have brought; what went wrong is dealt with by who consumes."""
        for poll in [one for one in self._polls if one.done()]:
            asked_s, orders, node = self._polls.pop(poll)
            self._targets.ended(node)
            if poll.cancelled():
                self._hold.failed(orders)
                continue
            error = poll.exception()
            if error is not None:
                self._take_error(error, asked_s, orders, node)
                continue
            self._went_well()
            self._targets.went_well(node)
            if self._take_polled(poll.result(), asked_s, orders):
                self._upkeep.nudge()

    def _take_error(
        self, error: BaseException, asked_s: float, orders: list[Order], node: str
    ) -> None:
        """Take what a poll was answered with that brought nothing."""
        if not isinstance(error, GoQueueError):
            self._hold.failed(orders)
            raise error
        if orders:
            self._not_settled(orders, error)
        if self._targets.takes(node, error, time.monotonic()):
            if isinstance(error, NOT_A_MEMBER):
                self._upkeep.nudge()
            return
        is_known = isinstance(error, NOT_A_MEMBER) and asked_s <= self._rejoined_s
        if not is_known and not (orders and isinstance(error, UnsupportedError)):
            self._poll_error = error

    async def _deal_with_error(self) -> None:
        """Deal with the error of the last poll."""
        error, self._poll_error = self._poll_error, None
        if isinstance(error, NOT_A_MEMBER):
            await self._upkeep.rejoin()
            self._rejoined_s = time.monotonic()
        elif error is not None and error.retryable:
            await self._pause(error)
        elif error is not None:
            raise error

    async def _pause(self, error: GoQueueError) -> None:
        """Wait a little before the next try, or give up when the time for tries is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s(error)):
                await self._stopping.wait()
