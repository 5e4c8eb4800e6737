"""What the answers of a leader ask for, done to the files of one log, each thing as a whole."""

from collections.abc import Iterable

from goqueue.base.errors import CorruptFrameError, StorageFailedError
from goqueue.base.ids import Epoch, NodeId, Offset
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.follower import (
    AppendFrames,
    FollowerEffect,
    NoteEpochs,
    RestartLog,
    ShowCommitted,
    TrimLog,
    TruncateLog,
)
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import IsrMember, ReplicaSet
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.group_log import GroupLog
from goqueue.runtime.cluster.replica_notebook import ReplicaNotebook
from goqueue.storage.replica_journal import EpochNote

log = get_logger("goqueue.replicas")


async def perform_effect(
    one: GroupLog,
    effect: FollowerEffect,
    frames: memoryview,
    epoch: Epoch,
    notebook: ReplicaNotebook,
) -> None:
    """Do what the follower of an epoch decided; ``frames`` came with the answer."""
    match effect:
        case NoteEpochs():
            await _note(one, effect, notebook)
        case AppendFrames():
            await _append(one, effect, frames, epoch)
        case TruncateLog():
            await _truncate(one, effect, epoch, notebook)
        case RestartLog():
            await _restart(one, effect, epoch, notebook)
        case TrimLog(start_offset=start):
            one.trim(start)
        case ShowCommitted():
            one.show()


async def _note(one: GroupLog, effect: NoteEpochs, notebook: ReplicaNotebook) -> None:
    end, starts = effect.end_offset, effect.starts
    await notebook.note([EpochNote(key=one.key, end_offset=end, starts=starts)])
    one.own.epochs.truncate(end)
    for start in starts:
        one.own.epochs.begin(start)


async def _append(one: GroupLog, effect: AppendFrames, frames: memoryview, epoch: Epoch) -> None:
    assert one.replica is not None, "opened"
    end = await one.replica.append_stored(frames, epoch=epoch)
    if end != effect.end_offset:
        raise CorruptFrameError(f"{one.key} ends at {end}; its leader said {effect.end_offset}")


async def _truncate(
    one: GroupLog, effect: TruncateLog, epoch: Epoch, notebook: ReplicaNotebook
) -> None:
    assert one.replica is not None, "an empty log cannot be cut"
    end, own = effect.end_offset, one.own
    log.warning(
        LogEvent.REPLICA_TRUNCATED,
        partition=str(one.key),
        end_offset=end,
        dropped=own.end_offset - end,
        is_loss=effect.is_loss,
    )
    if effect.is_loss:
        # An unclean election: what was committed is so no more.
        own.high_watermark = min(own.high_watermark, end)
    await one.replica.truncate(end, epoch=epoch)
    own.truncated(end)
    await notebook.note([EpochNote(key=one.key, end_offset=end, starts=())])


async def _restart(
    one: GroupLog, effect: RestartLog, epoch: Epoch, notebook: ReplicaNotebook
) -> None:
    assert one.replica is not None, "opened"
    log.warning(
        LogEvent.REPLICA_RESTARTED,
        partition=str(one.key),
        start_offset=effect.start_offset,
        dropped=one.own.end_offset - one.own.start_offset,
        is_loss=effect.is_loss,
    )
    await one.replica.restart(effect.start_offset, epoch=epoch)
    one.own.restarted(effect.start_offset)
    await notebook.note([EpochNote(key=one.key, end_offset=Offset(0), starts=())])


async def drop_stale_notes(logs: Iterable[GroupLog], notebook: ReplicaNotebook) -> None:
    """Forget, durably, epochs that were noted and never got a message: they would cover others."""
    stale = [one for one in logs if one.has_stale_notes]
    if stale:
        await notebook.note(
            EpochNote(key=one.key, end_offset=one.own.end_offset, starts=()) for one in stale
        )
    for one in stale:
        one.has_stale_notes = False


def release(logs: Iterable[GroupLog]) -> None:
    """Let logs take appends that waited for the state of their partition."""
    for one in logs:
        one.is_held = False


def resignation(state: ReplicaSet, node: NodeId) -> ProposeIsr | None:
    """Return what asks for another leader, None if there can be none."""
    others = tuple(IsrMember(member, None) for member in state.isr if member != node)
    if not others:
        return None
    return ProposeIsr(
        epoch=state.epoch, partition_epoch=state.partition_epoch, isr=others, resigns=True
    )


def check_ends(logs: Iterable[GroupLog], state: ReplicaSet, node: NodeId) -> None:
    """Raise if another replica should lead: where a log ends here is not known.

    Bad frames at the end count as the most that they may have held. A leader would begin its epoch
    there; a follower is cut to what was really written, and gets it.
    """
    damaged = [str(one.key) for one in logs if one.is_end_damaged]
    if damaged and resignation(state, node) is not None:
        raise StorageFailedError(f"the end of {', '.join(damaged)} is damaged")


async def begin_epoch(logs: Iterable[GroupLog], epoch: Epoch, notebook: ReplicaNotebook) -> None:
    """Make the start of an epoch durable in all logs of a group, or raise."""
    begun = [(one, EpochStart(epoch, one.own.end_offset)) for one in logs]
    for one, _ in begun:
        one.check_disk()
    await notebook.note(
        EpochNote(key=one.key, end_offset=start.start_offset, starts=(start,))
        for one, start in begun
    )
    for one, _ in begun:
        one.check_disk()
    for one, start in begun:
        one.own.epochs.begin(start)
        one.has_stale_notes = False
