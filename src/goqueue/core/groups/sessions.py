"""When members were last heard of, lost their connections, and must give up what they are to.

Shape: calculator. Time is no event: after a load all have a full session, and every deadline anew.
"""

from goqueue.base.ids import MemberId
from goqueue.core.groups.roster import Roster
from goqueue.core.groups.states import GroupState


class Sessions:
    """The times of one group's members, on the monotonic clock."""

    def __init__(self, group: Roster) -> None:
        self._group = group
        self._heard_ms: dict[MemberId, int] = {}
        self._deadlines_ms: dict[MemberId, int] = {}
        self._lost_ms: dict[MemberId, int] = {}

    def __repr__(self) -> str:
        return f"<Sessions of {len(self._heard_ms)} members>"

    def heard_ms(self, member_id: MemberId) -> int:
        """Return when a member was last heard of."""
        return self._heard_ms[member_id]

    def deadline_ms(self, member_id: MemberId) -> int | None:
        """Return when what a member is to give up will be taken."""
        return self._deadlines_ms.get(member_id)

    def touch(self, member_id: str, *, now_ms: int) -> None:
        """Note that a member was heard of."""
        member = self._group.get(member_id).id
        self._heard_ms[member] = now_ms
        self._lost_ms.pop(member, None)

    def lose(self, member_id: MemberId, *, now_ms: int) -> None:
        """Note that the last connection of a member ended: its grace begins."""
        if member_id in self._heard_ms:
            self._lost_ms[member_id] = now_ms

    def find(self, member_id: MemberId) -> None:
        """Note that a member has a connection again, in time."""
        self._lost_ms.pop(member_id, None)

    def follow(self, *, now_ms: int) -> None:
        """Follow a change of the group: give those who have none their time, forget who is gone.

        New members have a session, who gives something up a deadline. It stays when the next
        change overtakes it.
        """
        members, heard_ms, known_ms = self._group.members, self._heard_ms, self._deadlines_ms
        self._heard_ms = {member: heard_ms.get(member, now_ms) for member in members}
        self._lost_ms = {one: at_ms for one, at_ms in self._lost_ms.items() if one in members}
        pending = self._group.pending if self._group.state is GroupState.REBALANCING else ()
        last_ms = now_ms + self._group.options.revocation_timeout_ms
        self._deadlines_ms = {member: known_ms.get(member, last_ms) for member in pending}

    def excuse(self, duration_ms: int, *, now_ms: int) -> None:
        """Let a time not count in which nobody could have been heard."""
        for member, heard_ms in self._heard_ms.items():
            self._heard_ms[member] = min(heard_ms + duration_ms, now_ms)
        for member in self._deadlines_ms:
            self._deadlines_ms[member] += duration_ms
        self.excuse_lost(duration_ms, now_ms=now_ms)

    def excuse_lost(self, duration_ms: int, *, now_ms: int) -> None:
        """Let a time not count in which nobody could have come back."""
        for member, lost_ms in self._lost_ms.items():
            self._lost_ms[member] = min(lost_ms + duration_ms, now_ms)

    def silent(self, *, now_ms: int) -> list[MemberId]:
        """Return who was not heard of for a session."""
        since_ms = now_ms - self._group.options.session_timeout_ms
        return [member for member, heard_ms in self._heard_ms.items() if heard_ms <= since_ms]

    def lost(self, *, now_ms: int) -> list[MemberId]:
        """Return who has had no connection for longer than the grace."""
        since_ms = now_ms - self._group.options.disconnect_grace_ms
        return [member for member, lost_ms in self._lost_ms.items() if lost_ms <= since_ms]

    @property
    def grace_ends_ms(self) -> list[int]:
        """Return when the grace of each member without a connection is over."""
        grace_ms = self._group.options.disconnect_grace_ms
        return [lost_ms + grace_ms for lost_ms in self._lost_ms.values()]

    def late(self, *, now_ms: int) -> list[MemberId]:
        """Return who did not give up in time what they were to."""
        return [one for one, deadline_ms in self._deadlines_ms.items() if deadline_ms <= now_ms]
