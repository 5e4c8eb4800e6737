"""Messages that are sent: what they have beside key and value, and what became of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from goqueue.base.errors import DelayConflictError, GoQueueError, SchemaViolationError
from goqueue.core.record.batch import PackedBatch
from goqueue.core.record.row import PackedRows
from goqueue.core.record.single_row import PackedRow, PackedSingleRows
from goqueue.wire.calls import RepeatPart

Numbers = np.ndarray[Any, Any]
Packed = PackedBatch | PackedRows | PackedRow | PackedSingleRows
"""Messages of one partition, to be stamped and sent."""


class Extra(msgspec.Struct, frozen=True, gc=False):
    """What only some messages have."""

    headers: Mapping[str, bytes] | None = None
    priority: int | None = None
    partition: int | None = None
    dedup_id: bytes | None = None
    timestamp_us: int | None = None
    deliver_at_us: int | None = None


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a message is, and what the broker's ack meant."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    durability: str
    is_duplicate: bool = False
    replicas: int = 1
    """How many nodes had the message when it was acknowledged."""


class Part(NamedTuple):
    """Messages that go to one partition, and which rows of their owner they are."""

    partition: int
    rows: Numbers
    packed: Packed


class Outcome(msgspec.Struct, frozen=True):
    """What became of the messages of one part."""

    rows: Numbers
    partition: int
    base_offset: int = -1
    durability: str = ""
    is_duplicate: bool = False
    repeats: tuple[RepeatPart, ...] = ()
    error: GoQueueError | None = None
    misfits: Mapping[int, str] = {}
    conflicts: tuple[int, ...] = ()
    replicas: int = 1

    def refusal(self, row: int) -> GoQueueError:
        """Return why a row of this outcome was refused."""
        if row in self.conflicts:
            return DelayConflictError(self.misfits.get(row, "delay_id: a message waits as this"))
        return SchemaViolationError(self.misfits.get(row, "the message does not fit its schema"))
