"""The queue index on disk, as columns of numbers, so that a million delays cost a few writes."""

import msgspec
import numpy as np
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.tracing.caller_index import CallerIndex
from goqueue.core.tx.index import TxIndex
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage.disk import Disk
from goqueue.storage.queue_blocks import (
    CALLERS,
    CANCELLED,
    COLUMNS,
    EMPTY,
    TRANSACTIONS,
    encode_blocks,
    read_blocks,
)


def encode_queue(queue: PartitionVisibility, end_offset: Offset) -> bytes:
    """Lay out the index as it is after every message before ``end_offset``."""
    blocks = [column.tobytes() for column in queue.schedule.dump()]
    blocks += [lane.serialize() for lane in queue.lanes]
    blocks.append(msgspec.msgpack.encode(queue.tx.snapshot()))
    blocks.append(msgspec.msgpack.encode(queue.callers.snapshot()))
    # The state log has them, too; should it be damaged, they must not come to light.
    blocks.append(queue.cancelled.serialize())
    empty = queue.empty.copy()
    empty.run_optimize()
    blocks.append(empty.serialize())
    return encode_blocks(blocks, end_offset)


def restore_snapshot(
    queue: PartitionVisibility, disk: Disk, directory: str, *, known: range
) -> Offset | None:
    """Take what a good snapshot of a known offset holds; return that offset."""
    found = read_blocks(disk, directory, known=known)
    if found is None:
        return None
    end_offset, blocks = found
    queue.schedule.restore([np.frombuffer(block, np.int64) for block in blocks[:COLUMNS]])
    queue.tx = TxIndex.restore(msgspec.msgpack.decode(blocks[TRANSACTIONS]))
    queue.callers = CallerIndex.restore(msgspec.msgpack.decode(blocks[CALLERS]))
    queue.schedule.restore_cancelled(BitMap64.deserialize(bytes(blocks[CANCELLED])))
    queue.empty |= BitMap64.deserialize(bytes(blocks[EMPTY]))
    for lane, block in zip(queue.lanes, blocks[COLUMNS:TRANSACTIONS], strict=True):
        lane |= BitMap64.deserialize(bytes(block))  # noqa: PLW2901 - changed in place
    return end_offset
