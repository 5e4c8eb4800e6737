"""The gathering half of a transactional producer: messages belong to the transaction that is open.

Nobody sees a message before the commit, so piles need not hurry: most transactions are one pile,
which goes out in one request together with the commit.
"""

import asyncio
from time import time_ns

from goqueue.base.errors import GoQueueError
from goqueue.base.units import NS_PER_MS
from goqueue.client.producer.gatherer import Gatherer
from goqueue.client.producer.outboxes import tx_outbox_for
from goqueue.client.producer.single import Sent
from goqueue.client.protocol.sending import TxSending
from goqueue.wire.calls import ProducerIdentity


class TxGatherer(Gatherer):
    """Gathers messages of transactions for one topic."""

    make_outbox = staticmethod(tx_outbox_for)
    linger_ms_min = 50
    """A pile waits at least so long for the commit, which is what gets messages out."""
    _outbox: TxSending[Sent]

    def open(self, transaction: int, identity: ProducerIdentity) -> None:
        """Take messages, which belong to a transaction of somebody."""
        self._outbox.identify(identity)
        # Where the broker refuses messages for a while, there must be time left to abort.
        half_ms = self._options.transaction_timeout_ms // 2
        self._delivery_ms = min(self._options.delivery_timeout_ms, half_ms)
        with self._lock:
            assert not len(self.pile), "what was gathered before was sealed"
            self._transaction = transaction
            self._closed = None
            self.failure = None

    @property
    def is_all_handed_over(self) -> bool:
        """Return True if nothing is gathered that the sender does not have."""
        return self.pile.previous is None and not len(self.pile)

    @property
    def rows_sent(self) -> int | None:
        """Return how many messages of the transaction there are, if all of them are under way."""
        is_sent = self._outbox.is_all_sent and self.failure is None and self.pile.previous is None
        return self._outbox.rows if is_sent else None

    @property
    def is_spoiled(self) -> bool:
        """Return True if the broker must give a new life before more is sent."""
        return self._outbox.is_spoiled

    async def shut_and_commit(
        self, reason: GoQueueError, *, rows_elsewhere: int, token: str
    ) -> bool:
        """Send what was gathered with a request that commits, too; tell whether it has.

        Where the broker did not say so it may have all the same: ask for the end by itself.
        """
        self._outbox.commit_with_last(rows_elsewhere, token)
        self.shut(reason)
        await self.flush()
        failure = self._outbox.end_failure
        if failure is not None and not failure.retryable:
            raise failure
        return self._outbox.is_ended

    async def abandon(self, reason: GoQueueError, *, grace_s: float) -> None:
        """Send no more; wait a little for answers that are under way."""
        self._submit()
        self._outbox.shut(reason)
        try:
            async with asyncio.timeout(grace_s):
                await self._sender.idle()
        except TimeoutError:
            self._sender.abort()

    def _linger_over(self) -> None:
        """Send what has waited long enough. The timer of one pile serves those behind it, too."""
        left_ms = self._linger_ms - self._age_ms()
        if left_ms > 0:
            self._loop.call_later(left_ms / 1_000, self._linger_over)
        else:
            super()._linger_over()

    def _age_ms(self) -> float:
        """Return for how long the current pile was gathered; long ago if that cannot be told."""
        rows = self.pile.rows
        if not rows:
            return self._linger_ms
        moment = rows[2]
        begun_ns = int(moment[0] if isinstance(moment, tuple) else moment)
        age_ns = time_ns() - begun_ns
        # The wall clock was set back: what was gathered must not wait until it has caught up.
        return self._linger_ms if age_ns < 0 else age_ns / NS_PER_MS
