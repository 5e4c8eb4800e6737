"""The outbox of a producer in an event loop: performs its steps, reports what came back."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from goqueue.base.errors import DeadlineExceededError, GoQueueError
from goqueue.client.aio.link import Link
from goqueue.client.producer.single import Sent
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.outbox import Batch, Pause
from goqueue.client.protocol.sending import Sending
from goqueue.wire import calls
from goqueue.wire.packet import Operation

INIT_SECONDS_MAX: Final = 5.0


class _Request(NamedTuple):
    """Batches under way by a link, and how long their answer may take."""

    link: Link
    batches: list[Batch[Sent]]
    deadline: float
    seconds: float


class Sender:
    """Sends the batches of one producer. Runs in the event loop."""

    def __init__(self, link: Link, outbox: Sending[Sent]) -> None:
        self._link = link
        self._cluster = link.cluster
        self._outbox = outbox
        outbox.on_change = self._changed
        self._under_way: dict[int, _Request] = {}
        """By their number, in the order they were sent."""
        self._number = 0
        self._tasks: dict[int, asyncio.Task[Answer]] = {}
        """Requests that wait for a connection."""
        self._late: asyncio.TimerHandle | None = None
        """Rings when an answer may be late: not set anew for each request."""
        self._introducing: asyncio.Task[Answer] | None = None
        self._resuming: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._news = asyncio.Event()
        self.on_slot: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Sender of {self._outbox!r}>"

    @property
    def has_slot(self) -> bool:
        """Tell whether a request could go out at once."""
        return self._outbox.has_slot

    def submit(self, batches: list[Batch[Sent]]) -> None:
        """Queue the batches of one pile; they go out in one request."""
        self._outbox.submit(batches)
        self._idle.clear()
        self._pump()

    async def idle(self) -> None:
        """Return when every batch is placed or failed."""
        await self._idle.wait()

    async def progress(self) -> None:
        """Return when some batch was placed or failed, or at once if there is none."""
        if not self._outbox.is_idle:
            self._news.clear()
            await self._news.wait()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Fail everything that is not placed."""
        self._outbox.abort()
        if self._resuming is not None:
            self._resuming.cancel()
        if self._introducing is not None:
            self._introducing.cancel()
        if self._late is not None:
            self._late.cancel()
        self._under_way.clear()
        for task in list(self._tasks.values()):
            task.cancel()

    def _changed(self) -> None:
        self._news.set()
        if self._outbox.is_idle:
            self._idle.set()

    def _pump(self) -> None:
        """Do what is to be done."""
        loop = asyncio.get_running_loop()
        while (step := self._outbox.step(loop.time())) is not None:
            if isinstance(step, Pause):
                if self._resuming is not None:
                    self._resuming.cancel()
                self._resuming = loop.call_at(step.until, self._pump)
                break
            if isinstance(step, list):
                self._send(step)
            else:
                self._introducing = loop.create_task(self._ask_identity(step))
                self._introducing.add_done_callback(self._introduced)
        if self._cluster is not None and self._cluster.is_due(loop.time()):
            self._link.refresh_soon()
        if self._outbox.has_slot:
            self.on_slot()

    def _send(self, batches: list[Batch[Sent]]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        seconds = self._outbox.seconds_left(batches, now)
        self._number = number = self._number + 1
        link = self._link if self._cluster is None else self._link.at(self._outbox.node_of(batches))
        self._under_way[number] = _Request(link, batches, now + seconds, seconds)
        # Without a task, which costs more than the rest; but who waits for a connection came first.
        if seconds > 0 and link.is_ready and not self._tasks:
            try:
                header, payload = self._outbox.content(batches)
                link.begin(Operation.PRODUCE, header, payload, partial(self._answered, number))
            except Exception:  # noqa: BLE001, S110 - it fails again in a task, which tells everybody
                pass
            else:
                if self._late is None or self._late.when() > now + seconds:
                    self._watch(now + seconds)
                return
        task = loop.create_task(self._request(link, batches))
        self._tasks[number] = task
        task.add_done_callback(partial(self._task_over, number))

    def _watch(self, deadline: float) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = asyncio.get_running_loop().call_at(deadline, self._look_for_late)

    def _look_for_late(self) -> None:
        """Give up the connection if an answer is late; look again when the next one would be."""
        self._late = None
        now = asyncio.get_running_loop().time()
        sent = {number: one for number, one in self._under_way.items() if number not in self._tasks}
        late = {number: one for number, one in sent.items() if one.deadline <= now}
        for link in {one.link: None for one in late.values()}:
            link.drop()
        for number, one in late.items():
            self._answered(number, _no_answer(one.seconds))
        waiting = [one.deadline for number, one in sent.items() if number not in late]
        if waiting and self._late is None:
            self._watch(min(waiting))

    async def _request(self, link: Link, batches: list[Batch[Sent]]) -> Answer:
        """Send in a task: a connection has to be made first, or the time is over already."""
        if self._outbox.fatal is not None:
            raise self._outbox.fatal
        seconds = self._outbox.seconds_left(batches, asyncio.get_running_loop().time())
        if seconds <= 0:
            raise DeadlineExceededError("it was not sent")
        try:
            async with asyncio.timeout(seconds):
                return await link.request(Operation.PRODUCE, *self._outbox.content(batches))
        except TimeoutError as error:
            link.drop()
            raise _no_answer(seconds) from error

    def _task_over(self, number: int, task: asyncio.Task[Answer]) -> None:
        self._tasks.pop(number, None)
        if task.cancelled():
            self._under_way.pop(number, None)
            self._pump()
            return
        error = task.exception()
        self._answered(number, task.result() if error is None else _as_ours(error))

    def _answered(self, number: int, answer: Answer | GoQueueError) -> None:
        request = self._under_way.pop(number, None)
        if request is None:
            # It was late, or everything was given up.
            return
        now = asyncio.get_running_loop().time()
        if isinstance(answer, GoQueueError):
            self._outbox.failed(request.batches, answer, now)
        else:
            self._outbox.answered(request.batches, answer, now)
        self._pump()

    async def _ask_identity(self, header: calls.InitProducer) -> Answer:
        try:
            async with asyncio.timeout(INIT_SECONDS_MAX):
                return await self._link.request(Operation.INIT_PRODUCER, header)
        except TimeoutError as error:
            self._link.drop()
            raise _no_answer(INIT_SECONDS_MAX) from error

    def _introduced(self, asked: asyncio.Task[Answer]) -> None:
        self._introducing = None
        if not asked.cancelled():
            now, error = asyncio.get_running_loop().time(), asked.exception()
            if error is None:
                self._outbox.introduced(asked.result(), now)
            else:
                self._outbox.not_introduced(_as_ours(error), now)
        self._pump()


def _no_answer(seconds: float) -> DeadlineExceededError:
    return DeadlineExceededError(f"no answer in {seconds:g} s")


def _as_ours(error: BaseException) -> GoQueueError:
    """Return what messages fail with; nobody may wait for ever because of a bug."""
    return error if isinstance(error, GoQueueError) else GoQueueError(f"producer: {error!r}")
