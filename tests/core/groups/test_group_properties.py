"""Whatever members do, and whenever the broker restarts, a partition has one owner at most."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import GroupId, MemberId, PartitionId, TopicName, TopicPartition
from goqueue.core.decision import Decision
from goqueue.core.groups.events import Event
from goqueue.core.groups.group import Group
from goqueue.core.groups.member import JoinRequest
from goqueue.core.groups.sessions import Sessions
from goqueue.core.groups.states import GroupState
from goqueue.testing.clock import FakeClock
from tests.core.groups.shell import rebuilt

TOPICS = [TopicName(name) for name in "abc"]
SESSION_MS = 30_000
REVOCATION_MS = 60_000

subscriptions = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = Group(GroupId("billing"))
        self.sessions = Sessions(self.group)
        self.clock = FakeClock()
        self.partitions = {TOPICS[0]: 3, TOPICS[1]: 4}
        self.journal: list[Event] = []
        self.count = 0
        # The dumb model: who is there, what they read, when they were heard; who has what.
        self.topics: dict[MemberId, frozenset[TopicName]] = {}
        self.heard: dict[MemberId, int] = {}
        self.protocol = "eager"
        self.assignor = "sticky"

    @initialize(
        protocol=st.sampled_from(["eager", "cooperative"]),
        assignor=st.sampled_from(["sticky", "range", "roundrobin"]),
    )
    def choose(self, protocol: str, assignor: str) -> None:
        self.protocol, self.assignor = protocol, assignor

    @rule(topics=subscriptions)
    def join(self, topics: list[TopicName]) -> None:
        member = MemberId(f"m-{self.count}")
        if any(topic not in self.partitions for topic in topics):
            self._refused(topics, None)
            return
        self._commit(self._join(topics, None, member))
        self.count += 1
        self.topics[member] = frozenset(topics)
        self.heard[member] = self.clock.monotonic_ms()

    @precondition(lambda self: self.topics)
    @rule(topics=subscriptions, data=st.data())
    def rejoin(self, topics: list[TopicName], data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.topics)))
        if any(topic not in self.partitions for topic in set(topics) - self.topics[member]):
            self._refused(topics, member)
            return
        is_same = self.topics[member] == set(topics)
        decision = self._join(topics, member, MemberId("unused"))
        assert bool(decision.events) is not is_same
        self._commit(decision)
        self.sessions.touch(member, now_ms=self.clock.monotonic_ms())
        self.topics[member] = frozenset(topics)
        self.heard[member] = self.clock.monotonic_ms()

    @rule(member=st.integers(0, 9))
    def come_back_too_late(self, member: int) -> None:
        unknown = MemberId(f"m-{member}")
        if unknown not in self.topics:
            self._refused([TOPICS[0]], unknown)

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.topics)))
        self._commit(self.group.leave(member, partitions=self.partitions))
        del self.topics[member], self.heard[member]

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.topics)))
        self.sessions.touch(member, now_ms=self.clock.monotonic_ms())
        self.heard[member] = self.clock.monotonic_ms()

    @precondition(lambda self: self.group.state is GroupState.REBALANCING)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.group.pending)))
        asked = sorted(self.group.pending[member])
        some = data.draw(st.lists(st.sampled_from(asked), unique=True))
        awaited = {m: self.group.awaited_by(m) for m in self.topics}
        generation = self.group.generation
        self._commit(self.group.revoke(member, generation=generation, revoked=some))

        assert self.group.generation == generation
        assert not any(self.group.owns(member, one) for one in some)
        for heir, ones in awaited.items():
            assert all(self.group.owns(heir, one) for one in ones & set(some))

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 6))
    def change_topic(self, topic: TopicName, count: int) -> None:
        self.partitions.pop(topic, None)
        if count:
            self.partitions[topic] = count
        self._commit(self.group.recount(partitions=self.partitions))
        assert self.group.recount(partitions=self.partitions).events == ()

    @rule(duration_ms=st.integers(0, 40_000))
    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        now_ms = self.clock.monotonic_ms()
        silent_now = self.sessions.silent(now_ms=now_ms)
        self._commit(self.group.expire(silent_now, partitions=self.partitions))
        self._commit(self.group.force(self.sessions.late(now_ms=now_ms)))
        silent = {m for m, heard in self.heard.items() if now_ms - heard >= SESSION_MS}
        for member in silent:
            del self.topics[member], self.heard[member]

    @rule()
    def restart(self) -> None:
        raw = msgspec.msgpack.encode(self.journal)
        self.group = rebuilt(msgspec.msgpack.decode(raw, type=list[Event]))
        self.sessions = Sessions(self.group)
        self.sessions.follow(now_ms=self.clock.monotonic_ms())
        self.heard = dict.fromkeys(self.heard, self.clock.monotonic_ms())

    @rule()
    def compact(self) -> None:
        self.journal = list(self.group.snapshot())
        twin = rebuilt(self.journal)
        assert self._facts(twin) == self._facts(self.group)
        assert list(twin.members) == list(self.group.members)

    # What always holds.

    @invariant()
    def members_are_those_who_came_and_did_not_go(self) -> None:
        assert {m: frozenset(one.topics) for m, one in self.group.members.items()} == self.topics
        assert (self.group.state is GroupState.EMPTY) is (not self.topics)

    @invariant()
    def a_partition_has_one_owner_at_most(self) -> None:
        owned = [one for member in self.topics for one in self.group.owned_by(member)]
        assert len(owned) == len(set(owned))
        assert set(owned) <= self._wanted()
        if self.group.state is GroupState.STABLE:
            assert set(owned) == self._wanted()

    @invariant()
    def nobody_has_what_they_do_not_read(self) -> None:
        for member, topics in self.topics.items():
            assert {one.topic for one in self.group.owned_by(member)} <= topics

    @invariant()
    def a_rebalance_waits_for_somebody_and_ends_in_time(self) -> None:
        pending = self.group.pending
        assert (self.group.state is GroupState.REBALANCING) is bool(pending)
        now_ms = self.clock.monotonic_ms()
        for member in pending:
            deadline_ms = self.sessions.deadline_ms(member)
            assert deadline_ms is not None
            assert now_ms < deadline_ms <= now_ms + REVOCATION_MS
        assert not (pending and self.protocol == "eager")

    # How it is done.

    def _wanted(self) -> set[TopicPartition]:
        read = frozenset[TopicName]().union(*self.topics.values())
        return {
            TopicPartition(topic, PartitionId(number))
            for topic, count in self.partitions.items()
            for number in range(count)
            if topic in read
        }

    def _join(
        self, topics: list[TopicName], member_id: str | None, new_id: MemberId
    ) -> Decision[Event, MemberId]:
        request = JoinRequest(
            client_id="m",
            topics=tuple(topics),
            protocol=self.protocol,
            assignor=self.assignor,
            member_id=member_id,
        )
        return self.group.join(
            request, new_id=new_id, partitions=self.partitions, now_ms=self.clock.now_ms()
        )

    def _refused(self, topics: list[TopicName], member_id: str | None) -> None:
        before = self._facts(self.group)
        try:
            self._join(topics, member_id, MemberId("unused"))
        except GoQueueError:
            assert self._facts(self.group) == before
        else:
            raise AssertionError("this join should be refused")

    def _commit(self, decision: Decision[Event, object]) -> None:
        """Apply a decision; members it does not take anything from never pause."""
        before = {m: set(self.group.open_to(m)) for m in self.group.members}
        for event in decision.events:
            self.journal.append(event)
            self.group.apply(event)
        self.sessions.follow(now_ms=self.clock.monotonic_ms())
        if self.protocol == "cooperative":
            for member in before.keys() & self.group.members.keys():
                gone = before[member] - set(self.group.open_to(member))
                still = {one for one in gone if self._exists(one, member)}
                assert still <= self.group.to_revoke(member)

    def _exists(self, one: TopicPartition, member: MemberId) -> bool:
        is_there = one.partition < self.partitions.get(one.topic, 0)
        return is_there and one.topic in self.group.members[member].topics

    @staticmethod
    def _facts(group: Group) -> object:
        return (
            group.state,
            group.generation,
            group.options,
            group.protocol,
            group.partitions,
            {m: (group.owned_by(m), group.to_revoke(m)) for m in group.members},
            dict(group.members),
        )


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
