"""Messages that came one by one, cut into batches that are not too large."""

from collections.abc import Sequence
from typing import Final

from goqueue.base.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX
from goqueue.core.record.message import Draft

DRAFT_OVERHEAD_BYTES: Final = 64
"""What a message costs in a batch beside its own bytes, generously."""


def shares(rows: Sequence[int], drafts: Sequence[tuple[Draft, int | None]]) -> list[list[int]]:
    """Cut the messages of one partition into batches that are not too large."""
    found: list[list[int]] = []
    size = 0
    for row in rows:
        draft = drafts[row][0]
        cost = len(draft.value or b"") + len(draft.key or b"") + DRAFT_OVERHEAD_BYTES
        cost += sum(len(k) * 4 + len(v) for k, v in (draft.headers or {}).items())
        if not found or size + cost > BATCH_BYTES_MAX // 2 or len(found[-1]) == BATCH_ROWS_MAX:
            found.append([])
            size = 0
        found[-1].append(row)
        size += cost
    return found
