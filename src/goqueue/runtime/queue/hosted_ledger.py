"""One ledger at work: a group's progress in one partition, kept in the state log.

Shape: host of a decider (``runtime/machine.py``). What follows from a change, news for those who
wait and for the rest of the broker, happens in the same step.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError, GroupNotFoundError
from goqueue.base.ids import GroupId, Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import FAILING_MESSAGES_MAX
from goqueue.core.delivery import events
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.notices import Due
from goqueue.core.delivery.picker import Picker
from goqueue.core.delivery.picking import Pick
from goqueue.core.delivery.settle import Moment, brief
from goqueue.core.delivery.view import View
from goqueue.core.record.frame import PRIORITY_NORMAL
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.machine import UNLOADED, MachineHost, StateJournal, Waiters, commit_all
from goqueue.runtime.message_counts import count_between

KEY_PREFIX = "delivery/"
log = get_logger("goqueue.delivery")


class LedgerKey(NamedTuple):
    """What a ledger's state is kept under; a topic made anew has other ledgers.

    So has a group made anew, where ledgers are not kept with their group.
    """

    group: GroupId
    place: TopicPartition
    created_ms: int
    identity: str = ""
    """Which group of this name it is, where that must be told."""

    @classmethod
    def of(cls, text: str) -> "LedgerKey":
        """Read a key."""
        group, topic, number, created, *identity = text.removeprefix(KEY_PREFIX).split("/")
        place = TopicPartition(TopicName(topic), PartitionId(int(number)))
        return cls(GroupId(group), place, int(created), *identity)

    def __str__(self) -> str:
        topic, number = self.place
        tail = f"/{self.identity}" if self.identity else ""
        return f"{KEY_PREFIX}{self.group}/{topic}/{number}/{self.created_ms}{tail}"


_ENDINGS: Final = (events.Acked, events.Returned, events.Doomed, events.Held)
"""Events that end the lease of some messages."""


class HostedLedger:
    """A ledger, its partition, and those who wait for news of them."""

    def __init__(
        self,
        key: LedgerKey,
        partition: Partition,
        ledger: Ledger,
        *,
        state: StateJournal,
        clock: Clock,
        tell: Callable[["HostedLedger", Sequence[Event], set[str]], None],
    ) -> None:
        self.group = group = key.group
        self.identity = key.identity
        """Which group of the name it belongs to."""
        self.is_known = True
        """Whether its group was found since it was loaded; nobody has any of it before."""
        self.partition = partition
        self.ledger = ledger
        home = state.home_of(group, partition.name)
        self.host = MachineHost[Event](state, str(key), home=home, machine=ledger)
        self.state = state
        self._clock = clock
        self._tell = tell
        self._picker = Picker(now_ms=clock.monotonic_ms())
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

    @property
    def key(self) -> str:
        """What its state is kept under."""
        return self.host.key

    @property
    def is_closed(self) -> bool:
        """Tell whether the ledger is gone, or not hosted here any more."""
        return self.host.closed is not None

    def close(self, error: GoQueueError = UNLOADED) -> None:
        """Hear no more of the partition."""
        if not self.is_closed:
            self.partition.queue.unwatch_due(self._due)
            self.partition.queue.unwatch_cancelled(self._cancelled)
        self.host.close(error)

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

    def pick(self, limit: int) -> Pick:
        """Return the next messages, ``limit`` at most, without taking them yet."""
        now_ms = self._clock.monotonic_ms()
        return self._picker.pick(self.ledger, self.view(), limit, now_ms=now_ms)

    def next_plain(self) -> Offset | bool:
        """Return the next message where nothing but the offset decides.

        That is so where nothing is delayed, cancelled, urgent, in a transaction or given back, and
        nobody is reading. True means that there is no message, False that more decides.
        """
        ledger, partition = self.ledger, self.partition
        is_special = (
            ledger.keys is not None
            or self.turn.locked()
            or self.host.closed is not None
            or partition.settings.message_ttl_ms
            or partition.queue.has_special
            or ledger.again
            or ledger.is_wait_over(self._clock.monotonic_ms())
            or len(ledger.histories.offsets) > FAILING_MESSAGES_MAX
            or partition.log.start_offset > ledger.committed
        )
        if is_special:
            return False
        cursors, end = ledger.cursors, partition.visible_offset
        cursor = max(cursors[PRIORITY_NORMAL], ledger.committed)
        if ledger.done and ledger.done.max() >= cursor:
            return False
        return Offset(cursor) if cursor < end else min(cursors) >= end

    def leased_plain(
        self, nonce: int, member: str, order: list[int], *, lease_ms: int
    ) -> events.Leased:
        """Decide the lease of the message that ``next_plain`` returned, in the same step."""
        now_ms, at_ms = self.moment()
        self._picker.note_alone(now_ms=now_ms)
        end = self.partition.visible_offset
        cursors = [max(cursor, end) for cursor in self.ledger.cursors]
        cursors[PRIORITY_NORMAL] = order[1]
        return events.Leased(
            offsets=order,
            nonce=nonce,
            member=member,
            deadline_ms=now_ms + lease_ms,
            lease_ms=lease_ms,
            at_ms=at_ms,
            cursors=tuple(cursors),
        )

    def moment(self) -> Moment:
        """Return the time on both clocks."""
        return Moment(self._clock.monotonic_ms(), self._clock.now_ms())

    # Changing.

    def commit(self, found: Sequence[Event]) -> None:
        """Write events and make them true; ``durable`` tells when the disk has them."""
        if not found:
            return
        members = self.members_of(found)
        ledger = self.ledger
        self.host.commit(found, stored=[brief(ledger, event) for event in found])
        self.note_committed(found, members)

    def has_room(self) -> bool:
        """Return True if ``commit_together`` may write events of this ledger."""
        return self.state.has_room(self.host.key, home=self.host.home)

    def note_committed(self, found: Sequence[Event], members: set[str]) -> None:
        """Tell of events that have just become true."""
        for event in found:
            if type(event) is events.Acked:
                self.partition.queue.count_consumed(event.offsets)
        self.changed_ms = self._clock.now_ms()
        self._tell(self, found, members)

    def members_of(self, found: Sequence[Event]) -> set[str]:
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

    @property
    def awaits_disk(self) -> bool:
        """Whether leases and settlements are answered when they are durable, as most are."""
        return not self.partition.settings.is_left_to_the_system

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        return self.host.durable()

    def forget(self) -> None:
        """Write that there is no such ledger any more, nor its group or its topic."""
        self.close(GroupNotFoundError("the group or the topic is gone"))
        self.host.forget_soon()

    def keep_up(self) -> None:
        """Settle what retention has deleted."""
        start = self.partition.log.start_offset
        if start > self.ledger.committed:
            gone = [int(self.ledger.committed), int(start)]
            self.commit([events.Dropped(offsets=gone, outcome=events.GONE)])

    def revive(self, *, by_key: bool | None = None) -> None:
        """Work out, after a replay, what is not stored; the order of keys may be wanted by now."""
        now_ms = self._clock.monotonic_ms()
        decision = self.ledger.revive(self.view(), now_ms=now_ms, by_key=by_key)
        self.ledger.apply(decision.reply)
        self.commit(decision.events)

    # News.

    @property
    def waiters(self) -> Waiters:
        """Those who wait until more may be ready."""
        return self.host.waiters

    def wake(self) -> None:
        """Tell those who wait that more may be ready."""
        self.host.waiters.wake()

    def _due(self, offsets: BitMap64) -> None:
        is_news = self.ledger.awaits(offsets)
        self.ledger.apply(Due(offsets))
        if is_news:
            self.wake()

    def _cancelled(self, offsets: BitMap64) -> None:
        try:
            self.commit(self.ledger.cancel(offsets).events)
        except GoQueueError as error:
            # Nothing is lost: they are left out anyway, and settled at the next start.
            log.warning(LogEvent.CANCELLATION_NOT_PERSISTED, ledger=self.key, error=error.message)

    # Looking.

    def lag(self) -> int:
        """Return how many messages are not settled."""
        partition = self.partition
        behind = max(self.ledger.committed, partition.log.start_offset)
        end, done = partition.visible_offset, self.ledger.done
        return count_between(partition.queue, behind, end, without=done)

    def delayed(self) -> int:
        """Return how many of them wait for their time."""
        queue, end = self.partition.queue, self.partition.visible_offset
        behind = max(self.ledger.committed, self.partition.log.start_offset)
        if not queue.hidden or behind >= end:
            return 0
        waiting = queue.hidden - queue.tx.uncommitted if queue.tx.uncommitted else queue.hidden
        return waiting.range_cardinality(behind, end)

    def first_unsettled(self) -> Offset | None:
        """Return the oldest message that is not settled; what waits for its time does not count."""
        view = self.view()
        offset, end = max(self.ledger.committed, view.start_offset), view.end_offset
        if offset >= end:
            return None
        empty = self.partition.queue.empty
        if not any(offset in one for one in (view.hidden, view.cancelled, empty)):
            return Offset(offset)
        window = BitMap64()
        window.add_range(offset, end)
        rest = window - self.ledger.done - view.hidden - view.cancelled - empty
        return Offset(rest.min()) if rest else None

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest unsettled message, as far as somebody looked at it."""
        if self.oldest is None or self.oldest[0] != self.first_unsettled():
            return 0
        return max(now_ms - self.oldest[1], 0)


Change = tuple[HostedLedger, Sequence[Event]]
"""A ledger and what is about to happen to it."""


def commit_together(changes: Sequence[Change]) -> None:
    """Write events of ledgers of one group in one write and make them true, or raise.

    Each ledger has room for them; what is decided of one does not depend on the others.
    """
    state = changes[0][0].state
    members = [hosted.members_of(found) for hosted, found in changes]
    stored = [[brief(hosted.ledger, event) for event in found] for hosted, found in changes]
    commit_all(
        state,
        [(hosted.host, found) for hosted, found in changes],
        stored=stored,
    )
    for (hosted, found), ended in zip(changes, members, strict=True):
        hosted.note_committed(found, ended)
