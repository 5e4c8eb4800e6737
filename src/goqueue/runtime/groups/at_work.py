"""A group as those see it who lease and settle messages, wherever it is hosted."""

from collections.abc import Callable, Mapping
from typing import Protocol

from goqueue.base.ids import Generation, GroupId, MemberId, TopicName, TopicPartition
from goqueue.core.groups.member import Member
from goqueue.core.groups.options import GroupOptions
from goqueue.runtime.groups.group_news import Watcher
from goqueue.runtime.machine import Waiters


class GroupAtWork(Protocol):
    """A group that is hosted here, or the view of one that another node hosts."""

    name: GroupId
    is_deleted: bool

    @property
    def waiters(self) -> Waiters:
        """Those who wait for a change of assignment."""
        ...

    @property
    def options(self) -> GroupOptions:
        """How the group consumes."""
        ...

    @property
    def identity(self) -> str:
        """What differs between this group and another one of its name that was before it."""
        ...

    @property
    def topics(self) -> list[TopicName]:
        """Every topic that a member subscribes to."""
        ...

    @property
    def members(self) -> Mapping[MemberId, Member]:
        """The members."""
        ...

    @property
    def generation(self) -> Generation:
        """The current generation, as far as it is known here."""
        ...

    def check_member(self, member_id: str, generation: int | None = None) -> Member:
        """Return a member, or raise if it is none or its generation is over."""
        ...

    def partitions_of(self, member_id: str) -> list[TopicPartition]:
        """Return what a member may take messages from now. Not yours to change."""
        ...

    def owns(self, member_id: str, partition: TopicPartition) -> bool:
        """Return True if a partition is a member's own, if only to settle what it took of it."""
        ...

    def touch(self, member_id: str, connection: int = 0) -> None:
        """Note that a member was heard of."""
        ...


class GroupSource(Protocol):
    """Where groups are found. On one node that is their host."""

    @property
    def is_near(self) -> bool:
        """Return True if every group is hosted here: nobody has to be asked about one."""
        ...

    def __contains__(self, name: str, /) -> bool:
        """Return True if there is such a group, as far as it is known here."""
        ...

    def get(self, name: str) -> GroupAtWork:
        """Return a group, or raise; one that is not known here is looked for then."""
        ...

    def is_loaded(self, name: str) -> bool:
        """Return True if it is known here whether there is such a group, and all about it."""
        ...

    def is_ready(self, name: str, member: str, generation: int) -> bool:
        """Return True if a member that knows a generation can be served by what is known here."""
        ...

    async def prepare(self, name: str, member: str = "", generation: int = 0) -> None:
        """Find out what is known of a group elsewhere, or raise."""
        ...

    def want(self, name: str) -> None:
        """See to it that a group is known here soon."""
        ...

    def keep_while(self, has_ledgers: Callable[[str], bool], /) -> None:
        """Keep what is known of a group for as long as it has ledgers here."""
        ...

    def watch(self, watcher: Watcher) -> None:
        """Call back for members that are gone, partitions lost and groups deleted."""
        ...
