"""Which messages of a partition carry a trace of their sender's.

Shape: calculator. Sets of offsets, noted as frames are appended, kept in the partition's snapshot
and rebuilt from the log where that is lost. The traces themselves are in the messages.
"""

from pyroaring import BitMap64

from goqueue.core.offset_sets import cut_from
from goqueue.core.tracing.callers import CallerRows


class CallerIndex:
    """The messages of one partition whose senders gave a trace."""

    def __init__(self) -> None:
        self.known = BitMap64()
        """Messages with a good traceparent, recorded or not: their sender has decided."""
        self.sampled = BitMap64()
        """Those of them that are recorded."""

    def __repr__(self) -> str:
        return f"<CallerIndex: {len(self.known)} messages, {len(self.sampled)} recorded>"

    def note(self, base_offset: int, callers: CallerRows) -> None:
        """Take notice of a frame that was appended."""
        rows = callers.rows
        if len(rows) == int(rows[-1]) - int(rows[0]) + 1:
            self.known.add_range(base_offset + int(rows[0]), base_offset + int(rows[-1]) + 1)
        else:
            self.known.update((rows + base_offset).tolist())
        if len(callers.sampled) == len(rows):
            self.sampled.update((rows + base_offset).tolist())
        elif callers.sampled:
            self.sampled.update([row + base_offset for row in callers.sampled])

    def trim(self, start_offset: int) -> None:
        """Forget messages that are no longer in the log."""
        for offsets in (self.known, self.sampled):
            if offsets:
                offsets.remove_range(0, start_offset)

    def truncate(self, end_offset: int) -> None:
        """Forget the messages from an offset on."""
        for offsets in (self.known, self.sampled):
            cut_from(offsets, end_offset)

    def snapshot(self) -> list[bytes]:
        """Return everything, for a file."""
        kept = []
        for offsets in (self.known, self.sampled):
            copy = offsets.copy()
            copy.run_optimize()
            kept.append(copy.serialize())
        return kept

    @classmethod
    def restore(cls, plain: list[bytes]) -> "CallerIndex":
        """Return what a file kept; raises ValueError if it is not of our making."""
        index = cls()
        known, sampled = plain
        index.known |= BitMap64.deserialize(known)
        index.sampled |= BitMap64.deserialize(sampled)
        return index
