"""The messages of a topic that carried a ``dedup_id``, for as long as its window lasts.

Shape: stepper. ``find`` reads, ``apply`` remembers, ``forget`` drops what is past the window.
"""

from collections.abc import Sequence

import msgspec

from goqueue.base.errors import DedupWindowFullError
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.limits import DEDUP_IDS_MAX
from goqueue.core.record.stamp import Repeat


class Remembered(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message with a dedup id reached the log."""

    dedup_id: bytes
    partition: PartitionId
    offset: Offset
    at_ms: int


class DedupWindow:
    """Dedup ids of one topic in the order they came."""

    def __init__(self, window_ms: int, *, ids_max: int = DEDUP_IDS_MAX) -> None:
        self._window_ms = window_ms
        self._ids_max = ids_max
        self._seen: dict[bytes, Remembered] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def __repr__(self) -> str:
        return f"<DedupWindow of {self._window_ms} ms holding {len(self)} ids>"

    def resize(self, window_ms: int) -> None:
        """Change how long an id is remembered."""
        self._window_ms = window_ms

    def find(
        self,
        dedup_ids: Sequence[bytes | None],
        *,
        partition: PartitionId,
        next_offset: Offset,
        now_ms: int,
    ) -> tuple[tuple[Repeat, ...], tuple[Remembered, ...]]:
        """Split messages into repeats and ids to remember once they are in the log.

        A message that repeats an earlier one of the same batch points at that one's offset-to-be.
        """
        repeats: list[Repeat] = []
        fresh: dict[bytes, Remembered] = {}
        for row, dedup_id in enumerate(dedup_ids):
            if dedup_id is None:
                continue
            known = self._alive(dedup_id, now_ms) or fresh.get(dedup_id)
            if known is not None:
                repeats.append(Repeat(row, known.partition, known.offset))
                continue
            fresh[dedup_id] = Remembered(
                dedup_id=dedup_id,
                partition=partition,
                offset=Offset(next_offset + row - len(repeats)),
                at_ms=now_ms,
            )
        if fresh:
            self._check_room(len(fresh), now_ms)
        return tuple(repeats), tuple(fresh.values())

    def _alive(self, dedup_id: bytes, now_ms: int) -> Remembered | None:
        known = self._seen.get(dedup_id)
        return known if known is not None and now_ms < known.at_ms + self._window_ms else None

    def _check_room(self, count: int, now_ms: int) -> None:
        if len(self._seen) + count <= self._ids_max:
            return
        self.forget(now_ms)
        if len(self._seen) + count > self._ids_max:
            raise DedupWindowFullError(
                f"dedup_id: the window holds {len(self._seen)} ids; the limit is {self._ids_max}"
            )

    def apply(self, event: Remembered) -> None:
        """Remember an id; a later message of the same id takes its place."""
        self._seen.pop(event.dedup_id, None)
        self._seen[event.dedup_id] = event

    def forget_from(self, partition: PartitionId, offset: Offset) -> None:
        """Drop the ids of messages that were cut off a partition, from an offset on."""
        gone = [
            event.dedup_id
            for event in self._seen.values()
            if event.partition == partition and event.offset >= offset
        ]
        for dedup_id in gone:
            del self._seen[dedup_id]

    def forget(self, now_ms: int) -> int:
        """Drop the ids past their window, oldest first; return how many."""
        count = 0
        for event in self._seen.values():
            if now_ms < event.at_ms + self._window_ms:
                break
            count += 1
        for dedup_id in list(self._seen)[:count] if count else ():
            del self._seen[dedup_id]
        return count
