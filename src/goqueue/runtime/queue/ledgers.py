"""Every ledger of a broker: opened when a group first reads a partition, gone with either."""

import asyncio
import heapq
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final

from goqueue.base.errors import GoQueueError, NotCoordinatorError, TopicNotFoundError
from goqueue.base.ids import GroupId, Offset, TopicName, TopicPartition
from goqueue.base.names import is_internal
from goqueue.base.units import MINUTE_MS, SECOND_MS
from goqueue.core.delivery import events, settle
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.runs import count_of
from goqueue.core.delivery.settle import Policy
from goqueue.core.groups.group import DISCONNECTED, LEFT
from goqueue.core.groups.options import EARLIEST, GroupOptions
from goqueue.observability.consumer_metrics import ConsumerMetrics
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.groups import Groups
from goqueue.runtime.groups.hosted_group import GroupNews
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import StateJournal, Waiters, forget, homes_in
from goqueue.runtime.queue.hosted_ledger import KEY_PREFIX, HostedLedger, ledger_key
from goqueue.runtime.tracing.ledger_notes import trace_events

LEASES_KNOWN_MAX: Final = 100_000
"""Leases remembered by nonce, live and ended, so that a late receipt is told from a false one."""

ALARMS_MIN: Final = 64
RETRY_MS: Final = SECOND_MS
RETRY_MS_MAX: Final = MINUTE_MS
"""Pauses between attempts to write what time has brought, on a disk that takes nothing."""

log = get_logger("goqueue.delivery")


