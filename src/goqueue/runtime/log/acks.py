"""Waiting until messages are committed before a request is acknowledged."""

import asyncio
from collections.abc import Awaitable, Sequence

from goqueue.base.errors import GoQueueError
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published


async def sync_all(
    partitions: Sequence[Partition], outcomes: list[Published | GoQueueError], *, wait: bool
) -> list[Published | GoQueueError]:
    """Have what was appended synced: now if acks wait for it, soon if they do not."""
    if not wait:
        for one in outcomes:
            if isinstance(one, Published):
                partitions[one.partition].sync_soon()
        return outcomes
    # Asked for all together, so that one round of syncs covers them.
    waits = [_wait_of(partitions, one) for one in outcomes]
    synced: list[Published | GoQueueError] = []
    for outcome, waiting in zip(outcomes, waits, strict=True):
        try:
            if waiting is not None:
                await waiting
            synced.append(outcome)
        except GoQueueError as error:
            synced.append(error)
    return synced


def _wait_of(
    partitions: Sequence[Partition], outcome: Published | GoQueueError
) -> Awaitable[object] | None:
    """Return what is done when messages are committed; None if nothing is to be waited for.

    A sync covers whole appends, and a repeat is committed when its original is.
    """
    if isinstance(outcome, GoQueueError):
        return None
    partition = partitions[outcome.partition]
    if not outcome.repeats and outcome.base_offset < partition.committed_offset:
        return None
    try:
        if not outcome.repeats:
            return partition.committed()
        numbers = {outcome.partition, *(repeat.partition for repeat in outcome.repeats)}
        return asyncio.gather(*[partitions[number].committed() for number in numbers])
    except GoQueueError as error:
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed
