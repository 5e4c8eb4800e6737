"""Every ledger of a broker: opened when a group first reads a partition, gone with either."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from goqueue.core.groups.group import DISCONNECTED, EXPIRED, LEFT
from goqueue.core.groups.options import EARLIEST, GroupOptions
from goqueue.core.topics.catalog import added_at_ms
from goqueue.observability.consumer_metrics import ConsumerMetrics
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.at_work import GroupSource
from goqueue.runtime.groups.group_news import GroupNews
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import (
    MOVED,
    UNLOADED,
    AtPlace,
    Placed,
    StateJournal,
    StatePart,
    Waiters,
    forget,
    homes_in,
)
from goqueue.runtime.queue.hosted_ledger import KEY_PREFIX, HostedLedger, LedgerKey
from goqueue.runtime.queue.lease_homes import LeaseHomes
from goqueue.runtime.queue.ledger_alarms import LedgerAlarms
from goqueue.runtime.queue.ledger_news import COUNTED, FREEING, FREEING_BY_KEY, MemberRooms
from goqueue.runtime.tracing.ledger_notes import trace_events

RETRY_MS: Final = SECOND_MS
RETRY_MS_MAX: Final = MINUTE_MS
"""Pauses between attempts to write what time has brought, on a disk that takes nothing."""

_DEFAULTS: Final = GroupOptions()
_ASLEEP: Final = "the group of this is not known here yet; ask again"
log = get_logger("goqueue.delivery")


class Ledgers:
    """Hosts ledgers and watches the time for them. Runs in the broker's event loop."""

    def __init__(
        self,
        state: StateJournal,
        topics: Mapping[TopicName, Topic],
        groups: GroupSource,
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
        self._asleep: dict[GroupId, list[HostedLedger]] = {}
        self._options_of: dict[GroupId, GroupOptions] = {}
        """How groups with ledgers here consume, for as long as their group is not."""
        self._homes = LeaseHomes()
        self.remember = self._homes.remember
        self._alarms = LedgerAlarms(clock, self._ring)
        self.rooms, self.places = MemberRooms(), Waiters()
        """Those who wait for room in a member's hands, and for partitions to be led here."""
        self._on_doomed: Callable[[HostedLedger], None] = lambda _: None
        self.is_stopped = False
        self.is_waited_for = True
        """Whether members may wait for messages; not when the broker is about to stop."""
        groups.watch(self._hear)
        groups.keep_while(self.has)

    def __repr__(self) -> str:
        return f"<Ledgers: {sum(map(len, self._ledgers.values()))}>"

    def __iter__(self) -> Iterator[HostedLedger]:
        return iter([one for ledgers in self._ledgers.values() for one in ledgers.values()])

    def has(self, group: str) -> bool:
        """Return True if there is something of a group here."""
        return group in self._ledgers or group in self._asleep

    def groups_in(self, part: StatePart) -> list[GroupId]:
        """Return the groups with something here whose members a part has."""
        return list(homes_in(self._state, part, [*self._ledgers, *self._asleep]))

    @property
    def asleep(self) -> list[HostedLedger]:
        """Ledgers that were loaded and whose group is not known here yet: they decide nothing."""
        return [one for some in self._asleep.values() for one in some]

    def of(self, group: str) -> Mapping[TopicPartition, HostedLedger]:
        """Return the open ledgers of a group."""
        known = self._ledgers.get(GroupId(group))
        if known is None:
            self._state.check_owner(group)
            return {}
        return known

    def find(self, group: str, place: TopicPartition) -> HostedLedger | None:
        """Return a group's ledger of a partition, if it has one; raise if that is not known."""
        hosted = self.of(group).get(place)
        if hosted is None:
            self.check(group, [AtPlace(place)])
        return hosted

    def check(self, group: str, parts: Sequence[Placed]) -> None:
        """Raise unless it is known here what a group has of some partitions."""
        self._state.check_places(group, parts)
        if self._asleep:
            asleep = {one.partition.name for one in self._asleep.get(GroupId(group), ())}
            if any(part.partition in asleep for part in parts):
                raise NotCoordinatorError(_ASLEEP)

    def home_of(self, nonce: int, place: TopicPartition) -> HostedLedger | None:
        """Return the ledger of a partition that gave out a lease, if it is still there."""
        hosted = self._homes.find(nonce)
        if hosted is not None:
            if not hosted.is_known:
                raise NotCoordinatorError(_ASLEEP)
            return hosted if hosted.partition.name == place else None
        self._state.check_place(place)
        return None

    def on_doomed(self, callback: Callable[[HostedLedger], None]) -> None:
        """Call back with every ledger that has messages to be moved, now and later."""
        self._on_doomed = callback
        for hosted in self:
            if hosted.ledger.dooms:
                callback(hosted)

    # Life.

    def load(self, part: StatePart) -> None:
        """Bring back the ledgers of a part; where they lie with groups, those are there by now."""
        groups: list[GroupId] = []
        for text in self._state.keys(KEY_PREFIX, part):
            key = LedgerKey.of(text)
            topic = self._topics.get(key.place.topic)
            if topic is None or topic.record.created_ms != key.created_ms:
                forget(self._state, text, home=self._state.home_of(key.group, key.place))
                continue
            hosted = self._host(key, topic)
            hosted.is_known = False
            self._replay(hosted)
            self._homes.add_all(hosted)
            self._asleep.setdefault(key.group, []).append(hosted)
            groups.append(key.group)
        if self._state.is_beside:
            groups += self.groups_in(part)
        for group in dict.fromkeys(groups):
            self.recognise(group)

    def recognise(self, group: GroupId) -> None:
        """Let the ledgers of a group serve that is there; forget those of one that is gone."""
        if not self._groups.is_loaded(group):
            self._groups.want(group)
            return
        for hosted in [*self._asleep.pop(group, ()), *self.of(group).values()]:
            if not self._is_of_group(hosted):
                self._remove(hosted)
                hosted.forget()
            elif not hosted.is_known:
                self._begin(hosted)

    def _is_of_group(self, hosted: HostedLedger) -> bool:
        """Return True if the owner of a ledger is there: its group, or the broker itself."""
        if is_internal(hosted.group):
            return True
        return hosted.group in self._groups and hosted.identity == self._identity(hosted.group)

    def _begin(self, hosted: HostedLedger) -> None:
        """Let a ledger serve, with its whole time for every lease."""
        self._add(hosted)
        hosted.is_known = True
        try:
            hosted.revive(by_key=self._options(hosted.group).is_by_key)
        except GoQueueError as error:
            log.warning(LogEvent.CANCELLATION_NOT_PERSISTED, error=error.message)
        if self._state.is_beside:
            members = {} if is_internal(hosted.group) else self._groups.get(hosted.group).members
            for member in sorted({one.member for _, one in hosted.ledger.leases} - set(members)):
                self._take_back(hosted, member, EXPIRED)
        self._alarms.watch(hosted)
        if hosted.ledger.dooms:
            self._on_doomed(hosted)

    def _identity(self, group: str) -> str:
        """Return which group of a name it is, where its ledgers do not lie with it."""
        return self._groups.get(group).identity if self._state.is_beside else ""

    def unload(self, part: StatePart) -> list[HostedLedger]:
        """Let go of the ledgers of a part; return those that served."""
        gone = [one for one in [*self, *self.asleep] if self._state.is_in(one.host.home, part)]
        for hosted in gone:
            self._remove(hosted)
            hosted.close(UNLOADED if isinstance(part, int) else MOVED)
        return [hosted for hosted in gone if hosted.is_known]

    def _add(self, hosted: HostedLedger) -> None:
        self._ledgers.setdefault(hosted.group, {})[hosted.partition.name] = hosted

    def _remove(self, hosted: HostedLedger) -> None:
        """Take a ledger out of those that are here."""
        place, group = hosted.partition.name, hosted.group
        asleep = [one for one in self._asleep.pop(group, ()) if one is not hosted]
        if asleep:
            self._asleep[group] = asleep
        known = self._ledgers.get(group, {})
        if known.get(place) is hosted:
            del known[place]
            if not known:
                del self._ledgers[group]
                self._options_of.pop(group, None)

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

    def _options(self, group: str) -> GroupOptions:
        """Return how a group consumes; if it is gone or unloaded, how it did, or the defaults."""
        try:
            return self._groups.get(group).options
        except GoQueueError:
            return self._options_of.get(GroupId(group), _DEFAULTS)

    def stop(self) -> None:
        """Let nobody wait any longer."""
        self.is_stopped = True
        self.is_waited_for = False
        self._alarms.stop()
        for hosted in self:
            hosted.wake()

    def _host(self, key: LedgerKey, topic: Topic, *, by_key: bool = False) -> HostedLedger:
        return HostedLedger(
            key,
            topic.partition(key.place.partition),
            Ledger(origin=Offset(0), by_key=by_key),
            state=self._state,
            clock=self._clock,
            tell=self._note,
        )

    def open(self, group: str, options: GroupOptions, name: TopicPartition) -> HostedLedger:
        """Return a group's ledger of a partition; a new one begins where the options say."""
        if self._asleep:
            self.recognise(GroupId(group))
        known = self._ledgers.get(GroupId(group), {}).get(name)
        if known is not None:
            return known
        topic = self._topics.get(name.topic)
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {name.topic}")
        key = LedgerKey(GroupId(group), name, topic.record.created_ms, self._identity(group))
        hosted = self._host(key, topic, by_key=options.is_by_key)
        log_range = hosted.view()
        is_early = options.auto_offset_reset == EARLIEST or self._was_added(key, topic)
        origin = log_range.start_offset if is_early else log_range.end_offset
        self._add(hosted)
        try:
            hosted.commit([events.Reset(offset=origin)])
        except GoQueueError:
            self._remove(hosted)
            hosted.close()
            raise
        self._options_of[GroupId(group)] = options
        return hosted

    def _was_added(self, key: LedgerKey, topic: Topic) -> bool:
        """Return True if a partition came while the group read the others: it misses nothing."""
        added_ms = added_at_ms(topic.record, key.place.partition)
        if added_ms is None or is_internal(key.group):
            return False
        if self._state.is_beside:
            return int(key.identity or 0) <= added_ms
        return any(place.topic == key.place.topic for place in self.of(key.group))

    def forget_topic(self, name: str) -> None:
        """Drop the ledgers of a topic that is gone."""
        for hosted in [*self, *self.asleep]:
            if hosted.partition.name.topic == name:
                self._remove(hosted)
                hosted.forget()
        self._metrics.forget_topic(name)

    def _hear(self, news: GroupNews) -> None:
        """Take back what members held that are gone."""
        ledgers = self._ledgers.get(news.group, {})
        if news.is_deleted:
            for hosted in [*ledgers.values(), *self._asleep.get(news.group, ())]:
                self._remove(hosted)
                hosted.forget()
            self._metrics.forget(news.group)
            return
        for hosted in ledgers.values():
            for member, why in news.gone.items():
                self._take_back(hosted, member, why)
            hosted.wake()
        if self._state.is_beside:
            self.recognise(news.group)

    def _take_back(self, hosted: HostedLedger, member: str, why: str) -> None:
        if not hosted.ledger.leases.in_flight(member):
            return
        moment = hosted.moment()
        if why == LEFT and self._options(hosted.group).auto_commit:
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

    # What time brings.

    def _note(self, hosted: HostedLedger, found: Sequence[Event], members: set[str]) -> None:
        """Act on what was just committed to a ledger."""
        if hosted.partition.trace is not None:
            trace_events(hosted, found)
        self._alarms.watch(hosted)
        kinds = {type(event) for event in found}
        if kinds & (FREEING if hosted.ledger.keys is None else FREEING_BY_KEY):
            hosted.wake()
        if kinds & COUNTED:
            self._count(found)
        if self.rooms:
            self.rooms.wake(hosted.group, members)
        if events.Doomed in kinds:
            self._on_doomed(hosted)

    def _count(self, found: Sequence[Event]) -> None:
        for event in found:
            if isinstance(event, events.Doomed):
                self._metrics.count("doomed", count_of(event.offsets))
            elif isinstance(event, events.Returned) and event.is_counted:
                self._metrics.count("retried", count_of(event.offsets))

    def tick(self) -> None:
        """End the leases whose time is over and wake those whose wait is."""
        self._alarms.tick()

    def _ring(self, hosted: HostedLedger) -> None:
        self._expire(hosted)
        hosted.wake()

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
