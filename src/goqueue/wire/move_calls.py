"""What nodes ask each other about partitions that move or become more.

Shape: codec. Each node answers for the partitions that it leads, and for no others.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import REQUEST_PARTS_MAX
from goqueue.wire.calls import Call, Name, Natural, Number

Numbers = Annotated[list[Number], msgspec.Meta(min_length=1, max_length=REQUEST_PARTS_MAX)]


class EndsAsked(Call, frozen=True):
    """Ask where the logs of some partitions end, once their leader knows of a larger number."""

    topic: Name
    topic_id: Natural
    count: Number
    partitions: Numbers


class EndsFound(Call, frozen=True):
    """The ends, in the order in which they were asked for; everything before them is committed."""

    ends: list[int]


class ReportsAsked(Call, frozen=True):
    """Ask how the partitions stand that a node leads: those that move, or all."""

    is_moving: bool = True


class PartReport(Call, frozen=True):
    """How one partition stands, as its leader knows."""

    topic: str
    partition: int
    size_bytes: int
    high_watermark: int
    copied_bytes: int
    """What was sent since they began to move to replicas that catch up."""
    durable: dict[str, int]
    """Up to where each follower has it on its disk."""


class Reports(Call, frozen=True):
    """How partitions stand."""

    parts: list[PartReport]
