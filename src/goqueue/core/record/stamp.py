"""Who sent a frame, and which of the producer's messages it holds.

Shape: calculator.
"""

import msgspec

from goqueue.base.ids import NO_PRODUCER, Epoch, Offset, PartitionId, ProducerId, Sequence


class ProducerStamp(msgspec.Struct, frozen=True, gc=False):
    """A producer's identity, its life, and the ordinal of the first message."""

    producer_id: ProducerId
    epoch: Epoch
    sequence: Sequence

    @property
    def is_idempotent(self) -> bool:
        """Return True if the broker can recognise a repeat."""
        return self.producer_id != NO_PRODUCER

    def is_life_of(self, other: "ProducerStamp") -> bool:
        """Return True if both are of the same producer in the same life."""
        return self.producer_id == other.producer_id and self.epoch == other.epoch

    def after(self, count: int) -> "ProducerStamp":
        """Return the stamp of what follows ``count`` messages."""
        return ProducerStamp(self.producer_id, self.epoch, Sequence(self.sequence + count))


NO_STAMP = ProducerStamp(NO_PRODUCER, Epoch(0), Sequence(0))


REFUSED_OFFSET = Offset(-1)
"""Where the original of a message is that was left out because it did not fit its schema."""


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """A message left out of its batch: its dedup id was seen, or it was refused."""

    row: int
    partition: PartitionId
    offset: Offset
