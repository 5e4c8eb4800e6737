"""Who is in a group and who owns what, as the events of the group made it.

Shape: decider, the half that is changed: ``apply`` serves live traffic and recovery alike. When a
member was last heard of is not an event, and is kept elsewhere (``sessions.py``).
"""

from collections.abc import Iterable

from goqueue.base.errors import StaleGenerationError, UnknownMemberError
from goqueue.base.ids import Generation, GroupId, MemberId, TopicName, TopicPartition
from goqueue.core.groups import rebalance
from goqueue.core.groups.assignors import STICKY
from goqueue.core.groups.events import (
    Counted,
    Deleted,
    Emptied,
    Event,
    Gone,
    Joined,
    Opened,
    RebalanceBegun,
    RebalanceCompleted,
    Revoked,
)
from goqueue.core.groups.member import Member
from goqueue.core.groups.options import GroupOptions
from goqueue.core.groups.rebalance import EAGER
from goqueue.core.groups.states import GroupState, Phase, next_state


class Roster:
    """The members of one group, its options and its assignment."""

    def __init__(self, name: GroupId) -> None:
        self.name = name
        self.created_ms = 0
        self.state = GroupState.EMPTY
        self.protocol = EAGER
        self.assignor = STICKY
        self.options = GroupOptions()
        self.generation = Generation(0)
        self.members: dict[MemberId, Member] = {}
        self.partitions: dict[TopicName, int] = {}
        self._is_opened = False
        self._reason = rebalance.MEMBER_JOINED
        self._owned: dict[MemberId, set[TopicPartition]] = {}
        self._target: dict[MemberId, set[TopicPartition]] = {}
        self._heirs: dict[TopicPartition, MemberId] = {}

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name} {self.state}: {len(self.members)} members,"
            f" generation {self.generation}>"
        )

    # What is so.

    @property
    def leader_id(self) -> MemberId | None:
        """The member that joined first."""
        return next(iter(self.members), None)

    @property
    def topics(self) -> list[TopicName]:
        """Every topic a member subscribes to, in the order they were first named."""
        return list(dict.fromkeys(t for member in self.members.values() for t in member.topics))

    def get(self, member_id: str) -> Member:
        """Return a member or raise."""
        member = self.members.get(MemberId(member_id))
        if member is None:
            raise UnknownMemberError("member not found (may have been evicted)")
        return member

    def check(self, member_id: str, generation: int | None) -> Member:
        """Return a member, or raise if it is none or speaks of a generation that is over.

        Without stopping the world a member need not know the latest generation: what it lost
        meanwhile it does not own any more, and the rest is its own in every one since it joined.
        """
        member = self.get(member_id)
        if generation is None:
            return member
        is_strict = self.protocol == EAGER and not self.options.is_shared
        oldest = self.generation if is_strict else member.generation
        if not oldest <= generation <= self.generation:
            raise StaleGenerationError("stale generation (rebalance occurred)")
        return member

    def owns(self, member_id: str, partition: TopicPartition) -> bool:
        """Return True if a member may settle what it has of a partition."""
        if self.options.is_shared:
            member = self.members.get(MemberId(member_id))
            count = self.partitions.get(partition.topic, 0)
            return (
                member is not None
                and partition.topic in member.topics
                and (0 <= partition.partition < count)
            )
        return partition in self._owned.get(MemberId(member_id), ())

    def owned_by(self, member_id: str) -> set[TopicPartition]:
        """Return all a member owns, what it is to give up included."""
        member = self.get(member_id)
        if not self.options.is_shared:
            return self._owned.get(member.id, set())
        return rebalance.flat({t: range(self.partitions.get(t, 0)) for t in member.topics})

    def open_to(self, member_id: str) -> list[TopicPartition]:
        """Return what a member may take messages from now, in order."""
        return sorted(self.owned_by(member_id) - self.to_revoke(member_id))

    def to_revoke(self, member_id: str) -> set[TopicPartition]:
        """Return what a member is to finish and give up."""
        member = MemberId(member_id)
        if self.state is not GroupState.REBALANCING:
            return set()
        return self._owned.get(member, set()) - self._target.get(member, set())

    def awaited_by(self, member_id: str) -> set[TopicPartition]:
        """Return what a member will have when others have given it up."""
        member = MemberId(member_id)
        return self._target.get(member, set()) - self._owned.get(member, set())

    @property
    def pending(self) -> dict[MemberId, set[TopicPartition]]:
        """Everything that is to be given up, by owner."""
        found = {member: self.to_revoke(member) for member in self.members}
        return {member: partitions for member, partitions in found.items() if partitions}

    def phase_of(self, member_id: str, generation: int | None = None) -> Phase:
        """Return what a rebalance asks of a member that knows this generation."""
        if self.to_revoke(member_id):
            return Phase.PENDING_REVOKE
        if self.awaited_by(member_id):
            return Phase.PENDING_ASSIGN
        is_news = generation is not None and generation < self.generation
        return Phase.COMPLETE if is_news else Phase.NONE

    @property
    def phase(self) -> Phase:
        """What the group as a whole waits for."""
        return Phase.PENDING_REVOKE if self.state is GroupState.REBALANCING else Phase.NONE

    # Changing.

    def apply(self, event: Event) -> None:
        """Change state by one event."""
        self.state = next_state(self.state, event)
        match event:
            case Opened() | Joined() | Counted():
                self._note(event)
            case Gone():
                self._forget(event.members)
            case RebalanceBegun():
                self._begin(event)
            case Revoked():
                self._hand_over(event.member_id, rebalance.flat(event.partitions))
            case Emptied():
                self.generation = event.generation
                self.partitions = {}
                self._forget(dict(self.members))
            case RebalanceCompleted() | Deleted():
                pass

    def _note(self, event: Opened | Joined | Counted) -> None:
        match event:
            case Opened():
                self._is_opened = True
                self.created_ms = event.created_ms
                self.protocol, self.assignor = event.protocol, event.assignor
                self.options = event.options
            case Joined():
                self.members[event.member_id] = Member(
                    id=event.member_id,
                    client_id=event.client_id,
                    topics=event.topics,
                    joined_ms=event.joined_ms,
                    generation=event.generation,
                )
            case Counted():
                self.partitions = dict(event.partitions)

    def _forget(self, members: Iterable[MemberId]) -> None:
        for member in members:
            self.members.pop(member, None)
            self._owned.pop(member, None)
            self._target.pop(member, None)

    def _begin(self, event: RebalanceBegun) -> None:
        self.generation = event.generation
        self._reason = event.reason
        self._target = rebalance.assignment_of(event.target)
        self._owned = rebalance.assignment_of(event.target if event.owned is None else event.owned)
        self._heirs = {one: member for member, ones in self._target.items() for one in ones}

    def _hand_over(self, giver: MemberId, partitions: set[TopicPartition]) -> None:
        self._owned[giver] -= partitions
        for one in partitions:
            heir = self._heirs.get(one)
            if heir is not None:
                self._owned[heir].add(one)

    def snapshot(self) -> list[Event]:
        """Return the events that rebuild this state."""
        events: list[Event] = [self._opened()] if self._is_opened else []
        if not self.members:
            return [*events, Emptied(generation=self.generation)]
        events += [
            Joined(
                member_id=member.id,
                client_id=member.client_id,
                topics=member.topics,
                joined_ms=member.joined_ms,
                generation=member.generation,
            )
            for member in self.members.values()
        ]
        is_moving = self.state is GroupState.REBALANCING
        begun = RebalanceBegun(
            generation=self.generation,
            reason=self._reason,
            target=rebalance.layout_of(self._target),
            owned=rebalance.layout_of(self._owned) if is_moving else None,
        )
        events += [Counted(partitions=self.partitions), begun]
        return events if is_moving else [*events, RebalanceCompleted(generation=self.generation)]

    def _opened(self) -> Opened:
        return Opened(
            created_ms=self.created_ms,
            protocol=self.protocol,
            assignor=self.assignor,
            options=self.options,
        )
