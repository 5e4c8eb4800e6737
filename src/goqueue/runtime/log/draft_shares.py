"""Messages that came one by one, published in batches that are not too large."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX
from goqueue.core.record.message import Draft
from goqueue.runtime.log.places import outcomes_of
from goqueue.runtime.log.published import Published, Reach

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


class Target(Protocol):
    """A topic, as far as publishing one by one needs it."""

    def choose(self, draft: Draft, partition: int | None = None) -> PartitionId:
        """Return the partition of a message."""
        ...

    async def send(self, grant: Grant, partition: PartitionId, drafts: list[Draft]) -> Published:
        """Append messages to one partition; return when the ack may go out."""
        ...


async def publish_drafts(
    topic: Target,
    grant: Grant,
    drafts: Sequence[tuple[Draft, int | None]],
    reach: Reach | None = None,
) -> list[tuple[PartitionId, Offset] | GoQueueError]:
    """Publish messages; return where each went or why it did not."""
    results: list[tuple[PartitionId, Offset] | GoQueueError | None] = [None] * len(drafts)
    rows_of: dict[PartitionId, list[int]] = {}
    for row, (draft, partition) in enumerate(drafts):
        try:
            rows_of.setdefault(topic.choose(draft, partition), []).append(row)
        except GoQueueError as error:
            results[row] = error
    sent = [
        (partition, share) for partition, rows in rows_of.items() for share in shares(rows, drafts)
    ]
    outcomes = await asyncio.gather(
        *(
            _publish(topic, grant, number, [drafts[row][0] for row in rows], reach)
            for number, rows in sent
        )
    )
    for (_, rows), outcome in zip(sent, outcomes, strict=True):
        for row, result in zip(rows, outcome, strict=True):
            results[row] = result
    return [result for result in results if result is not None]


async def _publish(
    topic: Target,
    grant: Grant,
    partition: PartitionId,
    drafts: list[Draft],
    reach: Reach | None,
) -> Sequence[tuple[PartitionId, Offset] | GoQueueError]:
    try:
        published = await topic.send(grant, partition, drafts)
    except GoQueueError as error:
        return [error] * len(drafts)
    if reach is not None:
        reach.note(published)
    return outcomes_of(published, len(drafts))
