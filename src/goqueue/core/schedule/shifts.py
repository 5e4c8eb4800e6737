"""How far the wall clock was set from the time that really passed, and when.

Shape: stepper. *Steady* time is what the wall clock would show if nobody had set it since the
process started; the *shift* is the wall clock minus steady time. A wall clock that is set forward
has a positive shift from then on, one that is set back a negative one.

What expires has a time of the wall, written under whatever shift was in force then. It is too old
for certain when it is so by the lowest shift of its whole window: anything written earlier than
that has really waited longer than the window.
"""

from bisect import bisect_left
from typing import Final

_CHANGES_MAX: Final = 64
"""Changes remembered. The oldest two become one, with the lower shift: late beats early."""
_ALWAYS: Final = -(1 << 62)


class Shifts:
    """The shift of the wall clock over steady time, beginning with none."""

    def __init__(self) -> None:
        self._since_ms = [_ALWAYS]
        self._shifts_ms = [0]

    def __repr__(self) -> str:
        return f"<Shifts: {self.last_ms} ms now, {len(self._shifts_ms) - 1} changes>"

    @property
    def last_ms(self) -> int:
        """Return the shift in force."""
        return self._shifts_ms[-1]

    def note(self, shift_ms: int, *, steady_ms: int) -> None:
        """Take a shift that is in force from now on."""
        if shift_ms == self.last_ms:
            return
        self._since_ms.append(steady_ms)
        self._shifts_ms.append(shift_ms)
        if len(self._shifts_ms) > _CHANGES_MAX:
            del self._since_ms[1]
            self._shifts_ms[:2] = [min(self._shifts_ms[:2])]

    def lowest_ms(self, *, since_ms: int) -> int:
        """Return the lowest shift that was in force at any moment since then."""
        first = max(bisect_left(self._since_ms, since_ms) - 1, 0)
        return min(self._shifts_ms[first:])
