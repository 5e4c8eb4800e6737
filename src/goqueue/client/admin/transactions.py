"""What operators ask of transactions: which are open, since when, and to end one."""

from collections.abc import Iterable

from goqueue.base.errors import (
    ProducerFencedError,
    StaleTransactionError,
    UnknownProducerError,
)
from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.tx.detached import Detached, who_of
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from goqueue.wire.tx_calls import TxEnd, TxList, TxListed, TxName, TxState

_OVER = (UnknownProducerError, ProducerFencedError, StaleTransactionError)


class AsyncTransactions(AsyncCalls):
    """The calls on transactions. Each transactional id shows its latest one."""

    async def list_transactions(
        self, *, open_only: bool = False, limit: int = 1_000
    ) -> list[TxState]:
        """Return transactional ids and how they stand, in the order of the ids."""
        reply = await self._call(Operation.TX_LIST, TxListed(open_only, limit), TxList)
        return reply.producers

    async def describe_transaction(self, transactional_id: str) -> TxState:
        """Return how the latest transaction of an id stands."""
        return await self._call(Operation.TX_DESCRIBE, TxName(transactional_id), TxState)

    async def abort_transaction(self, transactional_id: str) -> TxState:
        """Abort what an id has open, on an operator's word."""
        return await self._call(Operation.TX_ABORT, TxName(transactional_id), TxState)

    async def abort_detached(self, handles: Iterable[Detached]) -> None:
        """Abort transactions that were detached; those that are over already stay as they are.

        Raises if one belongs to an adopter, which alone decides about it.
        """
        for handle in handles:
            header = TxEnd(who_of(handle), is_commit=False)
            try:
                await self._call(Operation.TX_END, header, calls.Nothing)
            except _OVER:
                continue
