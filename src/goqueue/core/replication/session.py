"""One node fetches from another, for all the logs it follows there: the follower's end.

Shape: stepper. A session is numbered by the follower, and its requests by a sequence from 0. A
request names the logs whose position is not what the leader expects; the leader keeps it until it
has messages, and answers with the logs that have some (KIP-227). Several requests may be under way:
each report of a sync is one, and waits for messages like any other, so that messages cost one
request and one answer. ``feed.py`` is the leader's end.

Whatever is lost, repeated or out of order ends the session; the next one names every log again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from goqueue.base.cluster_limits import REPLICA_PARTS_MAX, REPLICA_WAIT_MS
from goqueue.base.limits import FETCH_BYTES_MAX
from goqueue.base.units import SECOND_MS
from goqueue.core.replication.replica import FetchAnswer, FetchOutcome, FetchPosition, LogKey

REQUESTS_MAX: Final = 8
"""Requests of one session under way; the leader answers one at once where there are as many."""

ANSWER_TIMEOUT_MS: Final = 5 * SECOND_MS
"""A request that is not answered so long after its wait is lost, and the session with it."""

REFUSED_RETRY_MS: Final = 50
"""Pause before asking again at a node that does not lead a log, or know this node, yet."""

NOTHING_ANSWERED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """Ask for news. ``answered`` is the last request whose answer was taken when this was sent."""

    session: int
    sequence: int
    answered: int
    parts: tuple[tuple[LogKey, FetchPosition], ...]
    forgotten: tuple[LogKey, ...] = ()
    bytes_max: int = FETCH_BYTES_MAX
    wait_ms: int = REPLICA_WAIT_MS
    requests_max: int = REQUESTS_MAX
    """How many requests the follower lets be under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAnswer:
    """The news of some logs; ``is_known`` is False if the session has to be begun again."""

    session: int
    sequence: int
    parts: tuple[tuple[LogKey, FetchAnswer], ...] = ()
    is_known: bool = True