class Ledgers:
    """Hosts ledgers and watches the time for them. Runs in the broker's event loop."""

    def __init__(
        self,
        state: StateJournal,
        topics: Mapping[TopicName, Topic],
        groups: Groups,
        *,
        clock: Clock,
        metrics: ConsumerMetrics,
    ) -> None:
        self._state = state
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._metrics = metrics
        self._ledgers: dict[GroupId, dict[TopicPartition, HostedLedger]] = {}
        # Weak: a ledger that is gone with its group or topic is not kept by what it once leased.
        # The older half goes as a whole: a dictionary that loses its first keys one by one takes
        # three times the room of those that are left.
        self._homes: dict[int, weakref.ref[HostedLedger]] = {}
        self._older_homes: dict[int, weakref.ref[HostedLedger]] = {}
        self._homes_alive = 0
        self._alarms: list[tuple[int, int, HostedLedger]] = []
        self._alarms_max = ALARMS_MIN
        self._rooms: dict[tuple[str, str], Waiters] = {}
        self._ordinals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._on_doomed: Callable[[HostedLedger], None] = lambda _: None
        self.is_stopped = False
        self.is_waited_for = True
        """Whether members may wait for messages; not when the broker is about to stop."""
        groups.watch(self._hear)

    def __repr__(self) -> str:
        return f"<Ledgers: {sum(map(len, self._ledgers.values()))}>"

    def __iter__(self) -> Iterator[HostedLedger]:
        return iter([one for ledgers in self._ledgers.values() for one in ledgers.values()])

    def of(self, group: str) -> Mapping[TopicPartition, HostedLedger]:
        """Return the open ledgers of a group."""
        known = self._ledgers.get(GroupId(group))
        if known is None:
            self._state.check(group)
            return {}
        return known

    def home_of(self, nonce: int) -> HostedLedger | None:
        """Return the ledger that gave out a lease, if it is still there."""
        known = self._homes.get(nonce) or self._older_homes.get(nonce)
        hosted = None if known is None else known()
        if hosted is not None and not hosted.is_closed:
            return hosted
        if not self._state.is_whole:
            raise NotCoordinatorError("the lease may be one that is not loaded here; ask again")
        return None

    def on_doomed(self, callback: Callable[[HostedLedger], None]) -> None:
        """Call back with every ledger that has messages to be moved, now and later."""
        self._on_doomed = callback
        for hosted in self:
            if hosted.ledger.dooms:
                callback(hosted)

    # Life.

    def load(self, partition: int) -> None:
        """Bring back the ledgers of a state partition, whose groups are there by now."""
        for key in self._state.keys(KEY_PREFIX, partition):
            group, topic, number, created = key.removeprefix(KEY_PREFIX).split("/")
            known = self._topics.get(TopicName(topic))
            is_gone = known is None or str(known.record.created_ms) != created
            if known is None or is_gone or not self._has_group(group):
                forget(self._state, key, home=group)
                continue
            hosted = self._host(GroupId(group), known, int(number), by_key=self._is_by_key(group))
            self._replay(hosted)
            for nonce, _ in hosted.ledger.leases:
                self._homes[nonce] = weakref.ref(hosted)
            self._watch_time(hosted)
            if hosted.ledger.dooms:
                self._on_doomed(hosted)

    def unload(self, partition: int) -> set[GroupId]:
        """Let go of the ledgers of a state partition; return the groups whose they were."""
        gone = set(homes_in(self._state, partition, self._ledgers))
        for group in sorted(gone):
            for hosted in self._ledgers.pop(group).values():
                hosted.close()
        return gone

    def _has_group(self, group: str) -> bool:
        """Tell whether somebody owns a ledger: a group, or the broker itself."""
        return is_internal(group) or group in self._groups

    def _replay(self, hosted: HostedLedger) -> None:
        """Rebuild a ledger; one whose history makes no sense does not stop the others."""
        found = hosted.host.replay(Event)
        good = 0
        try:
            for event in found:
                hosted.ledger.apply(event)
                good += 1
        except Exception:
            log.exception(LogEvent.STATE_REPLAY_FAILED, ledger=hosted.key)
            hosted.ledger.apply(events.Reset(offset=0))
            for event in found[:good]:
                hosted.ledger.apply(event)
            hosted.host.note_damage()
        try:
            hosted.revive()
        except GoQueueError as error:
            log.warning(LogEvent.CANCELLATION_NOT_PERSISTED, error=error.message)

    def _is_by_key(self, group: str) -> bool:
        return self._options(group).is_by_key

    def _is_auto_commit(self, group: str) -> bool:
        return self._options(group).auto_commit

    def _options(self, group: str) -> GroupOptions:
        """Return how a group consumes; a ledger whose group is gone has the defaults."""
        try:
            return self._groups.get(group).options
        except GoQueueError:
            return GroupOptions()

    def stop(self) -> None:
        """Let nobody wait any longer."""
        self.is_stopped = True
        self.is_waited_for = False
        if self._timer is not None:
            self._timer.cancel()
        for hosted in self:
            hosted.wake()

    def _host(self, group: GroupId, topic: Topic, number: int, *, by_key: bool) -> HostedLedger:
        partition = topic.partition(number)
        ledger = Ledger(origin=Offset(0), by_key=by_key)
        hosted = HostedLedger(
            group,
            partition,
            ledger,
            key=ledger_key(group, partition, created_ms=topic.record.created_ms),
            state=self._state,
            clock=self._clock,
            tell=self._note,
        )
        self._ledgers.setdefault(group, {})[partition.name] = hosted
        return hosted

    def open(self, group: str, options: GroupOptions, name: TopicPartition) -> HostedLedger:
        """Return a group's ledger of a partition; a new one begins where the options say."""
        known = self._ledgers.get(GroupId(group), {}).get(name)
        if known is not None:
            return known
        topic = self._topics.get(name.topic)
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {name.topic}")
        hosted = self._host(GroupId(group), topic, name.partition, by_key=options.is_by_key)
        log_range = hosted.view()
        is_early = options.auto_offset_reset == EARLIEST
        origin = log_range.start_offset if is_early else log_range.end_offset
        try:
            hosted.commit([events.Reset(offset=origin)])
        except GoQueueError:
            del self._ledgers[GroupId(group)][name]
            hosted.close()
            raise
        return hosted

    def forget_topic(self, name: str) -> None:
        """Drop the ledgers of a topic that is gone."""
        for ledgers in self._ledgers.values():
            for partition in [one for one in ledgers if one.topic == name]:
                ledgers.pop(partition).forget()
        self._metrics.forget_topic(name)

    def _hear(self, news: GroupNews) -> None:
        """Take back what members held that are gone."""
        ledgers = self._ledgers.get(news.group, {})
        if news.is_deleted:
            for hosted in ledgers.values():
                hosted.forget()
            self._ledgers.pop(news.group, None)
            self._metrics.forget(news.group)
            return
        for hosted in ledgers.values():
            for member, why in news.gone.items():
                self._take_back(hosted, member, why)
            hosted.wake()

    def _take_back(self, hosted: HostedLedger, member: str, why: str) -> None:
        if not hosted.ledger.leases.in_flight(member):
            return
        moment = hosted.moment()
        if why == LEFT and self._is_auto_commit(hosted.group):
            found = settle.ack_member(hosted.ledger, member, now_ms=moment.now_ms).events
        elif why == LEFT:
            found = settle.release_member(hosted.ledger, member, moment).events
        else:
            policy = self.policy(hosted.group)
            end = settle.disconnect_member if why == DISCONNECTED else settle.expire_member
            found = end(hosted.ledger, member, policy, moment).events
        try:
            hosted.commit(found)
        except GoQueueError as error:
            log.warning(LogEvent.LEASES_NOT_RELEASED, group=hosted.group, error=error.message)

    def policy(self, group: str) -> Policy:
        """Return how a group tries messages again."""
        options = self._options(group)
        return Policy(
            max_retries=options.max_retries,
            backoff_ms=options.backoff_ms,
            backoff_max_ms=options.backoff_max_ms,
        )

    def remember(self, nonce: int, hosted: HostedLedger) -> None:
        """Remember which ledger gave out a lease."""
        self._homes[nonce] = weakref.ref(hosted)
        if len(self._homes) < max(LEASES_KNOWN_MAX // 2, 2 * self._homes_alive):
            return
        older, self._older_homes, self._homes = self._older_homes, self._homes, {}
        for old, known in older.items():
            home = known()
            if home is not None and home.ledger.leases.get(old) is not None:
                # Still alive, however old it is.
                self._homes[old] = known
        self._homes_alive = len(self._homes)

    # What time brings.

    def listen_for_room(self, group: str, member: str, listener: Callable[[], None]) -> None:
        """Call somebody whenever a member holds fewer messages."""
        self._rooms.setdefault((group, member), Waiters()).listen(listener)

    def unlisten_for_room(self, group: str, member: str, listener: Callable[[], None]) -> None:
        """Stop calling."""
        waiting = self._rooms.get((group, member))
        if waiting is not None:
            waiting.unlisten(listener)
            if not waiting:
                del self._rooms[(group, member)]

    def _note(self, hosted: HostedLedger, found: Sequence[Event], members: set[str]) -> None:
        """Act on what was just committed to a ledger."""
        if hosted.partition.trace is not None:
            trace_events(hosted, found)
        self._watch_time(hosted)
        kinds = {type(event) for event in found}
        if kinds & (_FREEING if hosted.ledger.keys is None else _FREEING_BY_KEY):
            hosted.wake()
        if kinds & _COUNTED:
            self._count(found)
        for member in sorted(members) if self._rooms else ():
            waiting = self._rooms.get((hosted.group, member))
            if waiting is not None:
                waiting.wake()
        if events.Doomed in kinds:
            self._on_doomed(hosted)

    def _count(self, found: Sequence[Event]) -> None:
        for event in found:
            if isinstance(event, events.Doomed):
                self._metrics.count("doomed", count_of(event.offsets))
            elif isinstance(event, events.Returned) and event.is_counted:
                self._metrics.count("retried", count_of(event.offsets))

    def _watch_time(self, hosted: HostedLedger) -> None:
        due_ms = hosted.ledger.first_due_ms()
        if due_ms is None or hosted.is_closed:
            return
        due_ms = max(due_ms, hosted.quiet_until_ms)
        if hosted.alarm_ms is not None and hosted.alarm_ms <= due_ms:
            return
        hosted.alarm_ms = due_ms
        heapq.heappush(self._alarms, (due_ms, next(self._ordinals), hosted))
        if len(self._alarms) > self._alarms_max:
            self._sweep_alarms()
        self._arm()

    def _sweep_alarms(self) -> None:
        """Keep one alarm for each ledger: what an earlier one has replaced is for nothing."""
        live = {
            id(hosted): (due_ms, ordinal, hosted)
            for due_ms, ordinal, hosted in self._alarms
            if hosted.alarm_ms == due_ms and not hosted.is_closed
        }
        self._alarms = sorted(live.values(), key=lambda alarm: alarm[:2])
        self._alarms_max = max(ALARMS_MIN, 2 * len(self._alarms))

    def _arm(self) -> None:
        if self.is_stopped or not self._alarms:
            return
        due_ms = self._alarms[0][0]
        loop = asyncio.get_running_loop()
        at = loop.time() + max(due_ms - self._clock.monotonic_ms(), 0) / 1_000 + 0.001
        if self._timer is not None:
            # Kept here: what uvloop returns for a time that is now has none.
            if self._rings_at <= at and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._ring)
        self._rings_at = at

    def _ring(self) -> None:
        self._timer = None
        try:
            self.tick()
        except Exception:
            log.exception(LogEvent.LEASE_EXPIRY_CRASHED)
        self._arm()

    def tick(self) -> None:
        """End the leases whose time is over and wake those whose wait is."""
        now_ms = self._clock.monotonic_ms()
        due: dict[int, HostedLedger] = {}
        while self._alarms and self._alarms[0][0] <= now_ms:
            due_ms, _, hosted = heapq.heappop(self._alarms)
            if hosted.alarm_ms == due_ms and not hosted.is_closed:
                hosted.alarm_ms = None
                due[id(hosted)] = hosted
        for hosted in due.values():
            self._expire(hosted)
            hosted.wake()
            self._watch_time(hosted)

    def _expire(self, hosted: HostedLedger) -> None:
        decision = settle.expire(hosted.ledger, self.policy(hosted.group), hosted.moment())
        try:
            hosted.commit(decision.events)
        except GoQueueError as error:
            if not hosted.quiet_ms:
                log.warning(
                    LogEvent.LEASE_EXPIRY_NOT_PERSISTED, group=hosted.group, error=error.message
                )
            hosted.quiet_ms = min(max(2 * hosted.quiet_ms, RETRY_MS), RETRY_MS_MAX)
            hosted.quiet_until_ms = self._clock.monotonic_ms() + hosted.quiet_ms
            return
        hosted.quiet_ms = hosted.quiet_until_ms = 0
        if decision.reply:
            self._metrics.expired(hosted.group, hosted.partition.name.topic, decision.reply)


_FREEING: Final = frozenset(
    {events.Returned, events.Spared, events.HoldEnded, events.Reset, events.Restored}
)
"""Events that may have made messages ready for somebody who waits."""
_FREEING_BY_KEY: Final = _FREEING | {events.Acked, events.Dropped, events.Moved, events.Held}
"""The same where the next message of a key waits for the one before."""
_COUNTED: Final = frozenset({events.Doomed, events.Returned})
