"""The sending half of a producer: batches out in order, retried safely, placed when acked.

Lives in the event loop. Several requests are under way at once. When one fails in a way that may
pass, sending stops until all are answered; then what is not placed is sent again, in order and with
the same sequence numbers, so the broker recognises what it already has. Batches are numbered anew
only when the broker has said of each that it is not there.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ShuttingDownError,
    UnknownProducerError,
    from_code,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.client.link import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Answer, Link, decode
from goqueue.client.pile import Outcome, Part, Pile
from goqueue.core.record.stamp import ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation

INIT_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS_MAX: Final = 30.0
"""A connection on which a request stays unanswered for longer is given up for another."""

UNACKED: Final = "not acked in time; it may be published"
UNANSWERED: Final = (ConnectionLostError, DeadlineExceededError)
"""After these nobody knows whether the broker has the batch."""

IN_DOUBT: Final = (*UNANSWERED, ShuttingDownError)
"""After these the broker may have the batch; one that stops may have taken it before."""

NOT_THERE: Final = (OutOfOrderSequenceError, UnknownProducerError)
"""With these the broker says that it does not have the batch."""


class Batch:
    """Messages for one partition, from the pile to their place."""

    __slots__ = ("deadline", "is_unsure", "number", "part", "pile", "sequence")

    def __init__(self, pile: Pile, part: Part, *, number: int, deadline: float) -> None:
        self.number = number
        self.pile = pile
        self.part = part
        self.deadline = deadline
        self.sequence: int | None = None
        # Sent, but no answer came: the broker may have it.
        self.is_unsure = False


class Sender:
    """Sends the batches of one producer."""

    def __init__(
        self,
        link: Link,
        topic: str,
        *,
        acks: str,
        in_flight_max: int,
        on_settled: Callable[[Pile], None],
    ) -> None:
        self._link = link
        self._topic = topic
        self._acks = acks
        self._in_flight_max = in_flight_max
        self._on_settled = on_settled
        self._unsettled: set[Batch] = set()
        self._queue: deque[list[Batch]] = deque()
        self._in_flight: dict[asyncio.Future[Any], list[Batch]] = {}
        self._unplaced: list[list[Batch]] = []
        self._sequences: dict[int, int] = {}
        self._identity: calls.ProducerIdentity | None = None
        self._needs_new_life = False
        self._trouble = ""
        self._fatal: GoQueueError | None = None
        self._recovering: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._news = asyncio.Event()
        self.on_slot: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return (
            f"<Sender {self._topic}: {len(self._queue)} queued, {len(self._in_flight)} under way>"
        )

    @property
    def has_slot(self) -> bool:
        """Tell whether a request could go out at once."""
        is_free = len(self._in_flight) < self._in_flight_max and not self._queue
        return is_free and self._recovering is None

    def submit(self, batches: list[Batch]) -> None:
        """Queue the batches of one pile; they go out in one request."""
        self._unsettled.update(batches)
        self._queue.append(batches)
        self._idle.clear()
        self._pump()

    async def idle(self) -> None:
        """Return when every batch is placed or failed."""
        await self._idle.wait()

    async def progress(self) -> None:
        """Return when some batch was placed or failed, or at once if there is none."""
        if self._unsettled:
            self._news.clear()
            await self._news.wait()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Fail everything that is not placed."""
        self._fatal = self._fatal or ClosedError("the producer was closed before this was sent")
        if self._recovering is not None:
            self._recovering.cancel()
        for task in self._in_flight:
            task.cancel()
        self._unplaced, self._queue = [], deque()
        for batch in list(self._unsettled):
            self._fail(batch, self._fatal)

    # Sending.

    @property
    def _must_renew(self) -> bool:
        """Tell whether the next batch needs an identity the broker has still to give."""
        if self._identity is None:
            return True
        return self._needs_new_life and not any(
            batch.is_unsure for group in self._unplaced for batch in group
        )

    def _pump(self) -> None:
        if self._fatal is not None:
            self._fail_waiting(self._fatal)
        elif self._unplaced or (self._queue and self._must_renew):
            self._recover()
        elif self._recovering is None:
            while self._queue and len(self._in_flight) < self._in_flight_max:
                self._send(self._queue.popleft())
        if self.has_slot:
            self.on_slot()

    def _fail_waiting(self, error: GoQueueError) -> None:
        groups = [*self._unplaced, *self._queue]
        self._unplaced, self._queue = [], deque()
        for batch in (batch for group in groups for batch in group):
            self._fail(batch, error)

    def _send(self, batches: list[Batch]) -> None:
        if not self._begin(batches):
            task = asyncio.get_running_loop().create_task(self._publish(batches))
            self._in_flight[task] = batches
            task.add_done_callback(self._published)

    def _begin(self, batches: list[Batch]) -> bool:
        """Send without a task of its own, which costs more than the rest; tell whether it went."""
        seconds = self._seconds_left(batches)
        # Who waits for a connection in a task came first.
        has_task = any(isinstance(one, asyncio.Task) for one in self._in_flight)
        if seconds <= 0 or has_task or not self._link.is_ready:
            return False
        try:
            answer = self._link.begin(Operation.PRODUCE, *self._content(batches))
        except Exception:  # noqa: BLE001 - it fails again in a task, which tells everybody
            return False
        self._in_flight[answer] = batches
        late = asyncio.get_running_loop().call_later(seconds, self._is_late, answer)
        answer.add_done_callback(partial(self._answered, late))
        return True

    def _is_late(self, answer: asyncio.Future[Answer]) -> None:
        if not answer.done():
            answer.set_exception(DeadlineExceededError(UNACKED))
            self._link.drop()

    def _answered(self, late: asyncio.TimerHandle, answer: asyncio.Future[Answer]) -> None:
        late.cancel()
        batches = self._in_flight.pop(answer, [])
        if not answer.cancelled():
            try:
                self._settle_all(batches, decode(answer.result().header, calls.Produced))
            except GoQueueError as error:
                self._sort_out(batches, [error] * len(batches))
            except Exception as bug:  # noqa: BLE001 - nobody may wait for ever
                self._doubt(batches, bug)
        self._pump()

    def _published(self, task: asyncio.Future[bool]) -> None:
        batches = self._in_flight.pop(task, [])
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._doubt(batches, bug)
        self._pump()

    def _doubt(self, batches: Sequence[Batch], bug: BaseException) -> None:
        for batch in batches:
            self._give_up(batch, GoQueueError(f"producer: {bug!r}"))
        self._needs_new_life = True

    async def _publish(self, batches: list[Batch]) -> bool:
        """Send one request, settle each batch or set it aside; return whether it was answered."""
        if self._fatal is not None:
            for batch in batches:
                self._fail(batch, self._fatal)
            return True
        try:
            produced = await self._request(batches)
        except GoQueueError as error:
            self._sort_out(batches, [error] * len(batches))
            return not isinstance(error, UNANSWERED)
        self._settle_all(batches, produced)
        return True

    def _settle_all(self, batches: Sequence[Batch], produced: calls.Produced) -> None:
        errors: list[GoQueueError | None] = []
        for batch, part in zip(batches, produced.parts, strict=True):
            if part.failure is None:
                self._place(batch, part, produced.durability)
                errors.append(None)
            else:
                errors.append(from_code(part.failure.code, part.failure.message))
        self._sort_out(batches, errors)

    async def _request(self, batches: list[Batch]) -> calls.Produced:
        seconds = self._seconds_left(batches)
        if seconds <= 0:
            raise DeadlineExceededError("not acked in time")
        try:
            async with asyncio.timeout(seconds):
                answer = await self._link.request(Operation.PRODUCE, *self._content(batches))
        except TimeoutError as error:
            self._link.drop()
            raise DeadlineExceededError(UNACKED) from error
        return decode(answer.header, calls.Produced)

    @staticmethod
    def _seconds_left(batches: Sequence[Batch]) -> float:
        """Return how long an answer may be waited for."""
        left_s = max(batch.deadline for batch in batches) - asyncio.get_running_loop().time()
        return min(left_s, ANSWER_SECONDS_MAX)

    def _content(self, batches: Sequence[Batch]) -> tuple[calls.Produce, Sequence[Buffer]]:
        """Return the header and the payload of a request."""
        payload = [batch.part.packed.frame(self._stamp(batch)) for batch in batches]
        parts = [
            calls.ProducePart(batch.part.partition, len(frames))
            for batch, frames in zip(batches, payload, strict=True)
        ]
        return self._produce(batches, parts), payload

    def _produce(self, _: Sequence[Batch], parts: list[calls.ProducePart]) -> calls.Produce:
        """Return the header of a request."""
        return calls.Produce(self._topic, self._acks, parts)

    def _stamp(self, batch: Batch) -> ProducerStamp:
        assert self._identity is not None, "identified before sending"
        partition = batch.part.partition
        if batch.sequence is None:
            batch.sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = batch.sequence + batch.part.packed.rows
        return ProducerStamp(
            ProducerId(self._identity.producer_id),
            Epoch(self._identity.epoch),
            SequenceNumber(batch.sequence),
        )

    # Settling.

    def _sort_out(self, batches: Sequence[Batch], errors: Sequence[GoQueueError | None]) -> None:
        again: list[Batch] = []
        for batch, error in zip(batches, errors, strict=True):
            if error is None:
                continue
            if isinstance(error, (*IN_DOUBT, *NOT_THERE)):
                batch.is_unsure = isinstance(error, IN_DOUBT)
            if isinstance(error, ProducerFencedError):
                self._fatal = error
            if self._may_try_again(batch, error):
                self._trouble = f": {error.message}"
                again.append(batch)
            else:
                self._give_up(batch, error)
        if again:
            self._unplaced.append(again)

    def _give_up(self, batch: Batch, error: GoQueueError) -> None:
        # Its sequence numbers were not used, so those behind it must be numbered anew.
        self._needs_new_life = self._needs_new_life or batch.sequence is not None
        self._fail(batch, error)

    def _may_try_again(self, batch: Batch, error: GoQueueError) -> bool:
        if self._fatal is not None:
            return False
        if asyncio.get_running_loop().time() >= batch.deadline:
            return False
        if isinstance(error, UnknownProducerError):
            self._needs_new_life = True
            return True
        if isinstance(error, OutOfOrderSequenceError):
            # An earlier batch of this partition did not get through; this one waits its turn.
            return self._has_gap_before(batch)
        return error.retryable

    def _has_gap_before(self, batch: Batch) -> bool:
        groups = [*self._unplaced, *self._in_flight.values()]
        return self._needs_new_life or any(
            other.part.partition == batch.part.partition and other.number < batch.number
            for group in groups
            for other in group
        )

    def _place(self, batch: Batch, part: calls.ProducedPart, durability: str) -> None:
        self._settle(
            batch,
            Outcome(
                rows=batch.part.rows,
                partition=part.partition,
                base_offset=part.base_offset,
                durability=durability,
                is_duplicate=part.is_duplicate,
                repeats=tuple(part.repeats),
                misfits=part.misfits,
                error=None,
            ),
        )

    def _fail(self, batch: Batch, error: GoQueueError) -> None:
        self._settle(
            batch,
            Outcome(
                rows=batch.part.rows,
                partition=batch.part.partition,
                base_offset=-1,
                durability="",
                is_duplicate=False,
                repeats=(),
                error=error,
            ),
        )

    def _settle(self, batch: Batch, outcome: Outcome) -> None:
        if batch not in self._unsettled:
            return
        self._unsettled.remove(batch)
        self._news.set()
        if batch.pile.settle(outcome):
            self._on_settled(batch.pile)
        if not self._unsettled:
            self._idle.set()

    # Recovering.

    def _recover(self) -> None:
        if self._recovering is None:
            self._recovering = asyncio.get_running_loop().create_task(self._try_again())
            self._recovering.add_done_callback(self._recovered)

    def _recovered(self, task: asyncio.Task[None]) -> None:
        self._recovering = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = (
                error if isinstance(error, GoQueueError) else GoQueueError(f"producer: {error!r}")
            )
            self.abort()
        self._pump()

    async def _try_again(self) -> None:
        """With nothing else under way, send what is not placed, in order, until it is."""
        backoff_s = BACKOFF_SECONDS
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))
        while self._unplaced or self._queue:
            is_known = await self._be_known()
            if is_known and not self._unplaced:
                return
            if not is_known or not await self._send_again():
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
                self._expire()

    async def _send_again(self) -> bool:
        """Send what was set aside as it first went out; return whether to go on without a pause."""
        groups = deque(sorted(self._unplaced, key=lambda group: group[0].number))
        self._unplaced = []
        while groups:
            group = groups.popleft()
            if self._needs_new_life:
                # Only those the broker may have are worth their old numbers.
                refused = [batch for batch in group if not batch.is_unsure]
                self._unplaced += [refused] if refused else []
                group = [batch for batch in group if batch.is_unsure]
            is_answered = not group or await self._publish(group)
            if not is_answered or (self._unplaced and not self._needs_new_life):
                self._unplaced += groups
                return False
        return not self._unplaced or self._must_renew

    def _expire(self) -> None:
        """Fail what is past its deadline."""
        now = asyncio.get_running_loop().time()
        for group in [*self._unplaced, *self._queue]:
            for batch in [batch for batch in group if now >= batch.deadline]:
                group.remove(batch)
                doubt = "; it may be published" if batch.is_unsure else ""
                reason = f"not acked in time{doubt}{self._trouble}"
                self._give_up(batch, DeadlineExceededError(reason))
        self._unplaced = [group for group in self._unplaced if group]
        self._queue = deque(group for group in self._queue if group)

    async def _be_known(self) -> bool:
        """Get an identity or begin a new life where one is needed; return whether there is one."""
        if not self._must_renew:
            return True
        old = self._identity or calls.ProducerIdentity(0, 0)
        try:
            async with asyncio.timeout(INIT_SECONDS_MAX):
                answer = await self._link.request(
                    Operation.INIT_PRODUCER, calls.InitProducer(old.producer_id, old.epoch)
                )
        except TimeoutError:
            self._link.drop()
            return False
        except GoQueueError as error:
            if not error.retryable:
                if self._identity is None:
                    raise
                # Another data directory, the last epoch, or an answer that was lost: begin anew.
                self._identity = None
            return False
        self._identity = decode(answer.header, calls.ProducerIdentity)
        self._needs_new_life = False
        self._sequences.clear()
        for group in self._unplaced:
            for batch in group:
                batch.sequence = None
        return True
