"""Removing what this node has of partitions that the controller has placed elsewhere."""

import asyncio
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.cluster.replica_notebook import ReplicaNotebook
from goqueue.runtime.log.topic import Topic

RETRY_SECONDS: Final = 1.0

log = get_logger("goqueue.replicas")


def has_messages(topic: Topic, number: int) -> bool:
    """Return True if there is something to be removed of a partition, and a disk that lets it be.

    So it is where a partition was moved away while this node was down, or a crash cut its removal
    short.
    """
    state = topic.state_of(number)
    logs = [topic.partitions[number].log, *([] if state is None else [state.log])]
    return all(one.failure is None for one in logs) and any(one.end_offset for one in logs)


async def drop(group: ReplicaGroup, notebook: ReplicaNotebook) -> None:
    """Remove a replica that takes no part any more; where that fails, it may be tried again."""
    try:
        await group.close()
        await group.drop_files()
        await notebook.forget([one.key for one in group.logs.values()])
    except GoQueueError as error:
        log.warning(LogEvent.REPLICA_NOT_DROPPED, partition=str(group.place), error=error.message)
        await asyncio.sleep(RETRY_SECONDS)
