"""The view of a group that another node hosts, as those see it who lease messages here."""

from collections.abc import Mapping, Sequence

from goqueue.base.errors import GoQueueError, NotCoordinatorError
from goqueue.base.ids import Generation, GroupId, MemberId, TopicName, TopicPartition
from goqueue.core.groups.group_view import GroupSight, GroupView, ViewChange
from goqueue.core.groups.member import Member
from goqueue.core.groups.options import GroupOptions
from goqueue.runtime.machine import Waiters


class ViewedGroup:
    """What is known here of one group, and which of its members were heard of here.

    A view may be behind. Nothing that is promised depends on it: the ledgers here are the only
    ones that lease messages of the partitions led here.
    """

    def __init__(self, name: GroupId) -> None:
        self.name = name
        self.view = GroupView(name)
        self.is_deleted = False
        self.wanted_ms = 0
        """When somebody last asked for it."""
        self._waiters = Waiters()
        self._heard: dict[MemberId, None] = {}
        self._open: dict[MemberId, list[TopicPartition]] = {}
        self._closed: GoQueueError | None = None

    def __repr__(self) -> str:
        return f"<ViewedGroup {self.view!r}>"

    @property
    def waiters(self) -> Waiters:
        """Those who wait for a change of assignment."""
        return self._waiters

    @property
    def options(self) -> GroupOptions:
        """How the group consumes."""
        return self.view.roster.options

    @property
    def identity(self) -> str:
        """What differs between this group and another one of its name that was before it."""
        return self.view.identity

    @property
    def topics(self) -> list[TopicName]:
        """Every topic that a member subscribes to."""
        return self.view.roster.topics

    @property
    def members(self) -> Mapping[MemberId, Member]:
        """The members, in the order they joined."""
        return self.view.roster.members

    @property
    def generation(self) -> Generation:
        """The generation as far as it is known here."""
        return self.view.roster.generation

    @property
    def is_closed(self) -> bool:
        """Return True if this is looked at no more."""
        return self._closed is not None

    # What members may do.

    def check(self) -> None:
        """Raise unless the group is known and looked at here."""
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)
        if not self.view.is_known:
            raise NotCoordinatorError("the group is not known here yet; ask again")

    def serves(self, member_id: str, generation: int) -> bool:
        """Return True if a member that knows a generation need not be asked about."""
        roster = self.view.roster
        is_member = not member_id or MemberId(member_id) in roster.members
        return self.view.is_there and is_member and generation <= roster.generation

    def check_member(self, member_id: str, generation: int | None = None) -> Member:
        """Return a member, or raise if it is none or its generation is over."""
        self.check()
        return self.view.roster.check(member_id, generation)

    def partitions_of(self, member_id: str) -> list[TopicPartition]:
        """Return what a member may take messages from now. Not yours to change."""
        self.check()
        known = self._open.get(MemberId(member_id))
        if known is None:
            known = self._open[MemberId(member_id)] = self.view.roster.open_to(member_id)
        return known

    def owns(self, member_id: str, partition: TopicPartition) -> bool:
        """Return True if a partition is a member's own, if only to settle what it took of it."""
        return self.view.roster.owns(member_id, partition)

    def touch(self, member_id: str, connection: int = 0) -> None:  # noqa: ARG002 - see below
        """Note that a member was heard of, for the coordinator.

        Which of its connections ended is no news here: the one to the coordinator decides.
        """
        self._heard[self.view.roster.get(member_id).id] = None

    # Looking.

    def take(self, sight: GroupSight) -> ViewChange:
        """Take a newer sight; return what it changes."""
        change = self.view.take(sight)
        self._open.clear()
        return change

    def take_heard(self) -> list[MemberId]:
        """Return who was heard of since the last time."""
        heard, self._heard = self._heard, {}
        return list(heard)

    def put_back(self, heard: Sequence[MemberId]) -> None:
        """Take back who was heard of: nobody was told."""
        self._heard = dict.fromkeys([*heard, *self._heard])

    @property
    def has_heard(self) -> bool:
        """Return True if somebody was heard of since."""
        return bool(self._heard)

    def close(self, error: GoQueueError) -> None:
        """Look at it no more: those who wait look again, and get the error."""
        self._closed = error
        self._waiters.wake()
