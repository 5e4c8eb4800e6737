"""One node fetches from another, for all the logs it follows there: the leader's end.

Shape: stepper. The session remembers how far each log was sent, so that two requests under way do
not bring the same messages twice, and what is new since. A request is kept until there are messages
to send; where the follower has as many under way as it may, the first is released, so that it can
always send one. A new high watermark alone releases nothing: it goes along with the next answer, at
the latest when the wait is over. ``session.py`` is the follower's end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from goqueue.base.cluster_limits import REPLICA_PARTS_MAX, REPLICA_SHARE_BYTES_MIN
from goqueue.base.ids import Epoch, Offset
from goqueue.core.replication.replica import FetchAnswer, FetchOutcome, FetchPosition, LogKey
from goqueue.core.replication.session import NOTHING_ANSWERED, SessionAnswer, SessionRequest
from goqueue.core.replication.throttle import TokenBucket


class FedLog(Protocol):
    """A log that this node leads, as one follower sees it."""

    @property
    def epoch(self) -> Epoch:
        """The epoch it is led in."""
        ...

    @property
    def start_offset(self) -> Offset:
        """The offset of the first message that retention has left."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Behind the last message, synced or not."""
        ...

    @property
    def is_throttled(self) -> bool:
        """Whether the follower only catches up."""
        ...

    def last_epoch(self, offset: Offset) -> Epoch:
        """Return the epoch of the message before an offset."""
        ...

    def answer(self, *, offset: Offset, last_epoch: Epoch, end_offset: Offset) -> FetchAnswer:
        """Return what to say with a range of messages, or that it is not there any more."""
        ...


class Feeder(Protocol):
    """The logs of this node, as one follower may fetch them."""

    def judge(self, key: LogKey, position: FetchPosition) -> FetchAnswer | None:
        """Take a position, or return what to say instead of messages."""
        ...

    def find(self, key: LogKey) -> FedLog | None:
        """Return a log, None if this node does not lead it any more."""
        ...


class RequestFate(Enum):
    """What becomes of a request."""

    TAKEN = "taken"
    REPEATED = "repeated"
    """It came before; whatever it is answered with, it is answered once."""
    UNKNOWN = "unknown"
    """It belongs to no session here; the answer says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedShare:
    """Messages of one log to be read for an answer: at least one frame, if there is one."""

    key: LogKey
    offset: Offset
    bytes_max: int
    is_granted: bool = False
    """Whether a throttle has granted the bytes: what was really sent is accounted for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPlan:
    """What an answer will be made of."""

    sequence: int
    shares: tuple[FeedShare, ...]
    said: tuple[tuple[LogKey, FetchAnswer], ...]
    """What is said without messages."""


@dataclass(slots=True)
class _FedPart:
    """What the leader's end remembers of one log."""

    epoch: Epoch
    next_offset: Offset
    last_epoch: Epoch
    sent_in: int = NOTHING_ANSWERED


@dataclass(frozen=True, slots=True)
class _Parked:
    sequence: int
    bytes_max: int
    until_ms: int
    requests_max: int


