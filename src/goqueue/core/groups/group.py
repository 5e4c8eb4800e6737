"""One consumer group: who may come, who must go, and what that means for who reads what.

Shape: decider, the half that decides: the verbs return events and change nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from goqueue.base.errors import (
    GroupConflictError,
    GroupNotEmptyError,
    InvalidRequestError,
    NoRebalanceError,
    OverloadedError,
    StaleGenerationError,
)
from goqueue.base.ids import Generation, MemberId, TopicName, TopicPartition
from goqueue.base.limits import GROUP_MEMBERS_MAX, GROUP_PARTITIONS_MAX
from goqueue.core.decision import Decision
from goqueue.core.groups import rebalance
from goqueue.core.groups.assignors import ASSIGNORS
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
from goqueue.core.groups.member import JoinRequest, check_client_id, check_topics
from goqueue.core.groups.options import change_options, read_options
from goqueue.core.groups.rebalance import PROTOCOLS, Change
from goqueue.core.groups.roster import Roster
from goqueue.core.groups.states import GroupState

LEFT: Final = "left"
EXPIRED: Final = "expired"
DISCONNECTED: Final = "disconnected"

Partitions = Mapping[TopicName, int]
"""Every topic of the broker and how many partitions it has."""


class Group(Roster):
    """Decides about the members of one group."""

    def join(
        self,
        request: JoinRequest,
        *,
        new_id: MemberId,
        partitions: Partitions,
        now_ms: int,
    ) -> Decision[Event, MemberId]:
        """Let a client in, or back in; ``now_ms`` is the wall's, for people to read."""
        client_id = check_client_id(request.client_id)
        known = None if request.member_id is None else self.get(request.member_id)
        topics = check_topics(request.topics, partitions, known=known.topics if known else ())
        opening = self._open(request, now_ms)
        options = opening[0].options if opening else self.options
        if known is not None and set(known.topics) == set(topics):
            return Decision((), known.id)
        if known is None and len(self.members) >= GROUP_MEMBERS_MAX:
            raise OverloadedError(f"the group has {GROUP_MEMBERS_MAX} members")
        # A shared group never begins anew while it has members.
        is_stepping = not options.is_shared or not self.members
        joined = Joined(
            member_id=known.id if known else new_id,
            client_id=known.client_id if known else client_id,
            topics=topics,
            joined_ms=known.joined_ms if known else now_ms,
            generation=known.generation if known else Generation(self.generation + is_stepping),
        )
        subscriptions = {**self._subscriptions(), joined.member_id: frozenset(topics)}
        reason = rebalance.SUBSCRIPTION_CHANGED if known else rebalance.MEMBER_JOINED
        change = self._change(subscriptions, partitions, reason, opening[0] if opening else None)
        if sum(change.partitions.values()) > GROUP_PARTITIONS_MAX:
            raise InvalidRequestError(f"topics: more than {GROUP_PARTITIONS_MAX} partitions")
        events: list[Event] = [*opening, joined, *self._counted(change.partitions)]
        if options.is_shared:
            events += self._begin_shared(change)
        else:
            events += rebalance.plan(change)
        return Decision(tuple(events), joined.member_id)

    def leave(self, member_id: str, *, partitions: Partitions) -> Decision[Event, None]:
        """Let a member go."""
        return self._part({self.get(member_id).id: LEFT}, rebalance.MEMBER_LEFT, partitions)

    def expire(
        self, silent: Iterable[MemberId], *, partitions: Partitions
    ) -> Decision[Event, None]:
        """Let those go that were silent for too long, by the same road as those who leave."""
        gone = dict.fromkeys(silent, EXPIRED)
        if not gone:
            return Decision((), None)
        return self._part(gone, rebalance.MEMBER_EXPIRED, partitions)

    def disconnect(
        self, lost: Iterable[MemberId], *, partitions: Partitions
    ) -> Decision[Event, None]:
        """Let those go whose connections ended and who did not come back in time."""
        gone = dict.fromkeys(lost, DISCONNECTED)
        if not gone:
            return Decision((), None)
        return self._part(gone, rebalance.MEMBER_DISCONNECTED, partitions)

    def revoke(
        self, member_id: str, *, generation: int, revoked: Iterable[TopicPartition]
    ) -> Decision[Event, None]:
        """Take note that a member has given partitions up; what it does not name stays its own."""
        member = self.get(member_id)
        if generation != self.generation:
            raise StaleGenerationError("stale generation (rebalance occurred)")
        if self.state is not GroupState.REBALANCING:
            raise NoRebalanceError("no active rebalance")
        named = set(revoked)
        asked = self.to_revoke(member.id)
        owned = self._owned.get(member.id, set())
        if foreign := named & owned - asked:
            raise InvalidRequestError(f"revoked_partitions: {min(foreign)} is not to be revoked")
        # Named before and given up already: the answer was lost, and is given again.
        given_up = named & asked
        if not given_up:
            return Decision((), None)
        events: list[Event] = [
            Revoked(member_id=member.id, partitions=rebalance.by_topic(given_up))
        ]
        if self.pending == {member.id: given_up}:
            events.append(RebalanceCompleted(generation=self.generation))
        return Decision(tuple(events), None)

    def force(self, late: Iterable[MemberId]) -> Decision[Event, None]:
        """Take what was not given up in time."""
        pending = self.pending
        taken: list[Event] = [
            Revoked(
                member_id=member, partitions=rebalance.by_topic(pending[member]), is_forced=True
            )
            for member in late
        ]
        if taken and len(taken) == len(pending):
            taken.append(RebalanceCompleted(generation=self.generation))
        return Decision(tuple(taken), None)

    def recount(self, *, partitions: Partitions) -> Decision[Event, None]:
        """Follow topics that grew, came or went."""
        change = self._change(self._subscriptions(), partitions, rebalance.TOPICS_CHANGED)
        counted = self._counted(change.partitions)
        if not counted or not self.members or self.options.is_shared:
            return Decision(tuple(counted), None)
        return Decision((*counted, *rebalance.plan(change)), None)

    def delete(self, *, is_forced: bool) -> Decision[Event, None]:
        """End the group, for good."""
        if not self.members:
            return Decision((Deleted(),), None)
        if not is_forced:
            raise GroupNotEmptyError(f"the group has {len(self.members)} members")
        gone = Gone(members=dict.fromkeys(self.members, LEFT))
        return Decision((gone, Emptied(generation=self.generation), Deleted()), None)

    def _open(self, request: JoinRequest, now_ms: int) -> list[Opened]:
        """Return the options a join brings to an empty group; refuse others to a group at work."""
        stated = read_options(request.options)
        protocol = _choose("protocol", request.protocol, PROTOCOLS, self.protocol)
        if self.members and self.options.is_shared:
            # Nothing is ever rebalanced there, so every protocol will do.
            protocol = self.protocol
        assignor = _choose("assignor", request.assignor, ASSIGNORS, self.assignor)
        opened = Opened(
            created_ms=self.created_ms if self._is_opened else now_ms,
            protocol=protocol,
            assignor=assignor,
            options=change_options(self.options, stated),
        )
        if opened == self._opened():
            return [] if self._is_opened else [opened]
        if not self.members:
            return [opened]
        if protocol != self.protocol:
            raise GroupConflictError(
                f"the group has members and works by the {self.protocol} protocol"
            )
        if assignor != self.assignor:
            raise GroupConflictError(f"the group has members and its assignor is {self.assignor}")
        different = [name for name, one in stated.items() if getattr(self.options, name) != one]
        raise GroupConflictError(
            "the group has members and other options: "
            + ", ".join(f"{name} is {getattr(self.options, name)}" for name in different)
        )

    def _part(
        self, gone: dict[MemberId, str], reason: str, partitions: Partitions
    ) -> Decision[Event, None]:
        rest = {m: topics for m, topics in self._subscriptions().items() if m not in gone}
        events: list[Event] = [Gone(members=gone)]
        if not rest:
            events.append(Emptied(generation=Generation(self.generation + 1)))
            return Decision(tuple(events), None)
        change = self._change(rest, partitions, reason)
        events += self._counted(change.partitions)
        if not self.options.is_shared:
            events += rebalance.plan(change)
        return Decision(tuple(events), None)

    def _change(
        self,
        subscriptions: Mapping[MemberId, frozenset[TopicName]],
        partitions: Partitions,
        reason: str,
        opening: Opened | None = None,
    ) -> Change:
        wanted = dict.fromkeys(t for topics in subscriptions.values() for t in sorted(topics))
        return Change(
            generation=Generation(self.generation + 1),
            reason=reason,
            subscriptions=subscriptions,
            partitions={topic: partitions[topic] for topic in wanted if topic in partitions},
            owned=self._owned,
            protocol=opening.protocol if opening else self.protocol,
            assignor=opening.assignor if opening else self.assignor,
        )

    def _begin_shared(self, change: Change) -> list[Event]:
        if self.members:
            return []
        begun = RebalanceBegun(generation=change.generation, reason=change.reason, target={})
        return [begun, RebalanceCompleted(generation=change.generation)]

    def _counted(self, partitions: Partitions) -> list[Event]:
        return [] if partitions == self.partitions else [Counted(partitions=dict(partitions))]

    def _subscriptions(self) -> dict[MemberId, frozenset[TopicName]]:
        return {member.id: frozenset(member.topics) for member in self.members.values()}


def _choose(field: str, wanted: str | None, known: Iterable[str], default: str) -> str:
    if wanted is None:
        return default
    if wanted not in known:
        raise InvalidRequestError(f"{field}: must be one of {', '.join(known)}")
    return wanted
