"""What frames of a log say of transactions.

Shape: calculator.
"""

from goqueue.core.record.batch import batch_fields
from goqueue.core.record.frame import FrameHeader
from goqueue.core.tx.index import TxIndex


def note_messages(tx: TxIndex, header: FrameHeader, frame: memoryview) -> None:
    """Take notice of a frame that belongs to a transaction."""
    if header.is_batch:
        fields = batch_fields(header, frame)
        if fields.transaction:
            tx.note(fields.transaction, header.offset, fields.rows)
