"""The asynchronous consumer: messages of a group in an event loop."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final

from goqueue.base.errors import ClosedError, GoQueueError, InvalidRequestError
from goqueue.client.aio.link import Link
from goqueue.client.consumer.decode import Portion
from goqueue.client.consumer.delivery import Delivery
from goqueue.client.consumer.hold import Place
from goqueue.client.consumer.membership import NOT_A_MEMBER
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.polling import Polling
from goqueue.client.consumer.run import note_failure
from goqueue.client.consumer.upkeep import Upkeep, check_refused
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.leaving import AsyncCloses
from goqueue.wire.packet import Operation

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
        self._polls: dict[asyncio.Task[Answer], float] = {}
        """Polls under way, and when they were sent."""
        self._idle: asyncio.Future[None] | None = None
        """Waits with whoever has nothing to hand out, for something to be settled."""
        # Held by whoever asks for the next message.
        self._turn = asyncio.Lock()
        self._working: set[asyncio.Task[None]] = set()

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
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

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
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)
        for poll, asked_s in self._polls.items() if self._hold.is_auto_commit else ():
            if not poll.cancelled() and poll.exception() is None:
                self._hold.take(poll.result(), asked_s=asked_s)

    async def _ready(self) -> None:
        await self.start()

    # Polling.

    async def _next(self, deadline_s: float | None = None) -> Portion | None:
        """Return messages to hand out; None when the consumer stops or the time is over."""
        self._upkeep.wake()
        # A loop that never waits for anything must not keep heartbeats from going out.
        await asyncio.sleep(0)
        while not self._stopping.is_set():
            if self._upkeep.failure is not None:
                raise self._upkeep.failure
            for poll in [one for one in self._polls if one.done()]:
                await self._take(poll, self._polls.pop(poll))
            portion = self._hold.next_portion(time.monotonic())
            self._ask(is_idle=portion is None)
            if portion is not None:
                return portion
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return None
            await self._await(deadline_s)
        return None

    def _ask(self, *, is_idle: bool) -> None:
        """Keep polls under way as long as there is room for what they bring."""
        if not self._hold.has_room(self._options, polls=len(self._polls)):
            is_worth = is_idle and self._hold.is_by_key and not self._upkeep.sending
            if is_worth and self._hold.has_news:
                # What comes next may wait for them. One at a time: meanwhile the others gather.
                self._upkeep.send(self._hold.collect())
            return
        self._upkeep.send(self._hold.collect())
        request = self._link.request(Operation.POLL, self._poll_request())
        self._polls[asyncio.get_running_loop().create_task(request)] = time.monotonic()

    async def _await(self, deadline_s: float | None) -> None:
        assert self._polls, "asked"
        stopped = asyncio.ensure_future(self._stopping.wait())
        left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
        awaited: list[asyncio.Future[Any]] = [*self._polls, stopped]
        if self._hold.is_by_key:
            self._idle = asyncio.get_running_loop().create_future()
            awaited += self._upkeep.sending or [self._idle]
        try:
            await asyncio.wait(awaited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._idle = None
            stopped.cancel()

    async def _take(self, poll: asyncio.Task[Answer], asked_s: float) -> None:
        try:
            answer = poll.result()
        except NOT_A_MEMBER:
            if asked_s > self._rejoined_s:
                await self._upkeep.rejoin()
                self._rejoined_s = time.monotonic()
            return
        except GoQueueError as error:
            if not error.retryable:
                raise
            await self._pause(error)
            return
        self._went_well()
        if self._take_polled(answer, asked_s):
            self._upkeep.nudge()

    async def _pause(self, error: GoQueueError) -> None:
        """Wait a little before the next try, or give up when the time for tries is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s(error)):
                await self._stopping.wait()
