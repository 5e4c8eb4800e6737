"""Messages that could not be published, and that nobody has asked about yet.

Whoever flushes or closes a producer is told of them. Not those who asked for the outcome of a
message themselves: they know of that one.
"""

import threading

from goqueue.base.errors import GoQueueError


class Untold:
    """Counts failed messages until somebody has heard of them. Any thread."""

    def __init__(self) -> None:
        # Guards both: outcomes come in the loop, and are asked for in any thread.
        self._guard = threading.Lock()
        self._count = 0
        self._first: GoQueueError | None = None
        self._checks = 0

    def __repr__(self) -> str:
        return f"<Untold: {self._count} messages>"

    def add(self, error: GoQueueError, count: int) -> int:
        """Take note of failed messages; return the round that ``tell`` wants for each of them."""
        with self._guard:
            if count:
                self._first = self._first or error
            self._count += count
            return self._checks

    def tell(self, number: int) -> None:
        """Take note that somebody has heard of one, unless a check has told of it before."""
        with self._guard:
            if number == self._checks:
                self._count -= 1

    def check(self) -> None:
        """Raise if messages failed that nobody has heard of; they are told by this."""
        with self._guard:
            count, first = self._count, self._first
            self._count, self._first = 0, None
            self._checks += 1
        if count > 0 and first is not None:
            raise type(first)(f"{count} messages were not published; the first: {first.message}")
