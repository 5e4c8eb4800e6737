"""What happened in a simulation, as one number: equal runs have equal traces."""

from collections import deque
from collections.abc import Callable
from typing import Final
from zlib import crc32

LAST_MAX: Final = 200


class Trace:
    """A running checksum of events, each with its time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sum = 0
        self.count = 0
        self.last: deque[str] = deque(maxlen=LAST_MAX)
        """The latest events, for people."""

    def __repr__(self) -> str:
        return f"<Trace {self.digest} of {self.count} events>"

    @property
    def digest(self) -> str:
        """The checksum of everything so far."""
        return f"{self._sum:08x}"

    def note(self, kind: str, what: object, data: bytes = b"") -> None:
        """Add an event."""
        line = f"{self._now():.9f} {kind} {what}"
        self._sum = crc32(data, crc32(line.encode(), self._sum))
        self.count += 1
        if kind != "net":
            self.last.append(line)
