"""When members were last heard of, and until when they may keep what they are to give up.

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
        self._heard_ms[self._group.get(member_id).id] = now_ms

    def follow(self, *, now_ms: int) -> None:
        """Follow a change of the group: give those who have none their time, forget who is gone.

        New members have a session, who gives something up a deadline. It stays when the next
        change overtakes it.
        """
        members, heard_ms, known_ms = self._group.members, self._heard_ms, self._deadlines_ms
        self._heard_ms = {member: heard_ms.get(member, now_ms) for member in members}
        pending = self._group.pending if self._group.state is GroupState.REBALANCING else ()
        last_ms = now_ms + self._group.options.revocation_timeout_ms
        self._deadlines_ms = {member: known_ms.get(member, last_ms) for member in pending}

    def excuse(self, duration_ms: int, *, now_ms: int) -> None:
        """Let a time not count in which nobody could have been heard."""
        for member, heard_ms in self._heard_ms.items():
            self._heard_ms[member] = min(heard_ms + duration_ms, now_ms)
        for member in self._deadlines_ms:
            self._deadlines_ms[member] += duration_ms

    def silent(self, *, now_ms: int) -> list[MemberId]:
        """Return who was not heard of for a session."""
        since_ms = now_ms - self._group.options.session_timeout_ms
        return [member for member, heard_ms in self._heard_ms.items() if heard_ms <= since_ms]

    def late(self, *, now_ms: int) -> list[MemberId]:
        """Return who did not give up in time what they were to."""
        return [one for one, deadline_ms in self._deadlines_ms.items() if deadline_ms <= now_ms]
