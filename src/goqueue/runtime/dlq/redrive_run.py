"""One redrive or purge at work: batch by batch, at its pace, until it has seen everything."""

import asyncio
from collections.abc import Sequence
from typing import Final

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    NotLeaderError,
    ShuttingDownError,
    TopicNotFoundError,
)
from goqueue.base.limits import MOVE_BACKOFF_MS_MAX, MOVE_BACKOFF_MS_MIN, MOVE_MESSAGES_MAX
from goqueue.base.units import SECOND_MS
from goqueue.core.dlq.pace import Pace
from goqueue.core.dlq.redrive import Event, Job, RedriveBook, RedriveState
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.dlq.dead_letters import Sleep
from goqueue.runtime.dlq.shelf_steps import ShelfCount, StepAsk
from goqueue.runtime.dlq.shelving import Shelving
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost

SLEEP_MS_MAX: Final = SECOND_MS
"""Longest sleep in one piece: a job that is cancelled ends no later than that."""

log = get_logger("goqueue.dlq")


class HostedBook:
    """The jobs of one topic of dead letters, and the partitions they work on."""

    def __init__(
        self, topic: Topic, host: MachineHost[Event], book: RedriveBook, shelving: Shelving
    ) -> None:
        self.topic = topic
        self.host = host
        self.book = book
        self.shelving = shelving

    def moved(self, job: Job) -> int:
        """Return how many a job has moved; the partitions know, whatever was cut short."""
        if not job.is_running:
            return job.moved
        known, kind = self.shelving.known(self.topic), job.order.kind
        return sum(
            max(known[number][kind] - before, 0)
            for number, before in enumerate(job.left_before)
            if number in known
        )

    async def count(self, job: Job | None = None) -> Sequence[ShelfCount]:
        """Return how all partitions stand, or those that a job began with."""
        count = len(self.topic.partitions if job is None else job.left_before)
        return await self.shelving.refresh(self.topic, count)


class Run:
    """A job under way."""

    def __init__(self, hosted: HostedBook, job: Job, *, clock: Clock, sleep: Sleep) -> None:
        self._hosted = hosted
        self._id = job.id
        self._order = job.order
        self._clock = clock
        self._sleep = sleep
        self._pace = Pace(job.order.rate, now_ms=clock.monotonic_ms())
        self._is_cancelled = False
        self.error = ""
        """Why it does not get on, if it does not."""

    def cancel(self) -> None:
        """End the job after the batch under way."""
        self._is_cancelled = True

    async def fail(self, error: str) -> None:
        """End the job for a reason that will not go away."""
        await self._end(RedriveState.FAILED, error)

    async def run(self) -> None:
        """Work until everything was seen; what fails is tried again after a pause."""
        pause_ms, number, is_counted = MOVE_BACKOFF_MS_MIN, 0, False
        job = self._hosted.book.get(self._id)
        while number < len(job.ends) and not self._is_cancelled:
            try:
                if not is_counted:
                    await self._hosted.count(job)
                    is_counted = True
                is_over = await self._step(number)
            except ShuttingDownError:
                return
            except TopicNotFoundError as error:
                await self.fail(error.message)
                return
            except GoQueueError as error:
                self._note(error)
                await self._rest(pause_ms)
                pause_ms = min(2 * pause_ms, MOVE_BACKOFF_MS_MAX)
                continue
            pause_ms, self.error = MOVE_BACKOFF_MS_MIN, ""
            number += is_over
        await self._end(RedriveState.CANCELLED if self._is_cancelled else RedriveState.DONE)

    def _note(self, error: GoQueueError) -> None:
        if not self.error:
            log.warning(LogEvent.REDRIVE_STALLED, redrive=self._id, error=error.message)
        self.error = error.message

    async def _rest(self, duration_ms: int) -> None:
        while duration_ms > 0 and not self._is_cancelled:
            await self._sleep(min(duration_ms, SLEEP_MS_MAX))
            duration_ms -= SLEEP_MS_MAX

    async def _step(self, number: int) -> bool:
        """Work on one batch of a partition; return True if the partition is done."""
        hosted = self._hosted
        job = hosted.book.get(self._id)
        allowed = self._pace.allowed(MOVE_MESSAGES_MAX, now_ms=self._clock.monotonic_ms())
        ask = StepAsk(
            (hosted.shelving.epoch(hosted.topic), job.id),
            self._order,
            job.positions[number],
            job.ends[number],
            allowed,
        )
        try:
            done = await hosted.shelving.step(hosted.topic, number, ask)
        except GoQueueError:
            # How many went is not known: the pace is kept all the same.
            self._pace.spend(allowed)
            raise
        self._pace.spend(done.taken)
        self._advance(number, done.next_offset, unmatched=done.unmatched, skipped=done.skipped)
        if done.is_over:
            return True
        if done.is_paced:
            await self._rest(self._pace.wait_ms())
        # Others get their turn, however much of it is in memory.
        await asyncio.sleep(0)
        return False

    def _advance(self, number: int, next_offset: int, *, unmatched: int, skipped: int) -> None:
        """Note how far it is. Should that be lost, the next start looks at the same again."""
        decision = self._hosted.book.advance(
            self._id, number, next_offset, unmatched=unmatched, skipped=skipped
        )
        self._hosted.host.commit(decision.events)

    async def _end(self, state: RedriveState, error: str = "") -> None:
        """Note how it ended; a disk that is full is waited for."""
        hosted = self._hosted
        while True:
            job = hosted.book.get(self._id)
            try:
                await self._recount(job)
                decision = hosted.book.end(
                    self._id,
                    state,
                    moved=hosted.moved(job),
                    now_ms=self._clock.now_ms(),
                    error=error,
                )
                hosted.host.commit(decision.events)
                await hosted.host.durable()
            except (DiskFullError, NotLeaderError) as failure:
                self._note(failure)
                await self._sleep(SLEEP_MS_MAX)
            except GoQueueError as failure:
                # The next start finds it running, with nothing left to do.
                self._note(failure)
                return
            else:
                return

    async def _recount(self, job: Job) -> None:
        """Hear from all partitions once more; one that does not answer is counted as last heard."""
        try:
            await self._hosted.count(job)
        except GoQueueError as failure:
            self._note(failure)
