"""The order of keys: which message of each key is the first that is not settled.

Shape: calculator. Built by looking at the log from the committed offset on, so it is not stored.
Only the first message of a key may be delivered; those without a key may at any time.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from pyroaring import BitMap64

from goqueue.base.ids import Offset


class KeyOrder:
    """Knows the unsettled messages that were looked at, by key."""

    def __init__(self, offset: Offset) -> None:
        self.looked_offset = offset
        """Everything before it has been looked at."""
        self.heads = BitMap64()
        """Messages no earlier message of their key stands before."""
        self._keys: dict[int, bytes | None] = {}
        self._lines: dict[bytes, int | deque[int]] = {}
        self._behind_count = 0

    @property
    def behind_count(self) -> int:
        """Return how many messages wait for an earlier one of their key."""
        return self._behind_count

    def look(self, first_offset: int, keys: Sequence[bytes | None], settled: BitMap64) -> None:
        """Take notice of messages; those already settled do not count."""
        end_offset = first_offset + len(keys)
        numbered: Iterable[tuple[int, bytes | None]] = enumerate(keys, first_offset)
        if settled and settled.range_cardinality(first_offset, end_offset):
            numbered = [(offset, key) for offset, key in numbered if offset not in settled]
            self._keys.update(numbered)
        else:
            self._keys.update(zip(range(first_offset, end_offset), keys, strict=True))
        lines = self._lines
        known = lines.get
        heads: list[int] = []
        behind = 0
        for offset, key in numbered:
            line = known(key) if key is not None else None
            if line is None:
                heads.append(offset)
                if key is not None:
                    lines[key] = offset
                continue
            behind += 1
            if isinstance(line, int):
                lines[key] = deque((line, offset))  # type: ignore[index]
            else:
                line.append(offset)
        self._behind_count += behind
        self.heads.update(heads)
        self.looked_offset = Offset(end_offset)

    def settle(self, offsets: BitMap64) -> None:
        """Let the next messages of their keys move up."""
        if len(offsets) > len(self._keys):
            # Most of them were never looked at: a large step over the log costs no more than that.
            offsets = offsets & BitMap64(self._keys)
        lines, forget = self._lines, self._keys.pop
        heads: list[int] = []
        for offset in offsets:
            key = forget(offset, None)
            if key is None:
                continue
            line = lines[key]
            if isinstance(line, int):
                del lines[key]
                continue
            self._behind_count -= 1
            if line[0] == offset:
                line.popleft()
                heads.append(line[0])
            else:
                line.remove(offset)
            if len(line) == 1:
                lines[key] = line[0]
        # Together, so that one that moved up and was settled at once is gone, too.
        self.heads.update(heads)
        self.heads -= offsets
