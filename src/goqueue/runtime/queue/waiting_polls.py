"""Polls that found nothing and wait: each is tried again by the news that may have brought some.

News (an append that is visible, messages given back, a change of the group, room in the hands of
the member) only notes who is to be tried. All of them are tried in one go, in the order they came,
when everything else of this turn of the event loop is done: no task wakes up for it, and a ledger
that one of them found empty is not looked at by the others.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from goqueue.base.errors import GoQueueError
from goqueue.base.started import Started
from goqueue.runtime.groups.at_work import GroupAtWork
from goqueue.runtime.log.fetch import BOUNDLESS, Room
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.ledgers import Ledgers


class PendingPoll:
    """A poll that was begun: what it has leased, and what its answer waits for."""

    __slots__ = (
        "bytes_max", "generation", "group", "has_news", "is_late", "is_tried", "limit", "member",
        "parts", "ready", "room", "started_s", "task", "timer", "wake", "watched",
    )  # fmt: skip

    def __init__(
        self,
        group: GroupAtWork,
        member: str,
        generation: int | None,
        *,
        limit: int,
        bytes_max: int,
        room: Room = BOUNDLESS,
    ) -> None:
        self.group = group
        self.member = member
        self.generation = generation
        self.limit = limit
        self.bytes_max = bytes_max
        self.room = room
        self.started_s = time.perf_counter()
        self.parts: list[Leased] = []
        self.ready: asyncio.Future[None] | None = None
        """Done when the answer may be given; None where that is now."""
        self.timer: asyncio.TimerHandle | None = None
        self.is_tried = False
        """Whether an attempt is under way, which waits for the disk."""
        self.task: asyncio.Task[None] | None = None
        """What waits for it."""
        self.has_news = False
        """Whether there was news during it."""
        self.is_late = False
        """Whether the time to wait was over during it."""
        self.watched: Sequence[HostedLedger] = ()
        self.wake: Callable[[], None] = _nothing
        """Is told of news; the same object from the first to the last."""

    def __repr__(self) -> str:
        return f"<PendingPoll of {self.member} in {self.group.name}: {len(self.parts)} parts>"


Attempt = Callable[[PendingPoll, set[HostedLedger]], Coroutine[Any, Any, None]]


class WaitingPolls:
    """Every poll of a broker that waits for messages. Runs in its event loop."""

    def __init__(
        self,
        ledgers: Ledgers,
        *,
        ledgers_of: Callable[[GroupAtWork, str], list[HostedLedger]],
        attempt: Attempt,
        awaits_disk: Callable[[PendingPoll], bool],
        durable: Callable[[str, Sequence[Leased]], asyncio.Future[None]],
        give_back: Callable[[str, Sequence[Leased]], None],
    ) -> None:
        self._ledgers = ledgers
        self._ledgers_of = ledgers_of
        self._attempt = attempt
        self._awaits_disk = awaits_disk
        self._durable = durable
        self._give_back = give_back
        self._awake: dict[PendingPoll, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<WaitingPolls: {len(self._awake)} to be tried>"

    def add(self, poll: PendingPoll, *, wait_ms: int, is_tried: bool) -> None:
        """Let a poll wait; one that was not tried in this very step is tried again at once."""
        loop = asyncio.get_running_loop()
        poll.ready = loop.create_future()
        poll.ready.add_done_callback(partial(self._end, poll))
        poll.timer = loop.call_later(wait_ms / 1_000, self._end_wait, poll)
        poll.wake = partial(self._wake, poll)
        poll.group.waiters.listen(poll.wake)
        self._ledgers.rooms.listen(poll.group.name, poll.member, poll.wake)
        self._ledgers.places.listen(poll.wake)
        self._watch(poll, self._ledgers_of(poll.group, poll.member))
        if not is_tried:
            poll.wake()

    def _watch(self, poll: PendingPoll, ledgers: Sequence[HostedLedger]) -> None:
        """Hear of other ledgers than before."""
        for hosted in poll.watched:
            hosted.waiters.unlisten(poll.wake)
            hosted.partition.waiters.unlisten(poll.wake)
        for hosted in ledgers:
            hosted.waiters.listen(poll.wake)
            hosted.partition.waiters.listen(poll.wake)
        poll.watched = ledgers

    def _unwatch(self, poll: PendingPoll) -> None:
        self._watch(poll, ())
        poll.group.waiters.unlisten(poll.wake)
        self._ledgers.places.unlisten(poll.wake)
        self._ledgers.rooms.unlisten(poll.group.name, poll.member, poll.wake)
        self._awake.pop(poll, None)
        if poll.timer is not None:
            poll.timer.cancel()

    def _end_wait(self, poll: PendingPoll) -> None:
        """Wait no longer; what is just being tried may still bring something."""
        poll.is_late = True
        if not poll.is_tried:
            self._answer(poll)

    def _answer(self, poll: PendingPoll) -> None:
        """Let a poll be answered with what it has."""
        assert poll.ready is not None, "it waits"
        if not poll.ready.done():
            poll.ready.set_result(None)

    def _fail(self, poll: PendingPoll, error: BaseException) -> None:
        assert poll.ready is not None, "it waits"
        if not poll.ready.done():
            poll.ready.set_exception(error)

    def _end(self, poll: PendingPoll, ready: asyncio.Future[None]) -> None:
        """Tidy up after a poll; what was leased for one that is not answered comes back."""
        self._unwatch(poll)
        if ready.cancelled() or ready.exception() is not None:
            self._take_back(poll)
            if poll.task is not None:
                # It may wait for memory or the disk, and holds the line of its member.
                poll.task.cancel()

    def _take_back(self, poll: PendingPoll) -> None:
        """End the leases of a poll that is not answered."""
        parts, poll.parts = poll.parts, []
        self._give_back(poll.group.name, parts)

    # News.

    def _wake(self, poll: PendingPoll) -> None:
        if not self._awake:
            asyncio.get_running_loop().call_soon(self._try_all)
        self._awake[poll] = None

    def _try_all(self) -> None:
        """Try those who heard of news, in the order in which they began to wait."""
        polls, self._awake = self._awake, {}
        spent: set[HostedLedger] = set()
        for poll in polls:
            if poll.is_tried:
                poll.has_news = True
            elif poll.ready is not None and not (poll.parts or poll.ready.done()):
                try:
                    self._try(poll, spent)
                except Exception as error:  # noqa: BLE001 - who waits is told, the others go on
                    self._fail(poll, error)

    def _try(self, poll: PendingPoll, spent: set[HostedLedger]) -> None:
        poll.group.check_member(poll.member, poll.generation)
        ledgers = self._ledgers_of(poll.group, poll.member)
        if ledgers != poll.watched:
            self._watch(poll, ledgers)
        if spent and spent.issuperset(ledgers) and self._ledgers.is_waited_for:
            return
        attempt = Started(self._attempt(poll, spent))
        if attempt.is_done:
            self._tried(poll)
            return
        poll.is_tried = True
        poll.task = asyncio.get_running_loop().create_task(self._finish(poll, attempt))
        self._tasks.add(poll.task)
        poll.task.add_done_callback(self._tasks.discard)

    async def _finish(self, poll: PendingPoll, attempt: Started[None]) -> None:
        """Wait for an attempt that has to read from the disk."""
        try:
            await attempt
        except asyncio.CancelledError:
            self._take_back(poll)
            raise
        except Exception as error:  # noqa: BLE001 - who waits is told
            self._fail(poll, error)
        finally:
            poll.is_tried, poll.task = False, None
        self._tried(poll)

    def _tried(self, poll: PendingPoll) -> None:
        assert poll.ready is not None, "it waits"
        if poll.ready.done():
            # Given up while it was tried.
            self._take_back(poll)
            poll.room.keep(0)
        elif poll.parts:
            self._leased(poll)
        elif poll.is_late or not self._ledgers.is_waited_for:
            self._answer(poll)
        elif poll.has_news:
            poll.has_news = False
            poll.wake()

    def _leased(self, poll: PendingPoll) -> None:
        """Answer a poll that has leased something, once that is durable."""
        self._unwatch(poll)
        try:
            if self._awaits_disk(poll):
                durable = self._durable(poll.group.name, poll.parts)
                durable.add_done_callback(partial(self._synced, poll))
            else:
                self._answer(poll)
        except GoQueueError as error:
            self._fail(poll, error)

    def _synced(self, poll: PendingPoll, durable: asyncio.Future[None]) -> None:
        """Answer: what was leased is durable, or never will be."""
        assert poll.ready is not None, "it waits"
        error = None if durable.cancelled() else durable.exception()
        if durable.cancelled():
            poll.ready.cancel()
        elif error is not None:
            self._fail(poll, error)
        else:
            self._answer(poll)


def _nothing() -> None:
    """Hear of nothing."""
