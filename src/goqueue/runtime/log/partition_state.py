"""What a partition knows beside its log, as it was when the log got its last message."""

import contextlib
from typing import Final

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.core.producers.ledger import ProducerLedger
from goqueue.core.record.control import Control, read_control
from goqueue.core.record.frame import CONTROL, FrameHeader
from goqueue.core.record.hole import hole_rows
from goqueue.core.record.queue_rows import rows_of_frame
from goqueue.core.tx.frames import note_messages
from goqueue.core.tx.index import TxIndex
from goqueue.runtime.log.producer_snapshot import appended, drop_producers, read_ledger
from goqueue.runtime.queue.queue_snapshot import restore_snapshot
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage.disk import Disk
from goqueue.storage.partition_log import PartitionLog
from goqueue.storage.queue_blocks import drop_unless, read_transactions

OFFSET_MAX: Final = 2**63


def recover_state(
    disk: Disk,
    directory: str,
    log: PartitionLog,
    queue: PartitionVisibility,
    *,
    is_replicated: bool = False,
) -> ProducerLedger:
    """Fill the queue index and return the ledger: snapshots, then one pass over what came later.

    By frames, not by offsets: a batch of nothing but repeats has no offset of its own. A replica
    that has lost its end gets it again from its leader, and drops what knows of it.
    """
    known = range(log.start_offset, OFFSET_MAX)
    if is_replicated:
        known = range(log.start_offset, log.end_offset + 1)
        drop_producers(disk, directory, known=known)
        drop_unless(disk, directory, known=known)
    ledger, ledger_from = read_ledger(disk, directory, known=known)
    queue_from = restore_snapshot(queue, disk, directory, known=known)
    if queue_from is None:
        queue_from = log.start_offset
    if max(ledger_from, queue_from) > log.end_offset:
        # Snapshots speak of messages that were durable, so these are lost (ADR 0028).
        log.skip_to(max(ledger_from, queue_from))
    begin = Offset(min(ledger_from, queue_from))
    for header, frame in log.frames_from(begin, reports_gaps=is_replicated):
        if header.offset >= ledger_from:
            event = appended(header, frame)
            if event is not None:
                ledger.apply(event)
        if header.offset >= queue_from:
            note_frame(queue, header, frame)
    queue.trim(log.start_offset)
    return ledger


def recover_before(
    disk: Disk, directory: str, log: PartitionLog, end_offset: Offset
) -> tuple[ProducerLedger, TxIndex]:
    """Return the ledger and the transactions as the frames before an offset leave them.

    What a snapshot says of later frames must have been dropped.
    """
    known = range(log.start_offset, end_offset + 1)
    ledger, ledger_from = read_ledger(disk, directory, known=known)
    tx_from, tx = read_transactions(disk, directory, known=known)
    for header, frame in log.frames_from(Offset(min(ledger_from, tx_from))):
        if header.offset >= end_offset:
            break
        if header.offset >= ledger_from:
            event = appended(header, frame)
            if event is not None:
                ledger.apply(event)
        if header.offset >= tx_from:
            note_transaction(tx, header, frame)
    tx.trim(log.start_offset)
    return ledger, tx


def note_transaction(tx: TxIndex, header: FrameHeader, frame: memoryview) -> None:
    """Take what a frame of the log says of transactions."""
    with contextlib.suppress(CorruptFrameError):
        control = read_control(header, frame)
        if control is not None:
            tx.end(control.number, is_commit=control.is_commit)
        note_messages(tx, header, frame)


def note_frame(
    queue: PartitionVisibility, header: FrameHeader, frame: memoryview
) -> Control | None:
    """Take what the queue wants to know of a frame of the log; return which transaction it ends."""
    if header.flags & CONTROL:
        rows = hole_rows(header, frame[-header.value_size :]) if header.is_hole else 1
        queue.empty.add_range(header.offset, header.offset + rows)
    try:
        control = read_control(header, frame)
        if control is not None:
            queue.end_transaction(control)
        note_messages(queue.tx, header, frame)
        special = rows_of_frame(header, frame)
    except CorruptFrameError:
        # Its checksum holds and its messages cannot be read: readers are told, nothing waits.
        return None
    if special is not None:
        queue.note(header.offset, special)
    return control
