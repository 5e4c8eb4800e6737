"""Reading frames of a partition, and what is done about those that are damaged.

Where a log has replicas, a damaged frame is fetched from another one and read then. Only what no
replica has is a gap; as long as one that must have it cannot be asked, readers ask again.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import LeaderNotAvailableError
from goqueue.base.ids import Offset
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.leadership import Mending
from goqueue.storage.log_reader import Piece

if TYPE_CHECKING:
    from goqueue.runtime.log.partition import Partition

READ_ATTEMPTS: Final = 4
"""How often a read begins again behind a repair: it may meet damage in several segments."""

STATE_ATTEMPTS: Final = 20
STATE_PAUSE_SECONDS: Final = 0.5
"""State is not loaded past damage for about ten seconds, while a replica cannot be reached."""

log = get_logger("goqueue.partition")


async def read_piece(
    partition: "Partition",
    offset: Offset,
    *,
    end_offset: Offset,
    bytes_max: int,
    is_copy: bool = False,
) -> Piece:
    """Return frames from an offset on, for readers of this node; damage is repaired first."""
    attempts = 0
    while True:
        piece = await read_stored(
            partition,
            offset,
            end_offset=end_offset,
            bytes_max=bytes_max,
            is_copy=is_copy,
            check=lambda: partition.check_offset(offset),
        )
        replication = partition.leadership.replication
        if not piece.gaps or replication is None or attempts == READ_ATTEMPTS:
            return piece
        attempts += 1
        outcome = await replication.mend(piece.gaps[0])
        # Another node may lead by now.
        partition.check_offset(offset)
        if outcome is Mending.LOST:
            return piece
        if outcome is Mending.LATER:
            raise LeaderNotAvailableError(
                f"{partition.name}: the messages from offset {offset} on are damaged here, and a"
                " replica that has them cannot be reached"
            )


async def repair_known(partition: "Partition | None") -> None:
    """Return when the damage that is known is repaired, or no replica has what is missing.

    State is loaded from what is read then. A replica that cannot be asked is waited for a while.
    """
    replication = None if partition is None else partition.leadership.replication
    if partition is None or replication is None:
        return
    for gap in list(partition.log.recovery.gaps):
        for _ in range(STATE_ATTEMPTS):
            if await replication.mend(gap) is not Mending.LATER:
                break
            await asyncio.sleep(STATE_PAUSE_SECONDS)


async def read_stored(
    partition: "Partition",
    offset: Offset,
    *,
    end_offset: Offset,
    bytes_max: int,
    is_copy: bool = False,
    check: Callable[[], None],
) -> Piece:
    """Return frames from an offset on; bytes that are not in memory are read in a thread.

    A copy of the log also has the frames without messages that lie right at the offset. ``check``
    raises if they may not be read any more.
    """
    reader, own = partition.reader, partition.log
    location = reader.locate(offset, bytes_max=bytes_max)
    chunk = location.file.read_cached(location.position, location.size)
    while chunk is None:
        loop = asyncio.get_running_loop()
        chunk = await loop.run_in_executor(
            None, location.file.read, location.position, location.size
        )
        # Retention may have deleted the segment meanwhile, or compaction replaced it.
        check()
        if not own.holds(location.segment):
            location = reader.locate(offset, bytes_max=bytes_max)
            chunk = location.file.read_cached(location.position, location.size)
    known = own.recovery.gaps
    piece = reader.pick(
        location, chunk, offset, end_offset=end_offset, bytes_max=bytes_max, is_copy=is_copy
    )
    if piece.gaps and own.recovery.gaps != known:
        log.error(
            LogEvent.MESSAGES_UNREADABLE,
            partition=str(partition.name),
            offsets=[list(gap) for gap in piece.gaps],
        )
    return piece
