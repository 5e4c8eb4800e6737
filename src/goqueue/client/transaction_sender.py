"""The sending half of a transactional producer: its identity is its session's, never its own.

What fails dooms the transaction, so nothing behind it is sent; numbers that were given to batches
and not used make a new life of the producer necessary, which its session asks for.
"""

import asyncio
from collections.abc import Sequence

from goqueue.base.errors import GoQueueError, UnknownProducerError
from goqueue.client.sender import Batch, Sender
from goqueue.core.record.batch import PackedBatch
from goqueue.wire import calls


class TxSender(Sender):
    """Sends the batches of transactions."""

    is_spoiled = False
    """Whether sequence numbers were given away that the broker may not have seen."""

    def identify(self, identity: calls.ProducerIdentity) -> None:
        """Speak as somebody from now on, with nothing under way."""
        assert not self._unsettled, "everything earlier is settled"
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity
        self._fatal = None
        self.is_spoiled = False

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
        mine = self._identity
        transaction = calls.Transaction(mine.producer_id, mine.epoch, packed.fields.transaction)
        return calls.Produce(self._topic, self._acks, parts, transaction)

    def _may_try_again(self, batch: Batch, error: GoQueueError) -> bool:
        return not isinstance(error, UnknownProducerError) and super()._may_try_again(batch, error)

    def _give_up(self, batch: Batch, error: GoQueueError) -> None:
        self._fatal = self._fatal or error
        self._fail(batch, error)

    def _fail(self, batch: Batch, error: GoQueueError) -> None:
        self.is_spoiled = self.is_spoiled or batch.sequence is not None
        super()._fail(batch, error)
