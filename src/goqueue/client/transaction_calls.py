"""What operators ask of transactions: which are open, since when, and to end one."""

from collections.abc import Iterable

from goqueue.base.errors import (
    ProducerFencedError,
    StaleTransactionError,
    UnknownProducerError,
)
from goqueue.client.link import Link, ReplyHeader, call
from goqueue.client.loop_thread import LoopThread
from goqueue.client.transaction_detached import Detached, who_of
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from goqueue.wire.tx_calls import TxEnd, TxList, TxListed, TxName, TxState

_OVER = (UnknownProducerError, ProducerFencedError, StaleTransactionError)


class AsyncTxCalls:
    """The calls on transactions. Each transactional id shows its latest one."""

    _link: Link
    _timeout_s: float

    async def list_transactions(
        self, *, open_only: bool = False, limit: int = 1_000
    ) -> list[TxState]:
        """Return transactional ids and how they stand, in the order of the ids."""
        reply = await self._ask(Operation.TX_LIST, TxListed(open_only, limit), TxList)
        return reply.producers

    async def describe_transaction(self, transactional_id: str) -> TxState:
        """Return how the latest transaction of an id stands."""
        return await self._ask(Operation.TX_DESCRIBE, TxName(transactional_id), TxState)

    async def abort_transaction(self, transactional_id: str) -> TxState:
        """Abort what an id has open, on an operator's word."""
        return await self._ask(Operation.TX_ABORT, TxName(transactional_id), TxState)

    async def abort_detached(self, handles: Iterable[Detached]) -> None:
        """Abort transactions that were detached; those that are over already stay as they are.

        Raises if one belongs to an adopter, which alone decides about it.
        """
        for handle in handles:
            header = TxEnd(who_of(handle), is_commit=False)
            try:
                await self._ask(Operation.TX_END, header, calls.Nothing)
            except _OVER:
                continue

    async def _ask(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        return await call(self._link, operation, header, kind, timeout_s=self._timeout_s)


class TxCalls:
    """The same, blocking."""

    _client: AsyncTxCalls
    _thread: LoopThread

    def list_transactions(self, *, open_only: bool = False, limit: int = 1_000) -> list[TxState]:
        """Return transactional ids and how they stand, in the order of the ids."""
        return self._thread.run(self._client.list_transactions(open_only=open_only, limit=limit))

    def describe_transaction(self, transactional_id: str) -> TxState:
        """Return how the latest transaction of an id stands."""
        return self._thread.run(self._client.describe_transaction(transactional_id))

    def abort_transaction(self, transactional_id: str) -> TxState:
        """Abort what an id has open, on an operator's word."""
        return self._thread.run(self._client.abort_transaction(transactional_id))

    def abort_detached(self, handles: Iterable[Detached]) -> None:
        """Abort transactions that were detached; those that are over already stay as they are.

        Raises if one belongs to an adopter, which alone decides about it.
        """
        self._thread.run(self._client.abort_detached(handles))
