"""The receipt of one delivery: ``topic:partition:offset:deliveryCount:nonce``.

Shape: codec. The nonce is that of the lease, sixteen hexadecimal digits nobody can guess.
"""

import re
from typing import Final, NamedTuple

from goqueue.base.errors import InvalidReceiptError
from goqueue.base.ids import Offset, PartitionId, TopicName

RECEIPT_CHARACTERS_MAX: Final = 320
_RECEIPT: Final = re.compile(
    r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,19}):(\d{1,9}):([0-9a-f]{16})", re.ASCII
)


class Receipt(NamedTuple):
    """One delivery of one message."""

    topic: TopicName
    partition: PartitionId
    offset: Offset
    delivery_count: int
    nonce: int

    def __str__(self) -> str:
        return (
            f"{self.topic}:{self.partition}:{self.offset}:{self.delivery_count}:{self.nonce:016x}"
        )


def parse_receipt(text: object) -> Receipt:
    """Read a receipt, or raise without believing any of it."""
    if not isinstance(text, str) or not text:
        raise InvalidReceiptError("receipt_handle is required")
    found = _RECEIPT.fullmatch(text) if len(text) <= RECEIPT_CHARACTERS_MAX else None
    if found is None:
        raise InvalidReceiptError(f"not a receipt: {text[:40]!a}")
    topic, partition, offset, count, nonce = found.groups()
    return Receipt(
        TopicName(topic),
        PartitionId(int(partition)),
        Offset(int(offset)),
        int(count),
        int(nonce, 16),
    )
