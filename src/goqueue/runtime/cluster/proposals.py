"""Proposals that wait until their entry, or another one at its index, is applied."""

import asyncio
from typing import Final

from goqueue.base.errors import DeadlineExceededError, GoQueueError, NotLeaderError
from goqueue.core.raft.messages import Entry
from goqueue.runtime.cluster.consensus import Outcome

_LOST: Final = "another leader's entry took the place of this proposal"
_UNKNOWN: Final = "a snapshot passed the proposal: it may have been applied before or not"


class Proposals:
    """Futures by index and term. The term tells an entry from one that took its place."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, asyncio.Future[Outcome]]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, term: int) -> asyncio.Future[Outcome]:
        """Return a future for the entry that was just appended."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(index, []).append((term, future))
        return future

    def applied(self, entry: Entry, result: object) -> None:
        """Answer who waits for an index."""
        for term, future in self._waiting.pop(entry.index, ()):
            if future.done():
                continue
            if term == entry.term:
                future.set_result(Outcome(index=entry.index, result=result))
            else:
                future.set_exception(NotLeaderError(_LOST))

    def passed(self, index: int) -> None:
        """End the waits that a snapshot made pointless."""
        for one in [one for one in self._waiting if one <= index]:
            self._fail(one, DeadlineExceededError(_UNKNOWN))

    def end(self, error: GoQueueError) -> None:
        """End all waits. Their entries may still be applied on other nodes."""
        for one in list(self._waiting):
            self._fail(one, error)

    def _fail(self, index: int, error: GoQueueError) -> None:
        for _, future in self._waiting.pop(index):
            if not future.done():
                future.set_exception(error)
