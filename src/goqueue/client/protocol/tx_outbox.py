"""The outbox of a transactional producer: its identity is its session's, never its own.

What fails dooms the transaction, so nothing behind it is sent; numbers that were given to batches
and not used make a new life of the producer necessary, which its session asks for.
"""

from collections.abc import Sequence
from typing import Final

from goqueue.base.errors import (
    DeadlineExceededError,
    GoQueueError,
    InvalidTransactionStateError,
    UnknownProducerError,
    from_code,
)
from goqueue.client.protocol.outbox import IN_DOUBT, Batch, Outbox, OwnerType
from goqueue.core.record.batch import PackedBatch
from goqueue.wire import calls

TOO_LATE: Final = (DeadlineExceededError, InvalidTransactionStateError)
"""What messages fail with when their time is over, or that of their transaction."""


class TxOutbox(Outbox[OwnerType]):
    """The batches of transactions."""

    is_spoiled = False
    """Whether sequence numbers were given away that the broker may not have seen."""
    rows = 0
    """How many messages of the transaction were given to be sent."""
    is_ended = False
    """Whether the broker has committed the transaction with its last messages."""
    end_failure: GoQueueError | None = None
    """Why it has not, though it was asked to."""
    _ending: tuple[int, str] | None = None
    """What the request submitted next says of the end: messages elsewhere, and the token."""
    _last: Sequence[Batch[OwnerType]] = ()
    _refusal: GoQueueError | None = None
    """With what the broker last refused messages for a while: a full disk, for example."""

    def identify(self, identity: calls.ProducerIdentity) -> None:
        """Use an identity from now on, with nothing under way."""
        assert self.is_idle, "everything earlier is settled"
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity
        self.fatal = None
        self._needs_new_life = False
        self.is_spoiled = False
        self.rows = 0
        self.is_ended, self.end_failure = False, None
        self._ending, self._last = None, ()
        self._refusal = None

    def commit_with_last(self, rows_elsewhere: int, token: str) -> None:
        """Let the request with the messages that are submitted last commit, too."""
        self._ending = (rows_elsewhere, token)

    def submit(self, batches: list[Batch[OwnerType]]) -> None:
        """Queue batches of one topic; they go out in one request."""
        self.rows += sum(batch.part.packed.rows for batch in batches)
        if self._ending is not None:
            self._last = batches
        super().submit(batches)

    @property
    def is_all_sent(self) -> bool:
        """Return True if everything is under way or there, with no trouble so far."""
        is_waiting = bool(self._queue or self._unplaced) or self._is_recovering
        return not is_waiting and self.fatal is None

    def shut(self, reason: GoQueueError) -> None:
        """Send no more; what is under way may still be answered."""
        self.fatal = self.fatal or reason
        self._fail_waiting(self.fatal)

    @property
    def _must_renew(self) -> bool:
        return False

    def header_of(
        self, batches: Sequence[Batch[OwnerType]], parts: list[calls.ProducePart]
    ) -> calls.Produce:
        """Return the header of a request: in a transaction it says which."""
        assert self._identity is not None, "identified before sending"
        packed = batches[0].part.packed
        assert isinstance(packed, PackedBatch), "transactions are published in batches"
        mine, number = self._identity, packed.fields.transaction
        if not number:
            return super().header_of(batches, parts)
        last = None
        if self._ending is not None and batches is self._last:
            elsewhere, token = self._ending
            last = calls.Last(elsewhere + self.rows, token)
            # Said once: where the answer is lost, the session asks for the end by itself.
            self._ending = None
        transaction = calls.Transaction(mine.producer_id, mine.epoch, number, last)
        return calls.Produce(batches[0].owner.topic, self._acks, parts, transaction)

    def _settle_all(
        self, batches: Sequence[Batch[OwnerType]], produced: calls.Produced, now: float
    ) -> None:
        self.is_ended = self.is_ended or produced.is_ended
        if (failure := produced.failure) is not None:
            self.end_failure = from_code(failure.code, failure.message)
        super()._settle_all(batches, produced, now)

    def _may_try_again(self, batch: Batch[OwnerType], error: GoQueueError) -> bool:
        if isinstance(error, UnknownProducerError):
            return False
        if error.retryable and not isinstance(error, IN_DOUBT):
            self._refusal = error
        return super()._may_try_again(batch, error)

    def _give_up(self, batch: Batch[OwnerType], error: GoQueueError) -> None:
        if self._refusal is not None and isinstance(error, TOO_LATE):
            # The time was spent on trying again: the reason for that is the one to know.
            reason = self._refusal.message
            error = type(self._refusal)(f"not published in the transaction's time: {reason}")
        self.fatal = self.fatal or error
        self._fail(batch, error)

    def _fail(self, batch: Batch[OwnerType], error: GoQueueError) -> None:
        self.is_spoiled = self.is_spoiled or batch.sequence is not None
        super()._fail(batch, error)
