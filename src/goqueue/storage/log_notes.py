"""What happened to a log: what was counted, and what opening it had to mend."""

from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.base.ids import Offset


class Gap(NamedTuple):
    """Offsets that cannot be served: their frames are bad on disk. Half-open."""

    start_offset: Offset
    end_offset: Offset


@dataclass(slots=True)
class LogCounters:
    """What happened to one log since it was opened."""

    bytes_written: int = 0
    bytes_read: int = 0
    syncs: int = 0
    sync_errors: int = 0
    segments_created: int = 0
    segments_deleted: int = 0
    lookups: int = 0
    torn_bytes: int = 0


@dataclass(slots=True)
class Recovery:
    """What opening a log had to mend."""

    torn_bytes: int = 0
    lost_bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)
    index_rebuilds: int = 0
    lost_tail: Gap | None = None
    """Messages at the end that are recorded elsewhere and the log does not hold."""

    def add(self, gap: Gap) -> None:
        """Note offsets that cannot be served, together with those next to them."""
        apart = []
        for known in self.gaps:
            if known.end_offset < gap.start_offset or gap.end_offset < known.start_offset:
                apart.append(known)
            else:
                gap = Gap(
                    min(known.start_offset, gap.start_offset), max(known.end_offset, gap.end_offset)
                )
        self.gaps = sorted([*apart, gap])

    def mended(self, gap: Gap) -> None:
        """Forget offsets that can be served again."""
        left: list[Gap] = []
        for known in self.gaps:
            before = Gap(known.start_offset, min(known.end_offset, gap.start_offset))
            behind = Gap(max(known.start_offset, gap.end_offset), known.end_offset)
            left += [one for one in (before, behind) if one.start_offset < one.end_offset]
        self.gaps = left

    def cut(self, end_offset: Offset) -> None:
        """Forget offsets from ``end_offset`` on, which are given again."""
        kept = (gap for gap in self.gaps if gap.start_offset < end_offset)
        self.gaps = [gap._replace(end_offset=min(gap.end_offset, end_offset)) for gap in kept]
        if self.lost_tail is not None and self.lost_tail.end_offset > end_offset:
            self.lost_tail = None