class FetchSession:
    """The follower's end of the sessions with one leader node.

    Numbers must grow over restarts of this process too: they begin at ``number``.
    """

    def __init__(
        self, *, number: int, bytes_max: int = FETCH_BYTES_MAX, wait_ms: int = REPLICA_WAIT_MS
    ) -> None:
        self._number = number
        self._bytes_max = bytes_max
        self._wait_ms = wait_ms
        self._sequence = 0
        self._answered = NOTHING_ANSWERED
        self._logs: dict[LogKey, FetchPosition | None] = {}
        """Where the leader takes each log to be: as last said, or behind the messages it sent."""
        self._changed: dict[LogKey, None] = {}
        self._forgotten: dict[LogKey, None] = {}
        self._refused: dict[LogKey, int] = {}
        """When to ask again for logs that were refused."""
        self._pause_until_ms = 0
        """The other end did not know the session: it may be about to learn of this node."""
        self._under_way: dict[int, int] = {}
        """Until when the answer to each request is waited for."""

    def __repr__(self) -> str:
        return (
            f"<FetchSession {self._number}: {len(self._logs)} logs, {len(self._changed)} changed,"
            f" {len(self._under_way)} requests under way>"
        )

    @property
    def number(self) -> int:
        """The number of the session that is under way."""
        return self._number

    @property
    def logs(self) -> Iterable[LogKey]:
        """The logs that are fetched here."""
        return self._logs.keys()

    def add(self, key: LogKey) -> None:
        """Fetch a log, or ask for it again because its epoch has changed."""
        self._logs[key] = None
        self._forgotten.pop(key, None)
        self._refused.pop(key, None)
        self._changed[key] = None

    def forget(self, key: LogKey) -> None:
        """Fetch a log no more."""
        if key in self._logs:
            del self._logs[key]
            self._changed.pop(key, None)
            self._refused.pop(key, None)
            self._forgotten[key] = None

    def touch(self, key: LogKey) -> None:
        """Take note that the position of a log has changed: written, synced or cut."""
        if key in self._logs and key not in self._refused:
            self._changed[key] = None

    def hold(self, key: LogKey, *, until_ms: int) -> None:
        """Ask for a log no sooner than at a time: what came of it could not be written."""
        if key in self._logs:
            self._changed.pop(key, None)
            self._refused[key] = until_ms

    def pause(self, *, until_ms: int) -> None:
        """Ask for nothing before a time: the other end cannot be reached."""
        self._pause_until_ms = max(self._pause_until_ms, until_ms)

    def due_ms(self, *, now_ms: int) -> int | None:
        """Return when ``tick`` has something to do, or a request is to be sent again."""
        times = [*self._refused.values(), *self._under_way.values()]
        if self._pause_until_ms > now_ms:
            times.append(self._pause_until_ms)
        return min(times, default=None)

    def reset(self) -> None:
        """Begin a new session: the connection was lost, or one end does not know the other."""
        self._number += 1
        self._sequence = 0
        self._answered = NOTHING_ANSWERED
        self._under_way.clear()
        self._forgotten.clear()
        self._refused.clear()
        self._logs = dict.fromkeys(self._logs)
        self._changed = dict.fromkeys(self._logs)

    def tick(self, *, now_ms: int) -> None:
        """Give up what was not answered in time, and ask again for what was refused."""
        if any(until_ms <= now_ms for until_ms in self._under_way.values()):
            self.reset()
        for key in [key for key, due_ms in self._refused.items() if due_ms <= now_ms]:
            del self._refused[key]
            self._logs[key] = None
            self._changed[key] = None

    def next_request(
        self, position_of: Callable[[LogKey], FetchPosition], *, now_ms: int
    ) -> SessionRequest | None:
        """Return the request to send now: one always waits, a second one reports what changed."""
        if not self._logs and not self._forgotten:
            return None
        if len(self._under_way) >= REQUESTS_MAX or now_ms < self._pause_until_ms:
            return None
        parts = self._take_changed(position_of)
        if self._under_way and not parts and not self._forgotten:
            return None
        forgotten = tuple(self._forgotten)[:REPLICA_PARTS_MAX]
        for key in forgotten:
            del self._forgotten[key]
        request = SessionRequest(
            session=self._number,
            sequence=self._sequence,
            answered=self._answered,
            parts=parts,
            forgotten=forgotten,
            bytes_max=self._bytes_max,
            wait_ms=self._wait_ms,
        )
        self._under_way[self._sequence] = now_ms + self._wait_ms + ANSWER_TIMEOUT_MS
        self._sequence += 1
        return request

    def _take_changed(
        self, position_of: Callable[[LogKey], FetchPosition]
    ) -> tuple[tuple[LogKey, FetchPosition], ...]:
        parts: list[tuple[LogKey, FetchPosition]] = []
        for key in list(self._changed):
            if len(parts) == REPLICA_PARTS_MAX:
                break
            del self._changed[key]
            position = position_of(key)
            if position != self._logs[key]:
                self._logs[key] = position
                parts.append((key, position))
        return tuple(parts)

    def take(self, answer: SessionAnswer, *, now_ms: int) -> tuple[tuple[LogKey, FetchAnswer], ...]:
        """Take an answer; return what it says of logs that are still fetched here."""
        if answer.session != self._number or answer.sequence not in self._under_way:
            return ()
        if not answer.is_known:
            self.reset()
            self._pause_until_ms = now_ms + REFUSED_RETRY_MS
            return ()
        del self._under_way[answer.sequence]
        self._answered = max(self._answered, answer.sequence)
        news = tuple((key, part) for key, part in answer.parts if key in self._logs)
        for key, part in news:
            if part.outcome in (FetchOutcome.FENCED, FetchOutcome.UNKNOWN):
                self._changed.pop(key, None)
                self._refused[key] = now_ms + REFUSED_RETRY_MS
            elif part.outcome is not FetchOutcome.OK or part.end_offset > part.offset:
                # Also where nothing comes of it: then the position is not what the leader expects.
                self._logs[key] = _expected(self._logs[key], part)
                self.touch(key)
        return news


def _expected(said: FetchPosition | None, part: FetchAnswer) -> FetchPosition | None:
    """Return where the leader takes a log to be behind the messages it sent, None if in doubt.

    Messages that do not follow what was said of the log came out of order, or behind others.
    """
    if said is None or part.outcome is not FetchOutcome.OK or not part.epochs:
        return None
    if (part.offset, part.last_epoch, part.epoch) != (said.offset, said.last_epoch, said.epoch):
        return None
    return replace(said, offset=part.end_offset, last_epoch=part.epochs[-1].epoch)
