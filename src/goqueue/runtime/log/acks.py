"""Waiting until messages are safe enough before a request is acknowledged.

What a producer waits for is its own choice. On one node ``leader`` and ``all`` are the same.

    none      nothing: synced soon
    leader    this node's disk has the messages, if acks of the topic wait for the disk
    all       every replica in sync has them so, too: they are committed
"""

import asyncio
from collections.abc import Awaitable, Sequence
from enum import StrEnum

import msgspec

from goqueue.base.errors import GoQueueError, NotLeaderError
from goqueue.base.ids import Offset
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published


class Acks(StrEnum):
    """Who must have the messages before they are acknowledged."""

    NONE = "none"
    LEADER = "leader"
    ALL = "all"


async def sync_all(
    partitions: Sequence[Partition], outcomes: list[Published | GoQueueError], acks: Acks
) -> list[Published | GoQueueError]:
    """Have what was appended synced: now if acks wait for it, soon if they do not."""
    if acks is Acks.NONE:
        for one in outcomes:
            if isinstance(one, Published):
                partitions[one.partition].sync_soon()
        return outcomes
    # Asked for all together, so that one round of syncs covers them.
    waits = [_wait_of(partitions, one, acks) for one in outcomes]
    synced: list[Published | GoQueueError] = []
    for outcome, waiting in zip(outcomes, waits, strict=True):
        try:
            if waiting is not None:
                await waiting
            synced.append(counted(partitions, outcome))
        except GoQueueError as error:
            synced.append(error)
    return synced


async def replicate_all(
    partitions: Sequence[Partition], outcomes: list[Published | GoQueueError]
) -> list[Published | GoQueueError]:
    """Wait for the replicas in sync where acks do not wait for the disk."""
    replicated: list[Published | GoQueueError] = []
    for outcome in outcomes:
        try:
            if isinstance(outcome, Published):
                await _replicated(partitions[outcome.partition])
            replicated.append(counted(partitions, outcome))
        except GoQueueError as error:
            replicated.append(error)
    return replicated


async def _replicated(partition: Partition) -> None:
    """Return when everything appended so far is on every replica in sync, synced or not."""
    leadership, end_offset = partition.leadership, partition.log.end_offset
    epoch = leadership.epoch
    while leadership.replicated(end_offset) < end_offset:
        news = partition.watch()
        try:
            await news
        finally:
            partition.unwatch(news)
        leadership.check_led()
        if leadership.epoch != epoch:
            raise NotLeaderError("the partition had another leader meanwhile")


def counted(
    partitions: Sequence[Partition], outcome: Published | GoQueueError
) -> Published | GoQueueError:
    """Return an outcome with the number of replicas that have its messages."""
    if isinstance(outcome, GoQueueError):
        return outcome
    leadership = partitions[outcome.partition].leadership
    if leadership.replication is None:
        return outcome
    rows = sum(frame.rows for frame in outcome.written) or 1
    replicas = leadership.replicas_with(Offset(outcome.base_offset + rows))
    return msgspec.structs.replace(outcome, replicas=replicas)


def _wait_of(
    partitions: Sequence[Partition], outcome: Published | GoQueueError, acks: Acks
) -> Awaitable[object] | None:
    """Return what is done when messages are safe; None if nothing is to be waited for.

    A sync covers whole appends, and a repeat is committed when its original is.
    """
    if isinstance(outcome, GoQueueError):
        return None
    partition = partitions[outcome.partition]
    if not outcome.repeats and outcome.base_offset < partition.committed_offset:
        return None
    try:
        if not outcome.repeats:
            return _safe(partition, acks)
        numbers = {outcome.partition, *(repeat.partition for repeat in outcome.repeats)}
        return asyncio.gather(*[_safe(partitions[number], acks) for number in numbers])
    except GoQueueError as error:
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed


def _safe(partition: Partition, acks: Acks) -> "asyncio.Future[None]":
    return partition.durable() if acks is Acks.LEADER else partition.committed()
