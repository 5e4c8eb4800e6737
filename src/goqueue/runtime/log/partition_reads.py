"""Reading frames of a partition, and what is done about those that are damaged.

Where a log has replicas, a damaged frame is fetched from another one and read then. Only what no
replica has is a gap; as long as one that must have it cannot be asked, readers ask again.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import LeaderNotAvailableError
from goqueue.base.ids import Offset
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.leadership import Mending
from goqueue.storage.log_reader import Piece

if TYPE_CHECKING:
    from goqueue.runtime.log.partition import Partition

REPAIRS_MAX: Final = 4
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
    is_own: bool = True,
    repairs_max: int = REPAIRS_MAX,
) -> Piece:
    """Return frames from an offset on; bytes that are not in memory are read in a thread.

    A copy of the log also has the frames without messages that lie right at the offset. What is
    damaged here is repaired first where another replica has it; not so for another replica
    (``is_own``), which repairs what it has itself.
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
        if is_own:
            partition.check_offset(offset)
        else:
            partition.check_open()
        if not own.holds(location.segment):
            location = reader.locate(offset, bytes_max=bytes_max)
            chunk = location.file.read_cached(location.position, location.size)
    known = own.recovery.gaps
    piece = reader.pick(
        location, chunk, offset, end_offset=end_offset, bytes_max=bytes_max, is_copy=is_copy
    )
    if not piece.gaps:
        return piece
    if own.recovery.gaps != known:
        log.error(
            LogEvent.MESSAGES_UNREADABLE,
            partition=str(partition.name),
            offsets=[list(gap) for gap in piece.gaps],
        )
    if not is_own or not repairs_max or not await _is_repaired(partition, offset, piece):
        return piece
    return await read_piece(
        partition,
        offset,
        end_offset=end_offset,
        bytes_max=bytes_max,
        is_copy=is_copy,
        repairs_max=repairs_max - 1,
    )


async def _is_repaired(partition: "Partition", offset: Offset, piece: Piece) -> bool:
    """Repair what a read has met; return False if no replica has it, or raise to be asked again."""
    replication = partition.leadership.replication
    if replication is None:
        return False
    outcome = await replication.mend(piece.gaps[0])
    # Another node may lead by now.
    partition.check_offset(offset)
    if outcome is Mending.LATER:
        raise LeaderNotAvailableError(
            f"{partition.name}: the messages from offset {offset} on are damaged here, and a"
            " replica that has them cannot be reached"
        )
    return outcome is Mending.DONE


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
