"""What a producer sends next: batches in order, retried safely, placed when acked. No I/O.

Every producer has an outbox; a shell (an event loop, a thread) asks it for the next ``step``,
performs that and reports back. Several requests are under way at once. When one fails in a way that
may pass, sending stops until all are answered; then what is not placed is sent again, one request
after the other, in order and with the same sequence numbers, so the broker recognises what it
already has. Batches are numbered anew (in a new epoch) only when the broker has said of each that
it is not there: before that, a new number could make a second copy.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    NotCoordinatorError,
    NotLeaderError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProtocolError,
    ShuttingDownError,
    UnknownProducerError,
    from_code,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.client.protocol.exchange import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Answer,
    decode,
)
from goqueue.client.protocol.outcome import Outcome, Packed, Part
from goqueue.core.record.stamp import ProducerStamp
from goqueue.wire import calls
from goqueue.wire.complaint import HEADER_FAULTS
from goqueue.wire.packet import Buffer

_decode_produced: Final = msgspec.msgpack.Decoder(calls.Produced).decode

ANSWER_SECONDS_MAX: Final = 30.0
"""A connection on which a request stays unanswered for longer is given up for another."""

UNANSWERED: Final = (ConnectionLostError, DeadlineExceededError)
"""After these nobody knows whether the broker has the batch."""

IN_DOUBT: Final = (*UNANSWERED, NotCoordinatorError, NotLeaderError, ShuttingDownError)
"""After these the broker may have the batch: it may have taken it before it stopped or moved."""

NOT_THERE: Final = (OutOfOrderSequenceError, UnknownProducerError)
"""With these the broker says that it does not have the batch."""


class Owner(Protocol):
    """Whose messages a batch has."""

    @property
    def topic(self) -> str:
        """Where they go."""
        ...

    def settle(self, outcome: Outcome) -> bool:
        """Take the outcome of one batch; return True when it was the last."""
        ...


OwnerType = TypeVar("OwnerType", bound=Owner)


class Batch(Generic[OwnerType]):
    """Messages for one partition, from their owner to their place."""

    __slots__ = ("deadline", "is_unsure", "number", "owner", "part", "sequence")

    def __init__(self, owner: OwnerType, part: Part, *, number: int, deadline: float) -> None:
        self.number = number
        self.owner = owner
        self.part = part
        self.deadline = deadline
        self.sequence: int | None = None
        # Sent, but no answer came: the broker may have it.
        self.is_unsure = False


class Pause(NamedTuple):
    """There is nothing to do before a time, unless something happens."""

    until: float


Step = list[Batch[OwnerType]] | calls.InitProducer | Pause | None
"""Batches to send in one request, an identity to ask for, a time to wait for; or nothing."""


class Outbox(Generic[OwnerType]):
    """The batches of one producer, and who it is. Times are those of one steady clock."""

    backoff_s_max = BACKOFF_SECONDS_MAX
    """The longest pause between two tries."""

    def __init__(
        self, *, acks: str, in_flight_max: int, on_settled: Callable[[OwnerType], None]
    ) -> None:
        self._acks = acks
        self._in_flight_max = in_flight_max
        self._on_settled = on_settled
        self.on_change: Callable[[], None] = lambda: None
        """Called when a batch was placed or failed."""
        self._unsettled: dict[Batch[OwnerType], None] = {}
        self._queue: deque[list[Batch[OwnerType]]] = deque()
        self._in_flight: dict[int, list[Batch[OwnerType]]] = {}
        self._unplaced: list[list[Batch[OwnerType]]] = []
        self._replay: deque[list[Batch[OwnerType]]] | None = None
        """What is still to be sent in this round of sending again."""
        self._sequences: dict[tuple[str, int], int] = {}
        self._identity: calls.ProducerIdentity | None = None
        self._needs_new_life = False
        self._trouble = ""
        self._is_recovering = False
        self._is_introducing = False
        self._resume_at: float | None = None
        self._backoff_s = BACKOFF_SECONDS
        self.fatal: GoQueueError | None = None
        """Why nothing more is sent."""

    def __repr__(self) -> str:
        return f"<Outbox: {len(self._queue)} queued, {len(self._in_flight)} under way>"

    @property
    def has_slot(self) -> bool:
        """Return True if a request could go out at once."""
        is_free = len(self._in_flight) < self._in_flight_max and not self._queue
        return is_free and not self._is_recovering

    @property
    def is_idle(self) -> bool:
        """Return True if every batch is placed or failed."""
        return not self._unsettled

    @property
    def deadline(self) -> float:
        """Return when the last of the batches must be placed."""
        return max(batch.deadline for batch in self._unsettled)

    def submit(self, batches: list[Batch[OwnerType]]) -> None:
        """Queue batches of one topic; they go out in one request."""
        self._unsettled.update(dict.fromkeys(batches))
        self._queue.append(batches)

    def abort(self, reason: GoQueueError | None = None) -> None:
        """Fail everything that is not placed, and all that may follow."""
        self.fatal = (
            self.fatal or reason or ClosedError("the producer was closed before this was sent")
        )
        self.forget(self.fatal)

    def forget(self, reason: GoQueueError) -> None:
        """Fail everything that is not placed; its numbers may be taken or not."""
        self._needs_new_life = self._needs_new_life or bool(self._unsettled)
        self._unplaced, self._queue, self._replay = [], deque(), None
        self._in_flight.clear()
        self._is_recovering = self._is_introducing = False
        self._resume_at = None
        for batch in list(self._unsettled):
            self._fail(batch, reason)

    # What to do next.

    def step(self, now: float) -> Step[OwnerType]:
        """Return what to send, or when to ask again; None until something happens."""
        if self.fatal is not None:
            self._fail_waiting(self.fatal)
            return None
        if not self._is_recovering:
            if not self._unplaced and not (self._queue and self._must_renew):
                if self._queue and len(self._in_flight) < self._in_flight_max:
                    return self._sent(self._queue.popleft())
                return None
            self._is_recovering = True
            self._backoff_s = BACKOFF_SECONDS
        return self._recover(now)

    def _sent(self, batches: list[Batch[OwnerType]]) -> list[Batch[OwnerType]]:
        # Numbered now: of requests to several nodes, a later one may leave first.
        for batch in batches:
            if batch.sequence is None:
                place = batch.owner.topic, batch.part.partition
                batch.sequence = self._sequences.get(place, 0)
                self._sequences[place] = batch.sequence + batch.part.packed.rows
        self._in_flight[batches[0].number] = batches
        return batches

    def _recover(self, now: float) -> Step[OwnerType]:
        """With nothing else under way, send what is not placed, in order, until it is."""
        if self._in_flight or self._is_introducing:
            return None
        if self._resume_at is not None and (self._unplaced or self._queue):
            if now < self._resume_at:
                return Pause(self._resume_at)
            self._resume_at = None
            self.expire(now)
        while self._replay is not None or self._unplaced or (self._queue and self._must_renew):
            if self._replay is None and self._must_renew:
                return self._introduce()
            if group := self._next_again():
                return self._sent(group)
            if self._unplaced and not self._must_renew:
                return self._pause(now)
        self._is_recovering, self._resume_at = False, None
        return self.step(now)

    def _next_again(self) -> list[Batch[OwnerType]]:
        """Return what is to be sent again next in this round, or nothing: it is over then."""
        if self._replay is None:
            # As they first went out.
            self._replay = deque(sorted(self._unplaced, key=lambda group: group[0].number))
            self._unplaced = []
        while self._replay:
            group = self._worth_sending(self._replay.popleft())
            if group:
                return group
        self._replay = None
        return []

    def _worth_sending(self, group: list[Batch[OwnerType]]) -> list[Batch[OwnerType]]:
        """Return those to send with their numbers; the others wait for new ones."""
        if not self._needs_new_life:
            return group
        refused = [batch for batch in group if not batch.is_unsure]
        self._unplaced += [refused] if refused else []
        return [batch for batch in group if batch.is_unsure]

    def _introduce(self) -> calls.InitProducer:
        self._is_introducing = True
        old = self._identity or calls.ProducerIdentity(0, 0)
        return calls.InitProducer(old.producer_id, old.epoch)

    def _pause(self, now: float) -> Pause:
        self._resume_at = now + self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, self.backoff_s_max)
        return Pause(self._resume_at)

    @property
    def _must_renew(self) -> bool:
        """Return True if the next batch needs an identity the broker has still to give."""
        if self._identity is None:
            return True
        return self._needs_new_life and not any(
            batch.is_unsure for group in self._unplaced for batch in group
        )

    # What a request says.

    @staticmethod
    def seconds_left(batches: Sequence[Batch[OwnerType]], now: float) -> float:
        """Return how long an answer may be waited for."""
        return min(max(batch.deadline for batch in batches) - now, ANSWER_SECONDS_MAX)

    def node_of(self, batches: Sequence[Batch[OwnerType]]) -> str:
        """Return no address: there is one broker."""
        del batches
        return ""

    def content(
        self, batches: Sequence[Batch[OwnerType]]
    ) -> tuple[calls.Produce, Sequence[Buffer]]:
        """Return the header and the payload of a request."""
        parts, payload = self.packed(batches)
        return self.header_of(batches, parts), payload

    def packed(
        self, batches: Sequence[Batch[OwnerType]]
    ) -> tuple[list[calls.ProducePart], list[Buffer]]:
        """Return batches as they travel, stamped."""
        parts: list[calls.ProducePart] = []
        payload: list[Buffer] = []
        for batch in batches:
            frames = self._frames(batch.part.packed, self._stamp(batch))
            parts.append(calls.ProducePart(batch.part.partition, sum(map(len, frames))))
            payload += frames
        return parts, payload

    def _frames(self, packed: Packed, stamp: ProducerStamp) -> Sequence[Buffer]:
        return (packed.frame(stamp),)

    def header_of(
        self, batches: Sequence[Batch[OwnerType]], parts: list[calls.ProducePart]
    ) -> calls.Produce:
        """Return the header of a request."""
        return calls.Produce(batches[0].owner.topic, self._acks, parts)

    def _stamp(self, batch: Batch[OwnerType]) -> ProducerStamp:
        assert self._identity is not None, "identified before sending"
        assert batch.sequence is not None, "numbered in the order of its partition"
        return ProducerStamp(
            ProducerId(self._identity.producer_id),
            Epoch(self._identity.epoch),
            SequenceNumber(batch.sequence),
        )

    # What came back.

    def answered(self, batches: Sequence[Batch[OwnerType]], answer: Answer, now: float) -> None:
        """Take the reply to a request."""
        try:
            produced = produced_of(answer, len(batches))
        except ProtocolError as error:
            self.failed(batches, error, now)
            return
        self.took(batches, produced, now)

    def took(
        self, batches: Sequence[Batch[OwnerType]], produced: calls.Produced, now: float
    ) -> None:
        """Take what the broker said of each batch of a request."""
        self._in_flight.pop(batches[0].number, None)
        self._settle_all(batches, produced, now)
        self._after_reply(now, is_answered=True)

    def failed(self, batches: Sequence[Batch[OwnerType]], error: GoQueueError, now: float) -> None:
        """Take note that a request was refused, or that no answer came."""
        self._in_flight.pop(batches[0].number, None)
        self._sort_out(batches, [error] * len(batches), now)
        self._after_reply(now, is_answered=not isinstance(error, UNANSWERED))

    def _after_reply(self, now: float, *, is_answered: bool) -> None:
        """End a round of sending again that did not place something."""
        is_refused = bool(self._unplaced) and not self._needs_new_life
        if self._replay is not None and (is_refused or not is_answered):
            self._unplaced += self._replay
            self._replay = None
            self._pause(now)

    def introduced(self, answer: Answer, now: float) -> None:
        """Take the identity that was asked for."""
        try:
            identity = decode(answer.header, calls.ProducerIdentity)
        except ProtocolError as error:
            self.not_introduced(error, now)
            return
        self.become(identity)

    def become(self, identity: calls.ProducerIdentity) -> None:
        """Use an identity that the broker has given for what is not sent, or not there."""
        self._is_introducing = False
        self._identity = identity
        self._needs_new_life = False
        self._sequences.clear()
        for group in self._unplaced:
            for batch in group:
                batch.sequence = None

    def not_introduced(self, error: GoQueueError, now: float) -> None:
        """Take note that there is no identity yet."""
        self._is_introducing = False
        self._trouble = f": {error.message}"
        if not error.retryable:
            if self._identity is None:
                self.abort(error)
                return
            # Another data directory, the last epoch, or an answer that was lost: begin anew.
            self._identity = None
        self._pause(now)

    def expire(self, now: float) -> None:
        """Fail what waits and is past its deadline."""
        for group in [*self._unplaced, *self._queue]:
            for batch in [batch for batch in group if now >= batch.deadline]:
                group.remove(batch)
                self._give_up(batch, self._too_late(batch))
        self._unplaced = [group for group in self._unplaced if group]
        self._queue = deque(group for group in self._queue if group)

    def _settle_all(
        self, batches: Sequence[Batch[OwnerType]], produced: calls.Produced, now: float
    ) -> None:
        errors: list[GoQueueError | None] = []
        has_failed = False
        for batch, part in zip(batches, produced.parts, strict=True):
            if part.failure is None:
                self._place(batch, part, produced)
                errors.append(None)
            else:
                has_failed = True
                errors.append(from_code(part.failure.code, part.failure.message))
        if has_failed:
            self._sort_out(batches, errors, now)

    def _sort_out(
        self,
        batches: Sequence[Batch[OwnerType]],
        errors: Sequence[GoQueueError | None],
        now: float,
    ) -> None:
        again: list[Batch[OwnerType]] = []
        for batch, error in zip(batches, errors, strict=True):
            if error is None:
                continue
            if isinstance(error, (*IN_DOUBT, *NOT_THERE)):
                batch.is_unsure = isinstance(error, IN_DOUBT)
            if isinstance(error, ProducerFencedError):
                self.fatal = error
            if not self._may_try_again(batch, error):
                self._give_up(batch, error)
                continue
            self._trouble = f": {error.message}"
            if now >= batch.deadline:
                self._give_up(batch, self._too_late(batch))
            else:
                again.append(batch)
        if again:
            self._unplaced.append(again)

    def _too_late(self, batch: Batch[OwnerType]) -> DeadlineExceededError:
        doubt = "; it may be published" if batch.is_unsure else ""
        return DeadlineExceededError(f"not acked in time{doubt}{self._trouble}")

    def _may_try_again(self, batch: Batch[OwnerType], error: GoQueueError) -> bool:
        if self.fatal is not None:
            return False
        if isinstance(error, UnknownProducerError):
            self._needs_new_life = True
            return True
        if isinstance(error, OutOfOrderSequenceError):
            # An earlier batch of this partition did not get through; this one waits its turn.
            return self._has_gap_before(batch)
        return error.retryable

    def _has_gap_before(self, batch: Batch[OwnerType]) -> bool:
        groups = [*self._unplaced, *self._in_flight.values()]
        return self._needs_new_life or any(
            other.part.partition == batch.part.partition and other.number < batch.number
            for group in groups
            for other in group
        )

    def _fail_waiting(self, error: GoQueueError) -> None:
        groups = [*self._unplaced, *(self._replay or ()), *self._queue]
        self._unplaced, self._replay, self._queue = [], None, deque()
        self._is_recovering = False
        for batch in (batch for group in groups for batch in group):
            self._fail(batch, error)

    def _give_up(self, batch: Batch[OwnerType], error: GoQueueError) -> None:
        # Its sequence numbers were not used, so those behind it must be numbered anew.
        self._needs_new_life = self._needs_new_life or batch.sequence is not None
        self._fail(batch, error)

    def _place(
        self, batch: Batch[OwnerType], part: calls.ProducedPart, produced: calls.Produced
    ) -> None:
        outcome = Outcome(
            rows=batch.part.rows,
            partition=part.partition,
            base_offset=part.base_offset,
            durability=produced.durability,
            is_duplicate=part.is_duplicate,
            repeats=tuple(part.repeats),
            misfits=part.misfits,
            conflicts=tuple(part.conflicts),
            replicas=produced.replicas,
        )
        self._settle(batch, outcome)

    def _fail(self, batch: Batch[OwnerType], error: GoQueueError) -> None:
        self._settle(batch, Outcome(batch.part.rows, batch.part.partition, error=error))

    def _settle(self, batch: Batch[OwnerType], outcome: Outcome) -> None:
        if batch not in self._unsettled:
            return
        del self._unsettled[batch]
        if batch.owner.settle(outcome):
            self._on_settled(batch.owner)
        self.on_change()


def produced_of(answer: Answer, count: int) -> calls.Produced:
    """Return what a reply tells of so many batches, or raise a ProtocolError."""
    try:
        produced = _decode_produced(answer.header)
    except HEADER_FAULTS:
        # Read once more, for words that say what is wrong with it.
        produced = decode(answer.header, calls.Produced)
    if len(produced.parts) != count:
        raise ProtocolError(f"the reply tells of {len(produced.parts)} batches, not of {count}")
    return produced
