"""Which schedules are due by a clock: the wall for times of day, steady time for intervals."""

from heapq import heapify, heappop, heappush
from typing import Final

HEAP_MIN: Final = 64
"""Fewer entries than these are not worth sweeping."""


class Alarms:
    """Names with the time each is to be woken at, by one clock."""

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._at_ms)

    def __repr__(self) -> str:
        return f"<Alarms of {len(self)} schedules>"

    @property
    def next_ms(self) -> int | None:
        """Return when the first is to be woken, or earlier."""
        return self._heap[0][0] if self._heap else None

    def set(self, name: str, at_ms: int) -> None:
        """Wake a schedule at a time, and not at the one it had."""
        self._at_ms[name] = at_ms
        heappush(self._heap, (at_ms, name))
        if len(self._heap) > HEAP_MIN + 2 * len(self._at_ms):
            self._heap = [(at, one) for one, at in self._at_ms.items()]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        """Do not wake a schedule."""
        self._at_ms.pop(name, None)

    def take_due(self, now_ms: int) -> list[str]:
        """Return those whose time has come, and wake them no more."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heappop(self._heap)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                due.append(name)
        return due
