"""Writes the leader's proposals to etcd: one batch after the other, each exactly once.

The conditions of a batch are that this node's key of the leader is the one it wrote, and that the
log ends where this node believes. A batch whose outcome is not known is sent again as it is: if the
first one was written, the second one finds a longer log, written by this very term.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from goqueue.base.cluster_limits import (
    ETCD_BATCH_BYTES_MAX,
    ETCD_BATCH_ENTRIES_MAX,
    RAFT_SNAPSHOT_BYTES_MAX,
)
from goqueue.base.errors import OverloadedError
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.etcd.api import (
    Etcd,
    EtcdError,
    EtcdRefusedError,
    ModifiedAt,
    PutKey,
    ReadKeys,
    TxnReply,
)
from goqueue.runtime.cluster.etcd.records import (
    EtcdKeys,
    HeadRecord,
    LogRecord,
    decode_head,
    encode_batch,
    encode_record,
)
from goqueue.runtime.cluster.etcd.replica import BatchUnderWay, EtcdReplica
from goqueue.runtime.cluster.etcd.snapshots import describe_snapshot, store_snapshot

log = get_logger("goqueue.cluster")

PAUSE_SECONDS: Final = 0.05
"""Before a batch is sent again."""


class EtcdWriter:
    """What a leader writes. It goes on while ``replica`` says that its term is this node's."""

    def __init__(
        self,
        etcd: Etcd,
        keys: EtcdKeys,
        replica: EtcdReplica,
        changed: Callable[[], None],
        *,
        compact_batches: int,
        compact_bytes: int,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._replica = replica
        self._changed = changed
        self._compact_batches = compact_batches
        self._compact_bytes = compact_bytes
        self._patience = 1
        """Grows while snapshots fail, so that they are not tried after every batch."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for proposals."""
        self._wake.set()

    async def run(self) -> None:
        """Write what is proposed, for ever."""
        replica = self._replica
        while True:
            await self._wake.wait()
            self._wake.clear()
            while replica.has_queued:
                batch = replica.take_batch(
                    bytes_max=ETCD_BATCH_BYTES_MAX, entries_max=ETCD_BATCH_ENTRIES_MAX
                )
                if batch is not None:
                    await self._write(batch)
                    await self._compact(batch.batch.term)

    async def _write(self, batch: BatchUnderWay) -> None:
        """Send a batch until it is in the log, or certainly will not be."""
        value = encode_batch(batch.batch)
        term, head_revision = batch.batch.term, self._replica.head_revision
        head = encode_record(HeadRecord(batch.last, term))
        keys = self._keys
        conditions = [ModifiedAt(keys.leader, term), ModifiedAt(keys.head, head_revision)]
        puts = [PutKey(keys.log(batch.first), value), PutKey(keys.head, head)]
        reads = [ReadKeys(keys.leader), ReadKeys(keys.head)]
        while self._replica.under_way is batch:
            try:
                reply = await self._etcd.txn(conditions, puts, reads)
            except EtcdRefusedError as error:
                self._refuse(batch, error)
                return
            except EtcdError as error:
                log.debug(LogEvent.ETCD_WRITE_UNKNOWN, index=batch.first, error=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            revision = reply.revision if reply.is_success else self._written_at(batch, reply)
            if revision:
                self._replica.apply(LogRecord(batch.first, batch.batch, revision), len(value))
                self._changed()
            else:
                # Another node leads. The feed says whether the batch was written before.
                await asyncio.sleep(PAUSE_SECONDS)

    def _written_at(self, batch: BatchUnderWay, reply: TxnReply) -> int:
        """Return the revision of a batch that was written by an attempt without an answer."""
        leader, head = (items[0] if items else None for items in reply.found)
        if leader is None or leader.modified_at != batch.batch.term or head is None:
            return 0
        written = decode_head(head.value)
        is_ours = written.index == batch.last and written.term == batch.batch.term
        return head.modified_at if is_ours else 0

    def _refuse(self, batch: BatchUnderWay, error: EtcdRefusedError) -> None:
        """End proposals that etcd does not take, for want of space or of a permission."""
        log.warning(LogEvent.ETCD_WRITE_REFUSED, index=batch.first, error=str(error))
        if self._replica.under_way is batch:
            self._replica.drop_batch(OverloadedError(f"etcd refused the proposal: {error}"))

    async def _compact(self, term: int) -> None:
        """Replace a log that has grown by a snapshot, while this node still leads in a term."""
        replica = self._replica
        if (
            replica.batches_kept < self._compact_batches * self._patience
            and replica.bytes_kept < self._compact_bytes * self._patience
        ):
            return
        data = replica.snapshot()
        self._patience *= 2
        if len(data) > RAFT_SNAPSHOT_BYTES_MAX:
            error = f"a snapshot of {len(data)} bytes is too large"
            log.warning(LogEvent.ETCD_SNAPSHOT_NOT_STORED, error=error)
            return
        record = describe_snapshot(replica.index, replica.membership, data)
        try:
            is_stored = await store_snapshot(
                self._etcd, self._keys, record, data, leader_revision=term
            )
        except EtcdError as error:
            log.warning(LogEvent.ETCD_SNAPSHOT_NOT_STORED, error=str(error))
            return
        if is_stored:
            replica.batches_kept = replica.bytes_kept = 0
            self._patience = 1
