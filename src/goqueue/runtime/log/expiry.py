"""Retention of one partition: whole segments go, as far as they are committed."""

from goqueue.base.ids import Offset
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.partition_state import OFFSET_MAX


def expire(partition: Partition, now_ms: int) -> int:
    """Delete the segments retention no longer keeps; return how many.

    A follower removes what its leader has removed, and nothing before.
    """
    settings, leadership = partition.settings, partition.leadership
    if not settings.is_expired or partition.is_compacting or leadership.role is Role.FOLLOWER:
        return 0
    if partition.rolling is not None or partition.log.is_committing:
        return 0
    count = partition.log.expire(
        now_ms=now_ms,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.retention_bytes,
        held_from=partition.queue.held_from(retention_ms=settings.retention_ms),
        end_max=leadership.replicated(Offset(OFFSET_MAX)),
    )
    leadership.synced()
    if count:
        partition.note_trimmed()
    return count
