"""A fixed rate: when each message of a load is due, whatever happened to those before it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """So many messages at so many per second."""

    rate_hz: int
    count: int

    def ticks(self) -> Iterator[int]:
        """Yield each message's number when it is due; a late one comes at once."""
        start = time.perf_counter()
        for number in range(self.count):
            wait = self.delay(number, started=start)
            if wait > 0:
                time.sleep(wait)
            yield number

    def due(self, number: int, *, started: float) -> float:
        """Return the clock reading at which a message is due."""
        return started + number / self.rate_hz

    def delay(self, number: int, *, started: float) -> float:
        """Return the seconds left until a message is due; negative when it is late."""
        return self.due(number, started=started) - time.perf_counter()
