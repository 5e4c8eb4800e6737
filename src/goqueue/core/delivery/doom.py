"""A message on its way elsewhere.

Shape: codec.
"""

import msgspec

from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.events import DoomKept


class Doom(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is moved, and, once that has begun, where to and from which offset on."""

    reason: str
    topic: str = ""
    partition: int = 0
    from_offset: Offset = Offset(-1)

    @property
    def is_begun(self) -> bool:
        """Return True if the message may already have been written."""
        return self.from_offset >= 0

    @property
    def target(self) -> TopicPartition:
        """Return where the message is moved to."""
        return TopicPartition(TopicName(self.topic), PartitionId(self.partition))

    def kept(self, offset: int) -> DoomKept:
        """Return this for a snapshot."""
        return DoomKept(
            offset=offset,
            reason=self.reason,
            topic=self.topic,
            partition=self.partition,
            from_offset=self.from_offset,
        )

    @classmethod
    def restore(cls, kept: DoomKept) -> "Doom":
        """Return what a snapshot kept."""
        return cls(
            reason=kept.reason,
            topic=kept.topic,
            partition=kept.partition,
            from_offset=Offset(kept.from_offset),
        )
