"""One consumer group at work: what others ask of it, and those who wait for news of it.

Shape: host of a decider (``runtime/machine.py``). What follows from a change, news for those who
hold something on behalf of members, happens in the same step.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from goqueue.base.ids import Generation, GroupId, MemberId, TopicName, TopicPartition
from goqueue.core.groups.connections import Connections
from goqueue.core.groups.events import Deleted, Event, Gone, Joined, RebalanceBegun
from goqueue.core.groups.group import EXPIRED, Group
from goqueue.core.groups.member import Member
from goqueue.core.groups.options import HEARTBEAT_INTERVAL_MS, GroupOptions
from goqueue.core.groups.sessions import Sessions
from goqueue.core.groups.states import GroupState, Phase
from goqueue.core.groups.tally import Stopwatch, Tally
from goqueue.observability.group_metrics import GroupMeter
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.group_news import GroupNews, Watcher
from goqueue.runtime.machine import UNLOADED, MachineHost, StateJournal, Waiters

HEARTBEATS_MISSED: Final = 3
"""A member that let so many heartbeats pass is counted as late; its session goes on."""

DEPARTED_KEPT_MAX: Final = 1_000
"""Members whose reason to go is remembered, for nodes that hear of it a little later."""

Owned = dict[MemberId, frozenset[TopicPartition]]


class HostedGroup:
    """A group as the rest of the broker sees it."""

    def __init__(
        self,
        group: Group,
        *,
        state: StateJournal,
        clock: Clock,
        meter: GroupMeter,
        tallies: Sequence[Tally],
        tell: Watcher,
        connections: Connections,
        life: str = "",
    ) -> None:
        self.group = group
        self.name = group.name
        """What the group is called."""
        self.sessions = Sessions(group)
        self.tally = Tally()
        self.host = MachineHost[Event](state, key_of(group.name), home=group.name, machine=group)
        self._clock = clock
        self._meter = meter
        self._tell = tell
        self._connections = connections
        self._stopwatch = Stopwatch([self.tally, *tallies])
        self._late: set[str] = set()
        self._durable: asyncio.Future[None] | None = None
        self._open: dict[MemberId, list[TopicPartition]] = {}
        self.is_deleted = False
        self.life, self.version = life, 0
        """Which host of the group this is, and how often the group changed in its time."""
        self._departed: dict[MemberId, str] = {}

    def __repr__(self) -> str:
        return f"<HostedGroup {self.group!r}>"

    @property
    def waiters(self) -> Waiters:
        """Those who wait for a change of assignment."""
        return self.host.waiters

    @property
    def options(self) -> GroupOptions:
        """How the group consumes."""
        return self.group.options

    @property
    def identity(self) -> str:
        """What differs between this group and another one of its name that was before it."""
        return str(self.group.created_ms)

    @property
    def departed(self) -> Mapping[MemberId, str]:
        """Why members are gone, of those that went last."""
        return self._departed

    @property
    def topics(self) -> list[TopicName]:
        """Every topic that a member subscribes to."""
        return self.group.topics

    @property
    def members(self) -> Mapping[MemberId, Member]:
        """The members, in the order they joined."""
        return self.group.members

    @property
    def generation(self) -> Generation:
        """The current generation."""
        return self.group.generation

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        return self.group.state

    # What members may do.

    def check_member(self, member_id: str, generation: int | None = None) -> Member:
        """Return a member, or raise if it is none or its generation is over."""
        if self.host.closed is not None:
            self.host.check()
        return self.group.check(member_id, generation)

    def partitions_of(self, member_id: str) -> list[TopicPartition]:
        """Return what a member may take messages from now. Not yours to change."""
        self.host.check()
        known = self._open.get(MemberId(member_id))
        if known is None:
            known = self._open[MemberId(member_id)] = self.group.open_to(member_id)
        return known

    def owns(self, member_id: str, partition: TopicPartition) -> bool:
        """Return True if a partition is a member's own, if only to settle what it took of it."""
        return self.group.owns(member_id, partition)

    def touch(self, member_id: str, connection: int = 0) -> None:
        """Note that a member was heard of; whatever it asks for counts as a heartbeat.

        What is still done for a connection that has ended tells nothing of its client.
        """
        member = self.group.get(member_id).id
        if connection and not self._connections.attach(connection, self.name, member):
            return
        self.sessions.touch(member, now_ms=self._clock.monotonic_ms())
        if self._late:
            self._late.discard(member_id)

    def attach(self, member_id: str, connection: int) -> None:
        """Note that a member has a connection, whatever becomes of its request."""
        member = self.members.get(MemberId(member_id))
        if member is None:
            return
        if not connection or self._connections.attach(connection, self.name, member.id):
            self.sessions.find(member.id)

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, connection: int = 0
    ) -> Phase:
        """Answer a heartbeat with what a rebalance asks of the member."""
        self.check_member(member_id, generation)
        self.touch(member_id, connection)
        self._meter.heartbeats.inc()
        return self.group.phase_of(member_id, generation)

    def observe_heartbeat(self, seconds: float) -> None:
        """Note how long a heartbeat took to be answered."""
        self._meter.heartbeat_seconds.observe(seconds)

    def heard_at_ms(self, member_id: MemberId) -> int:
        """Return when a member was last heard of, by the clock on the wall."""
        silence_ms = self._clock.monotonic_ms() - self.sessions.heard_ms(member_id)
        return self._clock.now_ms() - silence_ms

    def deadline_at_ms(self, member_id: MemberId) -> int | None:
        """Return when what a member is to give up will be taken, by the clock on the wall."""
        deadline_ms = self.sessions.deadline_ms(member_id)
        if deadline_ms is None:
            return None
        return self._clock.now_ms() + deadline_ms - self._clock.monotonic_ms()

    async def settled(self) -> None:
        """Return when all changes are durable, or never will be.

        Who hears of a generation must be sure that a restart does not give its number again.
        """
        while self._durable is not None and not self._durable.done():
            await asyncio.wait([self._durable])

    # Changing.

    def load(self) -> bool:
        """Take up what is stored; every member has a full session to come back.

        Returns False if there is nothing.
        """
        if not self.host.load(Event):
            return False
        now_ms = self._clock.monotonic_ms()
        self.sessions.follow(now_ms=now_ms)
        if self.group.state is GroupState.REBALANCING:
            self._stopwatch.resume(now_ms=now_ms)
        return True

    def close(self) -> None:
        """Stop hosting the group; who waits for it is to ask again."""
        for member in self.members:
            self._connections.forget(self.name, member)
        self.host.close(UNLOADED)

    def commit(self, events: Sequence[Event]) -> asyncio.Future[None]:
        """Make events true, and durable when the future is done. Raises with nothing changed."""
        if not events:
            # What the answer tells of may still be on its way to the disk.
            return self.host.durable()
        self.host.check()
        before = self._owned()
        if isinstance(events[-1], Deleted):
            durable = self.host.forget()
            for event in events:
                self.group.apply(event)
            self.is_deleted = True
        else:
            self.host.commit(events)
            durable = self.host.durable()
        self._durable = durable
        self.version += 1
        self.sessions.follow(now_ms=self._clock.monotonic_ms())
        self._open.clear()
        self._count(events)
        self._announce(events, before)
        return durable

    def note_late(self) -> None:
        """Count the members that have let several heartbeats pass."""
        since_ms = self._clock.monotonic_ms() - HEARTBEATS_MISSED * HEARTBEAT_INTERVAL_MS
        for member in self.members:
            if member not in self._late and self.sessions.heard_ms(member) < since_ms:
                self._late.add(member)
                self._meter.heartbeat_timeouts.inc()

    def _owned(self) -> Owned:
        if self.options.is_shared:
            return {}
        return {member: frozenset(self.group.owned_by(member)) for member in self.members}

    def _count(self, events: Sequence[Event]) -> None:
        durations = self._stopwatch.follow(
            events, now_ms=self._clock.monotonic_ms(), wall_ms=self._clock.now_ms()
        )
        for duration_ms in durations:
            self._meter.took(duration_ms / 1_000, protocol=self.group.protocol)
        for event in events:
            if isinstance(event, Joined):
                self._meter.joins.inc()
            elif isinstance(event, RebalanceBegun):
                self._meter.begun(event.reason)
            elif isinstance(event, Gone):
                self._late -= set(event.members)
                for reason in event.members.values():
                    self._meter.gone(reason)
                self._meter.session_timeouts.inc(list(event.members.values()).count(EXPIRED))

    def _announce(self, events: Sequence[Event], before: Owned) -> None:
        after = self._owned()
        none: frozenset[TopicPartition] = frozenset()
        lost = {one: before[one] - after[one] for one in before if one in after}
        revoked = sum(map(len, lost.values()))
        assigned = sum(len(owned - before.get(one, none)) for one, owned in after.items())
        self._stopwatch.moved(revoked=revoked, assigned=assigned)
        self._meter.revoked.inc(revoked)
        self._meter.assigned.inc(assigned)
        self.host.waiters.wake()
        gone = {
            k: v for event in events if isinstance(event, Gone) for k, v in event.members.items()
        }
        for member in gone:
            self._connections.forget(self.name, member)
        self._note_departures(gone)
        self._tell(
            GroupNews(
                group=self.name,
                gone=gone,
                lost={member: partitions for member, partitions in lost.items() if partitions},
                is_deleted=isinstance(events[-1], Deleted),
            )
        )

    def _note_departures(self, gone: Mapping[MemberId, str]) -> None:
        self._departed.update(gone)
        while len(self._departed) > DEPARTED_KEPT_MAX:
            del self._departed[next(iter(self._departed))]


KEY_PREFIX: Final = "group/"


def key_of(name: GroupId) -> str:
    """Return what the state of a group is kept under."""
    return KEY_PREFIX + name
