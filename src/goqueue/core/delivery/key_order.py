"""The order of keys: which message of each key is the first that is not settled.

Shape: calculator. Built by looking at the log from the committed offset on, so it is not stored.
Only the first message of a key may be delivered; those without a key may at any time.
"""

from collections import deque
from collections.abc import Sequence

from pyroaring import BitMap64

from goqueue.base.ids import Offset


class KeyOrder:
    """Knows the unsettled messages that were looked at, by key."""

    def __init__(self, offset: Offset) -> None:
        self.looked_offset = offset
        """Everything before it has been looked at."""
        self.heads = BitMap64()
        """Messages no earlier message of their key stands before."""
        self._keys: dict[int, bytes] = {}
        self._head: dict[bytes, int] = {}
        self._behind: dict[bytes, deque[int]] = {}
        self._behind_count = 0

    @property
    def behind_count(self) -> int:
        """Return how many messages wait for an earlier one of their key."""
        return self._behind_count

    def look(self, first_offset: int, keys: Sequence[bytes | None], settled: BitMap64) -> None:
        """Take notice of messages; those already settled do not count."""
        head, behind, names = self._head, self._behind, self._keys
        heads: list[int] = []
        is_fresh = not settled or not settled.range_cardinality(
            first_offset, first_offset + len(keys)
        )
        for offset, key in enumerate(keys, first_offset):
            if not is_fresh and offset in settled:
                continue
            if key is None:
                heads.append(offset)
                continue
            names[offset] = key
            if key not in head:
                head[key] = offset
                heads.append(offset)
            elif key in behind:
                behind[key].append(offset)
                self._behind_count += 1
            else:
                behind[key] = deque((offset,))
                self._behind_count += 1
        self.heads.update(heads)
        self.looked_offset = Offset(first_offset + len(keys))

    def settle(self, offsets: BitMap64) -> None:
        """Let the next messages of their keys move up."""
        if len(offsets) > len(self._keys) + len(self.heads):
            # Most of them were never looked at: a large step over the log costs no more than that.
            offsets = offsets & (self.heads | BitMap64(self._keys))
        head, behind, names = self._head, self._behind, self._keys
        gone: list[int] = []
        heads: list[int] = []
        for offset in offsets:
            gone.append(offset)
            key = names.pop(offset, None)
            if key is None:
                continue
            if head[key] != offset:
                behind[key].remove(offset)
                self._behind_count -= 1
                if not behind[key]:
                    del behind[key]
                continue
            line = behind.get(key)
            if line is None:
                del head[key]
                continue
            head[key] = following = line.popleft()
            self._behind_count -= 1
            heads.append(following)
            if not line:
                del behind[key]
        # Together, so that one that moved up and was settled at once is gone, too.
        self.heads.update(heads)
        self.heads.difference_update(BitMap64(gone))
