"""Epochs are durable before anything relies on them, whatever becomes of the process."""

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from goqueue.base.errors import DiskFullError, StorageFailedError
from goqueue.base.ids import Epoch, Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.replica import DATA_LOG, STATE_LOG, LogKey
from goqueue.storage.journal import Journal
from goqueue.storage.replica_journal import (
    COMPACT_BYTES,
    REPLICA_JOURNAL_PATH,
    EpochNote,
    ReplicaJournal,
)
from goqueue.testing.disk import CrashError, MemoryDisk

Known = dict[LogKey, tuple[list[EpochStart], Epoch, Offset]]


def key_of(number: int) -> LogKey:
    group = TopicPartition(TopicName(f"topic-{number // 4}"), PartitionId(number // 2 % 2))
    return LogKey(group, STATE_LOG if number % 2 else DATA_LOG)


def note(number: int, end: int, *starts: tuple[int, int]) -> EpochNote:
    begun = [EpochStart(Epoch(epoch), Offset(offset)) for epoch, offset in starts]
    return EpochNote(key=key_of(number), end_offset=Offset(end), starts=begun)


def known_of(journal: ReplicaJournal) -> Known:
    found = {}
    for key in journal.logs:
        notes = journal.find(key)
        found[key] = (list(notes.epochs), notes.epochs.latest, notes.high_watermark)
    return found


def test_what_was_noted_comes_back() -> None:
    """Epochs of many logs, high watermarks, and logs that are gone, over a power cut."""
    disk = MemoryDisk()
    journal = ReplicaJournal(disk)
    journal.note([note(0, 0, (1, 0)), note(1, 0, (1, 0))], {key_of(0): Offset(5)})
    journal.note([note(0, 10, (3, 10)), note(2, 0, (2, 0))])
    journal.note(watermarks={key_of(0): Offset(12), key_of(1): Offset(3)})
    journal.note(gone=[key_of(2)])
    before = known_of(journal)

    again = ReplicaJournal(disk.crash())
    assert known_of(again) == before
    assert before[key_of(0)] == ([(1, 0), (3, 10)], 3, 12)
    assert before.keys() == {key_of(0), key_of(1)}
    assert again.find(key_of(7)).epochs.latest == -1


def test_one_sync_is_enough_for_many_logs() -> None:
    """An election of a thousand partitions waits for the disk once."""
    disk = MemoryDisk()
    journal = ReplicaJournal(disk)
    before = disk.operations
    journal.note([note(number, 0, (1, 0)) for number in range(2_000)])

    syncs = [operation for operation in disk.log[before:] if operation.kind == "sync"]
    assert len(syncs) == 1


def test_what_is_known_already_is_not_written() -> None:
    """High watermarks that stand still cost nothing."""
    disk = MemoryDisk()
    journal = ReplicaJournal(disk)
    journal.note([note(0, 0, (1, 0))], {key_of(0): Offset(5)})
    before = disk.operations
    journal.note(watermarks={key_of(0): Offset(5)})
    journal.note()

    assert disk.operations == before


def test_an_epoch_that_got_no_message_is_forgotten_at_the_start() -> None:
    """Kept, it would cover what another leader wrote there."""
    disk = MemoryDisk()
    ReplicaJournal(disk).note([note(0, 0, (1, 0)), note(0, 10, (2, 10)), note(1, 0, (1, 0))])
    journal = ReplicaJournal(disk.crash())
    journal.recovered({key_of(0): Offset(8), key_of(1): Offset(4), key_of(5): Offset(9)})

    again = ReplicaJournal(disk.crash())
    assert list(again.find(key_of(0)).epochs) == [(1, 0)]
    assert not again.find(key_of(0)).epochs.may_lead(Epoch(2))
    assert list(again.find(key_of(1)).epochs) == [(1, 0)]


def test_compaction_keeps_what_is_known() -> None:
    """The file stays small, and means the same."""
    disk = MemoryDisk()
    journal = ReplicaJournal(disk)
    sizes = []
    for turn in range(3_000):
        journal.note([note(turn % 8, turn, (turn + 1, turn))], {key_of(turn % 8): Offset(turn)})
        journal.note([note(turn % 8, turn + 1)])
        sizes.append(journal.size_bytes)
        if turn % 100 == 0:
            journal.note(gone=[key_of(turn % 8)])
    before = known_of(journal)

    assert max(sizes) < 3 * COMPACT_BYTES
    assert known_of(ReplicaJournal(disk.crash())) == before


def test_a_crash_at_any_operation_leaves_a_state_that_was_there() -> None:
    """Whatever was noted is there; of what was about to be noted all or nothing is."""
    operation = acknowledged = 0
    steps: list[Known] = [{}, {}]
    while acknowledged < len(steps) - 1:
        operation += 1
        for torn in (None, Random(operation)):
            disk = MemoryDisk()
            steps, acknowledged = _steps(disk, fail_at=operation)
            again = ReplicaJournal(disk.crash(torn=torn))

            assert known_of(again) in steps[acknowledged : acknowledged + 2]
            again.note([note(0, 99, (99, 99))])
            assert ReplicaJournal(disk.crash()).find(key_of(0)).epochs.latest == 99
    assert operation > 15


def _steps(disk: MemoryDisk, *, fail_at: int) -> tuple[list[Known], int]:
    """Return the states that follow each other, and how many changes of them were confirmed."""
    model = ReplicaJournal(MemoryDisk())
    done, states = 0, [known_of(model)]
    changes: list[Callable[[ReplicaJournal], None]] = [
        lambda j: j.note([note(0, 0, (1, 0)), note(1, 0, (1, 0))]),
        lambda j: j.note([note(0, 10, (2, 10))], {key_of(0): Offset(7), key_of(1): Offset(2)}),
        lambda j: j.compact(),
        lambda j: j.note([note(0, 5, (3, 5))]),
        lambda j: j.recovered({key_of(0): Offset(5)}),
        lambda j: j.note(gone=[key_of(1)]),
        lambda j: j.compact(),
    ]
    for change in changes:
        change(model)
        states.append(known_of(model))
    disk.fail_at(fail_at)
    try:
        journal = ReplicaJournal(disk)
        for change in changes:
            change(journal)
            done += 1
    except CrashError:
        pass
    return states, done


def test_damage_is_refused_and_a_torn_end_is_cut() -> None:
    """State without a record in the middle would be wrong in silence."""
    disk = MemoryDisk()
    journal = ReplicaJournal(disk)
    journal.note([note(0, 0, (1, 0))])
    size = journal.size_bytes
    journal.note([note(0, 10, (2, 10))])
    file = disk.open(REPLICA_JOURNAL_PATH)
    file.truncate(file.size() - 1)
    torn = ReplicaJournal(disk.reopen())

    assert list(torn.find(key_of(0)).epochs) == [(1, 0)]
    assert torn.torn
    torn.note([note(0, 10, (3, 10))])
    disk.flip_bits(REPLICA_JOURNAL_PATH, [size // 2])
    with pytest.raises(StorageFailedError, match="damaged"):
        ReplicaJournal(disk.reopen())


@pytest.mark.parametrize(
    "record",
    [
        b"\xc1",
        msgspec.msgpack.encode([[9, "t", 0, 0, 1]]),
        msgspec.msgpack.encode([[0, "t", 0]]),
        msgspec.msgpack.encode([[0, "t", 0, 0, 0, 5]]),
        msgspec.msgpack.encode([[0, "t", 0, 0, 0, 5, 0, 4, 3]]),
        msgspec.msgpack.encode([[1, "t", 0, 0]]),
    ],
)
def test_a_record_that_is_not_understood_is_refused(record: bytes) -> None:
    """A newer version may have written it."""
    disk = MemoryDisk()
    Journal(disk, REPLICA_JOURNAL_PATH).append([record])
    with pytest.raises(StorageFailedError, match="does not understand"):
        ReplicaJournal(disk.reopen())


def test_a_failed_note_is_not_believed() -> None:
    """The node must not write messages of an epoch that its disk did not take."""
    disk = MemoryDisk()
    journal = ReplicaJournal(disk)
    journal.note([note(0, 0, (1, 0))])
    disk.fill_up(3)
    with pytest.raises(DiskFullError):
        journal.note([note(0, 10, (2, 10))])
    disk.make_room()
    assert journal.find(key_of(0)).epochs.latest == 1
    disk.fail_sync(REPLICA_JOURNAL_PATH)
    with pytest.raises(StorageFailedError):
        journal.note([note(0, 10, (2, 10))])

    assert journal.find(key_of(0)).epochs.latest == 1
    assert ReplicaJournal(disk.crash()).find(key_of(0)).epochs.latest == 1
