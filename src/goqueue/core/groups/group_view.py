"""What a node knows of a group that another node hosts, and what a newer sight of it changes.

Shape: stepper. The coordinator of a group shows it as the events that rebuild it; here they are
applied to a roster of its own, so that both answer the same questions alike. A sight is believed
only if it is newer than the last one: of a later leader, or of the same one and a later version.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from goqueue.base.ids import GroupId, MemberId, TopicPartition
from goqueue.core.groups.events import Event
from goqueue.core.groups.group import EXPIRED
from goqueue.core.groups.roster import Roster


class SightOf(msgspec.Struct, frozen=True, array_like=True):
    """Which sight it is. ``life`` is of the host: versions of different ones are not compared."""

    epoch: int = -1
    """Leader epoch of the state partition of the group."""
    life: str = ""
    version: int = 0


NO_SIGHT = SightOf()


class GroupSight(msgspec.Struct, frozen=True, array_like=True):
    """A group as its coordinator shows it; without events there is none."""

    of: SightOf
    events: list[Event]
    gone: dict[MemberId, str] = {}
    """Why members are gone that went lately."""


class ViewChange(NamedTuple):
    """What a newer sight changed, for those who hold something on behalf of members."""

    gone: Mapping[MemberId, str]
    lost: Mapping[MemberId, frozenset[TopicPartition]]
    is_deleted: bool
    """Whether the group that was seen before is gone; another one of its name may be there."""


class GroupView:
    """The last sight of one group."""

    def __init__(self, name: GroupId) -> None:
        self.roster = Roster(name)
        self.of = NO_SIGHT
        self.is_there = False
        """Whether there is such a group, as far as it was seen."""

    def __repr__(self) -> str:
        return f"<GroupView of {self.roster!r} as of {self.of}>"

    @property
    def is_known(self) -> bool:
        """Return True if the group was seen at all."""
        return self.of is not NO_SIGHT

    @property
    def identity(self) -> str:
        """What differs between this group and another one of its name that was before it."""
        return str(self.roster.created_ms)

    def is_newer(self, of: SightOf) -> bool:
        """Return True if a sight is to be believed."""
        if of.epoch != self.of.epoch:
            return of.epoch > self.of.epoch
        return of.life != self.of.life or of.version > self.of.version

    def take(self, sight: GroupSight) -> ViewChange:
        """Take a newer sight; return what it changes."""
        before, after = self.roster, _rebuilt(self.roster.name, sight)
        was_there, self.is_there = self.is_there, bool(sight.events)
        self.roster, self.of = after, sight.of
        is_deleted = was_there and before.created_ms != after.created_ms
        if is_deleted or not self.is_there:
            return ViewChange(dict.fromkeys(before.members, EXPIRED), {}, is_deleted=True)
        gone = {
            member: sight.gone.get(member, EXPIRED)
            for member in before.members
            if member not in after.members
        }
        return ViewChange(gone, _lost(before, after), is_deleted=False)


def _lost(before: Roster, after: Roster) -> dict[MemberId, frozenset[TopicPartition]]:
    """Return what members own no more that are still there."""
    if after.options.is_shared or before.options.is_shared:
        return {}
    lost = {
        member: frozenset(before.owned_by(member) - after.owned_by(member))
        for member in before.members
        if member in after.members
    }
    return {member: partitions for member, partitions in lost.items() if partitions}


def _rebuilt(name: GroupId, sight: GroupSight) -> Roster:
    roster = Roster(name)
    for event in sight.events:
        roster.apply(event)
    return roster
