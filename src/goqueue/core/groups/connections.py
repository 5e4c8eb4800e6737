"""Which connections each member was heard on, so that the end of the last one is noticed.

Shape: calculator. A connection stands for every member that spoke through it and is still there.
Nothing here is durable: after a start members have no connection until their next request.
"""

from itertools import count
from typing import NamedTuple

from goqueue.base.ids import GroupId, MemberId
from goqueue.base.limits import MEMBER_CONNECTIONS_MAX


class MemberOf(NamedTuple):
    """A member of one of the groups."""

    group: GroupId
    member: MemberId


class Connections:
    """The open connections, by number, and the members heard on each."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._members: dict[int, dict[MemberOf, None]] = {}
        self._connections: dict[MemberOf, dict[int, None]] = {}

    def __repr__(self) -> str:
        return f"<Connections: {len(self._members)} of {len(self._connections)} members>"

    def open(self) -> int:
        """Return the number of a new connection."""
        number = next(self._numbers)
        self._members[number] = {}
        return number

    def attach(self, number: int, group: GroupId, member: MemberId) -> bool:
        """Note that a member was heard on a connection; return False if that one has ended.

        Of many the latest are remembered: a member costs so much memory, whatever it does.
        """
        members = self._members.get(number)
        if members is None:
            return False
        place = MemberOf(group, member)
        if place not in members:
            members[place] = None
            known = self._connections.setdefault(place, {})
            known[number] = None
            if len(known) > MEMBER_CONNECTIONS_MAX:
                oldest = next(iter(known))
                del known[oldest]
                del self._members[oldest][place]
        return True

    def close(self, number: int) -> list[MemberOf]:
        """End a connection; return the members that have no other."""
        alone: list[MemberOf] = []
        for place in self._members.pop(number, ()):
            known = self._connections[place]
            del known[number]
            if not known:
                del self._connections[place]
                alone.append(place)
        return alone

    def forget(self, group: GroupId, member: MemberId) -> None:
        """Forget a member that is gone."""
        place = MemberOf(group, member)
        for number in self._connections.pop(place, ()):
            del self._members[number][place]
