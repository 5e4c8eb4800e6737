"""A follower believes its leader's epochs, reports its own disk, and shows what both allow."""

from goqueue.base.ids import NO_EPOCH, Epoch, NodeId, Offset
from goqueue.core.replication.epochs import EpochEnd, EpochStart
from goqueue.core.replication.follower import (
    AppendFrames,
    FollowerEffect,
    GroupFollower,
    NoteEpochs,
    RestartLog,
    ShowCommitted,
    TrimLog,
    TruncateLog,
)
from goqueue.core.replication.replica import DATA_LOG, FetchAnswer, FetchOutcome, ReplicaLog

A, B = NodeId("a"), NodeId("b")


def log_of(end: int, *starts: tuple[int, int], durable: int | None = None) -> ReplicaLog:
    log = ReplicaLog(
        end_offset=Offset(end), durable_offset=Offset(end if durable is None else durable)
    )
    for epoch, start in starts:
        log.epochs.begin(EpochStart(Epoch(epoch), Offset(start)))
    return log


def follower_of(log: ReplicaLog, *, epoch: int = 5) -> GroupFollower:
    follower = GroupFollower({DATA_LOG: log})
    follower.follow(A, Epoch(epoch))
    return follower


def answer(
    offset: int,
    last_epoch: int,
    end: int | None = None,
    *epochs: tuple[int, int],
    epoch: int = 5,
    watermark: int = 0,
    start: int = 0,
    diverging: tuple[int, int] | None = None,
    outcome: FetchOutcome = FetchOutcome.OK,
) -> FetchAnswer:
    return FetchAnswer(
        outcome=FetchOutcome.DIVERGING if diverging else outcome,
        epoch=Epoch(epoch),
        offset=Offset(offset),
        last_epoch=Epoch(last_epoch),
        end_offset=Offset(offset if end is None else end),
        high_watermark=Offset(watermark),
        start_offset=Offset(start),
        epochs=tuple(EpochStart(Epoch(e), Offset(s)) for e, s in epochs),
        diverging=EpochEnd(Epoch(diverging[0]), Offset(diverging[1])) if diverging else None,
    )


def take(follower: GroupFollower, said: FetchAnswer) -> list[FollowerEffect]:
    return follower.take(DATA_LOG, said)


def test_epochs_are_noted_before_their_messages_are_written() -> None:
    """In this order, and only those that are new."""
    follower = follower_of(log_of(10, (1, 0)))
    effects = take(follower, answer(10, 1, 15, (1, 10), (4, 12)))

    assert effects == [
        NoteEpochs(log=DATA_LOG, end_offset=Offset(10), starts=(EpochStart(Epoch(4), Offset(12)),)),
        AppendFrames(log=DATA_LOG, offset=Offset(10), end_offset=Offset(15)),
    ]
    assert take(follower, answer(10, 1, 12, (1, 10))) == [
        AppendFrames(log=DATA_LOG, offset=Offset(10), end_offset=Offset(12))
    ]


def test_an_empty_epoch_is_forgotten_before_other_messages_take_its_place() -> None:
    """The node led in it and wrote nothing."""
    follower = follower_of(log_of(10, (1, 0), (3, 10)))

    assert take(follower, answer(10, 1, 12, (1, 10)))[0] == NoteEpochs(
        log=DATA_LOG, end_offset=Offset(10), starts=()
    )


def test_only_what_is_on_the_disk_is_reported() -> None:
    """Whatever was fetched and written."""
    log = log_of(10, (1, 0), durable=6)
    position = follower_of(log).position(DATA_LOG)

    assert (position.offset, position.last_epoch, position.durable_offset) == (10, 1, 6)
    log.synced(Offset(99))
    assert follower_of(log).position(DATA_LOG).durable_offset == 10


def test_what_is_shown_is_committed_and_on_this_disk() -> None:
    """And never less than before."""
    log = log_of(10, (1, 0), durable=6)
    follower = follower_of(log)
    shown = take(follower, answer(10, 1, watermark=9))
    assert shown == [ShowCommitted(log=DATA_LOG, committed_offset=Offset(6))]
    assert follower.synced(DATA_LOG, Offset(10)) == [
        ShowCommitted(log=DATA_LOG, committed_offset=Offset(9))
    ]

    assert take(follower, answer(10, 1, watermark=3)) == []
    assert log.committed_offset == 9


