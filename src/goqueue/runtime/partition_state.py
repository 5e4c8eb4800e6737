"""What a partition knows beside its log, as it was when the log got its last message."""

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.core.producers.ledger import ProducerLedger
from goqueue.core.record.batch import batch_fields
from goqueue.core.record.control import read_control
from goqueue.core.record.frame import FrameHeader
from goqueue.core.record.queue_rows import rows_of_frame
from goqueue.core.tx.index import TxIndex
from goqueue.runtime.producer_snapshot import appended, read_ledger
from goqueue.runtime.queue_index import QueueIndex
from goqueue.runtime.queue_snapshot import restore_snapshot
from goqueue.storage.disk import Disk
from goqueue.storage.partition_log import PartitionLog


def recover_state(
    disk: Disk, directory: str, log: PartitionLog, queue: QueueIndex
) -> ProducerLedger:
    """Fill the queue index and return the ledger: snapshots, then one pass over what came later.

    By frames, not by offsets: a batch of nothing but repeats has no offset of its own.
    """
    known = range(log.start_offset, log.end_offset + 1)
    ledger, ledger_from = read_ledger(disk, directory, known=known)
    queue_from = restore_snapshot(queue, disk, directory, known=known)
    if queue_from is None:
        queue_from = log.start_offset
    for header, frame in log.frames_from(Offset(min(ledger_from, queue_from))):
        if header.offset >= ledger_from:
            event = appended(header, frame)
            if event is not None:
                ledger.apply(event)
        if header.offset >= queue_from:
            _note(queue, header, frame)
    queue.trim(log.start_offset)
    return ledger


def _note(queue: QueueIndex, header: FrameHeader, frame: memoryview) -> None:
    try:
        control = read_control(header, frame)
        if control is not None:
            queue.end_transaction(control)
        note_messages(queue.tx, header, frame)
        rows = rows_of_frame(header, frame)
    except CorruptFrameError:
        # Its checksum holds and its messages cannot be read: readers are told, nothing waits.
        return
    if rows is not None:
        queue.note(header.offset, rows)


def note_messages(tx: TxIndex, header: FrameHeader, frame: memoryview) -> None:
    """Take notice of a frame that belongs to a transaction."""
    if header.is_batch:
        fields = batch_fields(header, frame)
        if fields.transaction:
            tx.note(fields.transaction, header.offset, fields.rows)
