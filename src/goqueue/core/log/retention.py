"""Which sealed segments have had their time.

Shape: calculator.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from goqueue.base.units import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAge:
    """What retention wants to know of one segment."""

    size_bytes: int
    last_timestamp_ns: int


def expired_segments(
    segments: Sequence[SegmentAge], *, now_ms: int, retention_ms: int, retention_bytes: int
) -> int:
    """Return how many of the oldest segments may go; the last one (the active) never may.

    Zero means no limit. A segment goes by time when its newest message is older than
    ``retention_ms``, and by size when what is left without it still reaches ``retention_bytes``.
    """
    cutoff_ns = (now_ms - retention_ms) * NS_PER_MS
    left_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments[:-1]:
        too_old = retention_ms > 0 and segment.last_timestamp_ns < cutoff_ns
        too_much = 0 < retention_bytes <= left_bytes - segment.size_bytes
        if not too_old and not too_much:
            break
        left_bytes -= segment.size_bytes
        count += 1
    return count
