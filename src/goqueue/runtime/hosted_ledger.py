"""One ledger at work: a group's progress in one partition, kept in the state log.

Shape: host of a decider. Deciding, writing and applying happen in one step without ``await``; what
was asked for is answered when it is durable.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError, GroupNotFoundError
from goqueue.base.ids import GroupId, Offset
from goqueue.core.delivery import events
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.settle import Moment, brief
from goqueue.core.delivery.view import View
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.partition import Partition
from goqueue.runtime.state_log import StateLog

KEY_PREFIX = "delivery/"
log = get_logger("goqueue.delivery")


def ledger_key(group: str, partition: Partition, *, created_ms: int) -> str:
    """Return what a ledger's state is kept under; a topic made anew has other ledgers."""
    name = partition.name
    return f"{KEY_PREFIX}{group}/{name.topic}/{name.partition}/{created_ms}"


_ENDINGS: Final = (events.Acked, events.Returned, events.Doomed, events.Held)
"""Events that end the lease of some messages."""


class HostedLedger:
    """A ledger, its partition, and those who wait for news of them."""

    def __init__(
        self,
        group: GroupId,
        partition: Partition,
        ledger: Ledger,
        *,
        key: str,
        state: StateLog,
        clock: Clock,
        tell: Callable[["HostedLedger", Sequence[Event], set[str]], None],
    ) -> None:
        self.group = group
        self.partition = partition
        self.ledger = ledger
        self.key = key
        self._state = state
        self._clock = clock
        self._tell = tell
        self._news: set[asyncio.Future[None]] = set()
        self.is_closed = False
        self.changed_ms = 0
        """When the group last changed something here, by the clock on the wall; 0 is not known."""
        self.oldest: tuple[Offset, int] | None = None
        """The oldest message to be delivered that was looked at, and its time in milliseconds."""
        self.alarm_ms: int | None = None
        """When somebody will look at what time has brought."""
        self.quiet_ms = self.quiet_until_ms = 0
        """The pause after a write that failed, and when it is over."""
        # Guards the reading between a pick and its lease: one poll of a ledger at a time.
        self.turn = asyncio.Lock()
        partition.queue.watch_due(self._due)
        partition.queue.watch_cancelled(self._cancelled)

    def __repr__(self) -> str:
        return f"<HostedLedger of {self.group} in {self.partition.name}: {self.ledger!r}>"

    def close(self) -> None:
        """Hear no more of the partition."""
        self.is_closed = True
        self.partition.queue.unwatch_due(self._due)
        self.partition.queue.unwatch_cancelled(self._cancelled)
        self.wake()

    def view(self) -> View:
        """Return what there is of the partition now."""
        queue = self.partition.queue
        return View(
            self.partition.log.start_offset,
            self.partition.visible_offset,
            queue.lanes,
            queue.not_yet(),
            queue.never(),
        )

    def moment(self) -> Moment:
        """Return the time on both clocks."""
        return Moment(self._clock.monotonic_ms(), self._clock.now_ms())

    # Changing.

    def commit(self, found: Sequence[Event]) -> None:
        """Write events and make them true; ``durable`` tells when the disk has them."""
        if not found:
            return
        if self.is_closed:
            raise GroupNotFoundError("the group or the topic is gone")
        members = self._members_of(found)
        stored = [brief(self.ledger, event) for event in found]
        self._state.write(self.key, home=self.group, events=stored, snapshot=self.ledger.snapshot)
        for event in found:
            self.ledger.apply(event)
            if isinstance(event, events.Acked):
                self.partition.queue.count_consumed(event.offsets)
        self.changed_ms = self._clock.now_ms()
        self._tell(self, found, members)

    def _members_of(self, found: Sequence[Event]) -> set[str]:
        """Return whose leases are about to end, all or in part."""
        members: set[str] = set()
        for event in found:
            if isinstance(event, _ENDINGS):
                lease = self.ledger.leases.get(event.nonce)
                if lease is not None:
                    members.add(lease.member)
            elif not isinstance(event, events.Leased | events.Extended) and self.ledger.leases:
                members.update(lease.member for _, lease in self.ledger.leases)
        return members

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        return self._state.durable(self.group)

    def forget(self) -> asyncio.Future[None]:
        """Write that there is no such ledger any more."""
        self.close()
        return self._state.forget(self.key, home=self.group)

    def keep_up(self) -> None:
        """Settle what retention has deleted."""
        start = self.partition.log.start_offset
        if start > self.ledger.committed:
            gone = [int(self.ledger.committed), int(start)]
            self.commit([events.Dropped(offsets=gone, outcome=events.GONE)])

    def revive(self) -> None:
        """Work out, after a replay, what is not stored."""
        decision = self.ledger.revive(self.view(), now_ms=self._clock.monotonic_ms())
        self.commit(decision.events)

    # News.

    def watch(self) -> asyncio.Future[None]:
        """Return a future that is done when more may be ready; ``unwatch`` discards it."""
        future = asyncio.get_running_loop().create_future()
        self._news.add(future)
        return future

    def unwatch(self, future: asyncio.Future[None]) -> None:
        """Stop waiting."""
        self._news.discard(future)

    def wake(self) -> None:
        """Tell those who wait that more may be ready."""
        news, self._news = self._news, set()
        for future in news:
            if not future.done():
                future.set_result(None)

    def _due(self, offsets: BitMap64) -> None:
        if self.ledger.due(offsets):
            self.wake()

    def _cancelled(self, offsets: BitMap64) -> None:
        try:
            self.commit(self.ledger.cancel(offsets).events)
        except GoQueueError as error:
            # Nothing is lost: they are left out anyway, and settled at the next start.
            log.warning("a cancellation is not yet settled", ledger=self.key, error=error.message)

    # Looking.

    def lag(self) -> int:
        """Return how many messages are not settled."""
        behind = max(self.ledger.committed, self.partition.log.start_offset)
        done = self.ledger.done
        settled = done.range_cardinality(behind, self.partition.visible_offset) if done else 0
        return max(self.partition.visible_offset - behind, 0) - settled

    def first_unsettled(self) -> Offset | None:
        """Return the oldest message that is not settled; what waits for its time does not count."""
        view = self.view()
        offset, end = max(self.ledger.committed, view.start_offset), view.end_offset
        if offset >= end:
            return None
        if offset not in view.hidden and offset not in view.cancelled:
            return Offset(offset)
        window = BitMap64()
        window.add_range(offset, end)
        rest = window - self.ledger.done - view.hidden - view.cancelled
        return Offset(rest.min()) if rest else None

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest unsettled message, as far as somebody looked at it."""
        if self.oldest is None or self.oldest[0] != self.first_unsettled():
            return 0
        return max(now_ms - self.oldest[1], 0)
