"""Who hears of a change of a ledger: those who wait for messages, or for room for them."""

from collections.abc import Callable, Iterable
from typing import Final

from goqueue.core.delivery import events
from goqueue.runtime.machine import Waiters

FREEING: Final = frozenset(
    {events.Returned, events.Spared, events.HoldEnded, events.Reset, events.Restored}
)
"""Events that may have made messages ready for somebody who waits."""
FREEING_BY_KEY: Final = FREEING | {events.Acked, events.Dropped, events.Moved, events.Held}
"""The same where the next message of a key waits for the one before."""
COUNTED: Final = frozenset({events.Doomed, events.Returned})


class MemberRooms:
    """Those who wait until a member holds fewer messages."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[str, str], Waiters] = {}

    def __repr__(self) -> str:
        return f"<MemberRooms: {len(self._rooms)}>"

    def __bool__(self) -> bool:
        return bool(self._rooms)

    def listen(self, group: str, member: str, listener: Callable[[], None]) -> None:
        """Call somebody whenever a member holds fewer messages."""
        self._rooms.setdefault((group, member), Waiters()).listen(listener)

    def unlisten(self, group: str, member: str, listener: Callable[[], None]) -> None:
        """Stop calling."""
        waiting = self._rooms.get((group, member))
        if waiting is not None:
            waiting.unlisten(listener)
            if not waiting:
                del self._rooms[(group, member)]

    def wake(self, group: str, members: Iterable[str]) -> None:
        """Call those who wait for some members."""
        for member in sorted(members):
            waiting = self._rooms.get((group, member))
            if waiting is not None:
                waiting.wake()