class FeedSession:
    """The leader's end of one session, for one follower node."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._expected = 0
        self._parts: dict[LogKey, _FedPart] = {}
        self._messages: dict[LogKey, None] = {}
        """Logs with messages to send, those that waited longest first."""
        self._catching_up: dict[LogKey, None] = {}
        """Of these, the ones that the throttle holds up."""
        self._changed: dict[LogKey, None] = {}
        """Logs whose high watermark or start has moved."""
        self._refusals: dict[LogKey, FetchAnswer] = {}
        self._parked: dict[int, _Parked] = {}

    def __repr__(self) -> str:
        return (
            f"<FeedSession {self.number}: {len(self._parts)} logs, {len(self._messages)} with"
            f" messages, {len(self._parked)} requests kept>"
        )

    # Requests.

    def take(self, request: SessionRequest, feeder: Feeder, *, now_ms: int) -> RequestFate:
        """Take a request; one that is taken waits here for its answer."""
        if request.session != self.number or request.sequence > self._expected:
            return RequestFate.UNKNOWN
        if request.sequence < self._expected:
            return RequestFate.REPEATED
        self._expected += 1
        for key in request.forgotten:
            self._drop(key)
        for key, position in request.parts:
            self._place(key, position, feeder, answered=request.answered)
        self._parked[request.sequence] = _Parked(
            request.sequence, request.bytes_max, now_ms + request.wait_ms, request.requests_max
        )
        return RequestFate.TAKEN

    def _place(
        self, key: LogKey, position: FetchPosition, feeder: Feeder, *, answered: int
    ) -> None:
        refusal = feeder.judge(key, position)
        if refusal is not None:
            self._drop(key)
            self._refusals[key] = refusal
            return
        self._refusals.pop(key, None)
        part = self._parts.get(key)
        # What is on its way to the follower is not sent again; once it has seen the answer, what
        # it asks for is what it gets.
        if part is None or part.epoch != position.epoch or part.sent_in <= answered:
            self._parts[key] = _FedPart(position.epoch, position.offset, position.last_epoch)
            self._changed[key] = None
        log = feeder.find(key)
        if log is not None and self._parts[key].next_offset < log.end_offset:
            self._messages[key] = None

    def _drop(self, key: LogKey) -> None:
        self._parts.pop(key, None)
        self._messages.pop(key, None)
        self._catching_up.pop(key, None)
        self._changed.pop(key, None)
        self._refusals.pop(key, None)

    def refuse(self, key: LogKey, refusal: FetchAnswer) -> None:
        """Say something else of a log, of which there is nothing to send at present."""
        self._drop(key)
        self._refusals[key] = refusal

    # News.

    def appended(self, key: LogKey) -> None:
        """Take note that a log has more messages."""
        if key in self._parts and key not in self._catching_up:
            self._messages[key] = None

    def moved(self, key: LogKey) -> None:
        """Take note that the high watermark or the start of a log has moved."""
        if key in self._parts:
            self._changed[key] = None

    # Answers.

    def is_due(self, *, now_ms: int, throttle: TokenBucket | None = None) -> bool:
        """Return True if the oldest request is to be answered now."""
        if not self._parked:
            return False
        oldest = next(iter(self._parked.values()))
        return (
            len(self._parked) >= oldest.requests_max
            or bool(self._messages or self._refusals)
            or now_ms >= oldest.until_ms
            or self._is_throttle_open(throttle, now_ms)
        )

    def due_ms(self, *, now_ms: int, throttle: TokenBucket | None = None) -> int | None:
        """Return when time alone makes an answer due, None if no request waits."""
        if not self._parked:
            return None
        until_ms = next(iter(self._parked.values())).until_ms
        if self._catching_up and throttle is not None:
            until_ms = min(until_ms, throttle.ready_ms(now_ms=now_ms))
        return until_ms

    def _is_throttle_open(self, throttle: TokenBucket | None, now_ms: int) -> bool:
        if not self._catching_up:
            return False
        return throttle is None or throttle.ready_ms(now_ms=now_ms) <= now_ms

    def plan(
        self, feeder: Feeder, *, now_ms: int, throttle: TokenBucket | None = None
    ) -> FeedPlan | None:
        """Choose what to say to the oldest request; ``finish`` makes the answer of it.

        The bytes are shared out evenly, and the logs take turns where there are too many.
        """
        if not self._parked:
            return None
        parked = self._parked.pop(next(iter(self._parked)))
        if self._is_throttle_open(throttle, now_ms):
            self._messages |= self._catching_up
            self._catching_up.clear()
        said = self._take_refusals()
        shares: list[FeedShare] = []
        left = parked.bytes_max
        room = REPLICA_PARTS_MAX - len(said)
        for key in list(self._messages):
            if left <= 0 or len(shares) >= room:
                break
            fair = max(parked.bytes_max // len(self._messages), REPLICA_SHARE_BYTES_MIN)
            if self._is_out_of_range(key, feeder):
                self._say(said, key, feeder, end_offset=self._parts[key].next_offset, sequence=-1)
                continue
            share = self._share(key, feeder, min(fair, left), now_ms=now_ms, throttle=throttle)
            if share is not None:
                shares.append(share)
                left -= share.bytes_max
        # Those that got nothing are first the next time.
        for share in shares:
            self._messages.pop(share.key, None)
        return FeedPlan(sequence=parked.sequence, shares=tuple(shares), said=tuple(said))

    def _take_refusals(self) -> list[tuple[LogKey, FetchAnswer]]:
        said = list(self._refusals.items())[:REPLICA_PARTS_MAX]
        for key, _ in said:
            del self._refusals[key]
        return said

    def _is_out_of_range(self, key: LogKey, feeder: Feeder) -> bool:
        """Return True if retention has passed what the follower would get next."""
        log = feeder.find(key)
        return log is not None and self._parts[key].next_offset < log.start_offset

    def _share(
        self,
        key: LogKey,
        feeder: Feeder,
        bytes_max: int,
        *,
        now_ms: int,
        throttle: TokenBucket | None,
    ) -> FeedShare | None:
        part, log = self._parts[key], feeder.find(key)
        if log is None or log.epoch != part.epoch:
            self._drop(key)
            return None
        if part.next_offset >= log.end_offset:
            del self._messages[key]
            return None
        is_granted = log.is_throttled and throttle is not None
        if is_granted and throttle is not None:
            bytes_max = throttle.take(bytes_max, now_ms=now_ms)
            if bytes_max == 0:
                del self._messages[key]
                self._catching_up[key] = None
                return None
        return FeedShare(
            key=key, offset=part.next_offset, bytes_max=bytes_max, is_granted=is_granted
        )

    def finish(
        self, plan: FeedPlan, read: Mapping[LogKey, Offset], feeder: Feeder
    ) -> SessionAnswer:
        """Make the answer, now that it is known up to where each share was read."""
        parts = list(plan.said)
        for share in plan.shares:
            end_offset = read.get(share.key, share.offset)
            part = self._parts.get(share.key)
            if part is None or part.next_offset != share.offset:
                continue
            self._say(parts, share.key, feeder, end_offset=end_offset, sequence=plan.sequence)
        for key in list(self._changed):
            if len(parts) >= REPLICA_PARTS_MAX:
                break
            offset = self._parts[key].next_offset
            self._say(parts, key, feeder, end_offset=offset, sequence=plan.sequence)
        return SessionAnswer(session=self.number, sequence=plan.sequence, parts=tuple(parts))

    def _say(
        self,
        parts: list[tuple[LogKey, FetchAnswer]],
        key: LogKey,
        feeder: Feeder,
        *,
        end_offset: Offset,
        sequence: int,
    ) -> None:
        part, log = self._parts[key], feeder.find(key)
        if log is None or log.epoch != part.epoch:
            self._drop(key)
            return
        offset, last_epoch = part.next_offset, part.last_epoch
        said = log.answer(offset=offset, last_epoch=last_epoch, end_offset=end_offset)
        parts.append((key, said))
        if said.outcome is not FetchOutcome.OK:
            # The follower says where it goes on.
            self._drop(key)
            return
        self._changed.pop(key, None)
        if end_offset > offset:
            last = log.last_epoch(end_offset)
            part.next_offset, part.last_epoch, part.sent_in = end_offset, last, sequence
        if end_offset < log.end_offset:
            self._messages[key] = None


def unknown_session(request: SessionRequest) -> SessionAnswer:
    """Return what to say to a request of a session that is not known."""
    return SessionAnswer(session=request.session, sequence=request.sequence, is_known=False)
