"""Publishing whole Arrow batches from one thread, with several requests under way.

For programs that have columns already: no message is ever an object here. Requests go out in order
under the producer's stamp; after a failure that may pass everything without an answer goes out
again, in the same order with the same numbers, so the broker recognises what it already has.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from goqueue.base.errors import GoQueueError
from goqueue.base.units import MiB
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.blocking.sender import BlockingSender
from goqueue.client.producer.packing import cut_batch
from goqueue.client.protocol.outbox import Batch
from goqueue.client.protocol.outcome import Numbers, Outcome, Packed, Part
from goqueue.client.protocol.routed_outbox import RoutedTxOutbox
from goqueue.client.protocol.sending import TxSending
from goqueue.client.protocol.tx_outbox import TxOutbox
from goqueue.core.record.batch import PackedBatch
from goqueue.core.record.stamp import REFUSED_OFFSET, ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import Buffer

IN_FLIGHT_MAX: Final = 4
REQUEST_BYTES: Final = 4 * MiB


class _Rows:
    """Rows for one topic, of which the placed ones are counted and the first failure is kept."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.placed = 0
        self.failure: GoQueueError | None = None

    def settle(self, outcome: Outcome) -> bool:
        """Take what became of a batch."""
        refused = [one.row for one in outcome.repeats if one.offset == REFUSED_OFFSET]
        if outcome.error is not None or refused:
            error = outcome.error or outcome.refusal(refused[0])
            reason = f"{self.topic}/{outcome.partition}: {error.message}"
            self.failure = self.failure or type(error)(reason)
        else:
            self.placed += len(outcome.rows)
        return False


class _BatchOutbox(TxOutbox[_Rows]):
    def _frames(self, packed: Packed, stamp: ProducerStamp) -> Sequence[Buffer]:
        # In pieces: what is large is not copied.
        assert isinstance(packed, PackedBatch), "rows come in batches"
        return packed.buffers(stamp)


class BatchSender:
    """Sends batches of one producer, in or outside a transaction."""

    def __init__(
        self,
        link: BlockingLink | RoutedBlockingLink,
        identity: calls.ProducerIdentity,
        *,
        transaction: calls.Transaction | None = None,
        compression: str | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        self._number = 0 if transaction is None else transaction.number
        self._compression = compression
        self._timeout_s = timeout_ms / 1_000
        most = IN_FLIGHT_MAX
        make = partial(_BatchOutbox, acks="all", in_flight_max=most, on_settled=lambda _: None)
        cluster = link.cluster
        self._outbox: TxSending[_Rows]
        self._outbox = (
            make() if cluster is None else RoutedTxOutbox(cluster, make, in_flight_max=most)
        )
        self._outbox.identify(identity)
        self._sender = BlockingSender(link, self._outbox)
        self._topics: dict[str, _Rows] = {}
        self._sent_count = 0

    def __repr__(self) -> str:
        return f"<BatchSender of {self._outbox!r}>"

    @property
    def rows(self) -> int:
        """How many messages were placed."""
        return sum(rows.placed for rows in self._topics.values())

    def send(self, topic: str, batch: pa.RecordBatch, partitions: Numbers) -> None:
        """Queue the rows of a batch of a stored schema, each for its partition.

        Waits only while several requests are under way; what failed is raised here or by ``flush``.
        """
        held: list[Part] = []
        size = 0
        for part in cut_batch(
            batch, partitions, compression=self._compression, transaction=self._number
        ):
            assert isinstance(part.packed, PackedBatch), "cut from a batch"
            part_bytes = len(part.packed.value)
            if held and size + part_bytes > REQUEST_BYTES:
                self._submit(topic, held)
                held, size = [], 0
            held.append(part)
            size += part_bytes
        if held:
            self._submit(topic, held)

    def _submit(self, topic: str, parts: Sequence[Part]) -> None:
        rows = self._topics.setdefault(topic, _Rows(topic))
        self._sent_count += 1
        deadline = time.monotonic() + self._timeout_s
        number = self._sent_count
        self._sender.submit([Batch(rows, part, number=number, deadline=deadline) for part in parts])
        self._check()

    def flush(self) -> None:
        """Return when every row is placed, or raise why one is not."""
        self._sender.flush()
        self._check()

    def _check(self) -> None:
        for rows in self._topics.values():
            if rows.failure is not None:
                raise rows.failure