def test_the_watermark_of_a_leader_is_not_that_of_another_log() -> None:
    """Before the logs are known to agree, what is below it here may be something else."""
    log = log_of(10, (1, 0), (2, 7))
    follower = follower_of(log)
    effects = take(follower, answer(10, 2, watermark=10, diverging=(1, 8)))

    assert effects == [TruncateLog(log=DATA_LOG, end_offset=Offset(7), is_loss=False)]
    assert log.high_watermark == 0


def test_a_log_is_cut_to_what_the_epochs_have_in_common() -> None:
    """Never at the watermark, and committed messages only as a loss that is reported."""
    log = log_of(10, (1, 0))
    log.high_watermark = Offset(4)
    follower = follower_of(log)
    cut = take(follower, answer(10, 1, diverging=(1, 8)))
    assert cut == [TruncateLog(log=DATA_LOG, end_offset=Offset(8), is_loss=False)]
    log.truncated(Offset(8))

    cut = take(follower, answer(8, 1, diverging=(1, 2)))
    assert cut == [TruncateLog(log=DATA_LOG, end_offset=Offset(2), is_loss=True)]


def test_an_answer_about_another_log_changes_nothing() -> None:
    """Late, repeated or of another epoch: the log has moved on since."""
    follower = follower_of(log_of(10, (1, 0), (2, 8)))

    assert take(follower, answer(9, 2, 12, (2, 9))) == []
    assert take(follower, answer(10, 1, 12, (1, 10))) == []
    assert take(follower, answer(10, 2, 12, (2, 10), epoch=4)) == []
    assert take(follower, answer(10, 1, diverging=(1, 3))) == []
    assert take(follower, answer(9, 2, diverging=(1, 3))) == []
    assert take(follower, answer(10, 2, outcome=FetchOutcome.FENCED)) == []
    assert take(follower, answer(10, 2, outcome=FetchOutcome.UNKNOWN)) == []


def test_a_log_that_was_found_to_agree_is_not_cut_in_this_epoch() -> None:
    """A divergence that is told now was found before; the next epoch asks again."""
    follower = follower_of(log_of(10, (1, 0)))
    take(follower, answer(10, 1))
    late = answer(10, 1, diverging=(1, 3))
    assert take(follower, late) == []
    assert follower.follow(B, Epoch(6))

    assert take(follower, answer(10, 1, diverging=(1, 3), epoch=6)) != []


def test_a_log_behind_the_leaders_start_begins_again_there() -> None:
    """Retention has passed it; what is missing was committed and removed."""
    log = log_of(10, (1, 0))
    follower = follower_of(log)
    said = answer(10, 1, start=30, outcome=FetchOutcome.OUT_OF_RANGE)
    assert take(follower, said) == [
        RestartLog(log=DATA_LOG, start_offset=Offset(30), is_loss=False)
    ]
    log.restarted(Offset(30))

    position = follower.position(DATA_LOG)
    assert (position.offset, position.last_epoch, position.durable_offset) == (30, NO_EPOCH, 30)
    assert log.committed_offset == 30


def test_a_divergence_before_the_leaders_start_begins_the_log_again() -> None:
    """Nothing that is left can be compared."""
    follower = follower_of(log_of(40, (1, 0), (2, 20)))

    assert take(follower, answer(40, 2, start=30, diverging=(NO_EPOCH, 30))) == [
        RestartLog(log=DATA_LOG, start_offset=Offset(30), is_loss=False)
    ]


def test_retention_follows_the_leader_below_the_watermark() -> None:
    """Only what is committed, and on this disk, is removed."""
    log = log_of(10, (1, 0), durable=6)
    effects = take(follower_of(log), answer(10, 1, watermark=9, start=8))

    assert TrimLog(log=DATA_LOG, start_offset=Offset(6)) in effects


def test_older_leaders_are_not_followed() -> None:
    """News of an election may come late."""
    follower = follower_of(log_of(0))

    assert not follower.follow(B, Epoch(4))
    assert not follower.follow(A, Epoch(5))
    assert follower.follow(None, Epoch(6))
    assert follower.leader is None


def test_a_start_fits_what_was_noted_to_the_log() -> None:
    """Epochs behind the end never came to be; what retention removed was committed."""
    log = log_of(10, (1, 0), (3, 12))
    log.start_offset, log.high_watermark, log.durable_offset = Offset(4), Offset(0), Offset(0)
    log.recovered()

    assert list(log.epochs) == [(1, 0)]
    assert (log.durable_offset, log.high_watermark) == (10, 4)
