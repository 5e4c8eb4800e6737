"""The sending half of a transactional producer: its identity is its session's, never its own.

What fails dooms the transaction, so nothing behind it is sent; numbers that were given to batches
and not used make a new life of the producer necessary, which its session asks for.
"""

import asyncio
from collections.abc import Sequence

from goqueue.base.errors import GoQueueError, UnknownProducerError, from_code
from goqueue.client.sender import Batch, Sender
from goqueue.core.record.batch import PackedBatch
from goqueue.wire import calls


class TxSender(Sender):
    """Sends the batches of transactions."""

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
    _last: Sequence[Batch] = ()

    def identify(self, identity: calls.ProducerIdentity) -> None:
        """Speak as somebody from now on, with nothing under way."""
        assert not self._unsettled, "everything earlier is settled"
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity
        self._fatal = None
        self.is_spoiled = False
        self.rows = 0
        self.is_ended, self.end_failure = False, None
        self._ending, self._last = None, ()

    def commit_with_last(self, rows_elsewhere: int, token: str) -> None:
        """Let the request with the messages that are submitted last commit, too."""
        self._ending = (rows_elsewhere, token)

    def submit(self, batches: list[Batch]) -> None:
        """Queue the batches of one pile; they go out in one request."""
        self.rows += sum(batch.part.packed.rows for batch in batches)
        if self._ending is not None:
            self._last = batches
        super().submit(batches)

    @property
    def is_all_sent(self) -> bool:
        """Tell whether everything is under way or there, with no trouble so far."""
        is_waiting = bool(self._queue or self._unplaced) or self._recovering is not None
        return not is_waiting and self._fatal is None

    async def abandon(self, reason: GoQueueError, *, grace_s: float) -> None:
        """Send no more; wait a little for answers that are under way."""
        self._fatal = self._fatal or reason
        self._fail_waiting(self._fatal)
        try:
            async with asyncio.timeout(grace_s):
                await self.idle()
        except TimeoutError:
            self.abort()

    @property
    def _must_renew(self) -> bool:
        return False

    def _produce(self, batches: Sequence[Batch], parts: list[calls.ProducePart]) -> calls.Produce:
        assert self._identity is not None, "identified before sending"
        packed = batches[0].part.packed
        assert isinstance(packed, PackedBatch), "transactions are published in batches"
        mine, number = self._identity, packed.fields.transaction
        last = None
        if self._ending is not None and batches is self._last:
            elsewhere, token = self._ending
            last = calls.Last(elsewhere + self.rows, token)
            # Said once: where the answer is lost, the session asks for the end by itself.
            self._ending = None
        transaction = calls.Transaction(mine.producer_id, mine.epoch, number, last)
        return calls.Produce(self._topic, self._acks, parts, transaction)

    def _settle_all(self, batches: Sequence[Batch], produced: calls.Produced) -> None:
        self.is_ended = self.is_ended or produced.is_ended
        if (failure := produced.failure) is not None:
            self.end_failure = from_code(failure.code, failure.message)
        super()._settle_all(batches, produced)

    def _may_try_again(self, batch: Batch, error: GoQueueError) -> bool:
        return not isinstance(error, UnknownProducerError) and super()._may_try_again(batch, error)

    def _give_up(self, batch: Batch, error: GoQueueError) -> None:
        self._fatal = self._fatal or error
        self._fail(batch, error)

    def _fail(self, batch: Batch, error: GoQueueError) -> None:
        self.is_spoiled = self.is_spoiled or batch.sequence is not None
        super()._fail(batch, error)
