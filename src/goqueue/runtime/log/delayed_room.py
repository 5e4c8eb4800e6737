"""How many messages of a topic may wait for their time.

On a node of a cluster the limit is shared out by partitions: a node that leads a third of them
holds a third of what may wait, and need not know what waits elsewhere.
"""

from collections.abc import Sequence

from goqueue.base.errors import DelayedFullError
from goqueue.core.record.check import CheckedFrame
from goqueue.runtime.log.leadership import led
from goqueue.runtime.log.partition import Partition


def check_delayed(
    name: str, partitions: Sequence[Partition], frames: Sequence[CheckedFrame], delayed_max: int
) -> None:
    """Refuse more delayed messages than a topic may hold."""
    special = (frame.queue for frame in frames if frame.queue is not None)
    count = sum(len(rows.delays.rows) for rows in special if rows.delays is not None)
    if not count:
        return
    own = led(partitions)
    limit = max(delayed_max * len(own) // len(partitions), 1)
    waiting = count_delayed(own)
    if waiting + count > limit:
        raise DelayedFullError(
            f"{waiting} messages of {name} wait for their time; the limit is {limit}"
        )


def count_delayed(partitions: Sequence[Partition]) -> int:
    """Return how many messages of some partitions wait for their time."""
    return sum(partition.queue.schedule.pending for partition in partitions)
