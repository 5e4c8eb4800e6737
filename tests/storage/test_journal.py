"""The journal keeps every record it acknowledged, or says loudly that it cannot."""

import contextlib
from random import Random

import pytest

from goqueue.base.errors import DiskFullError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.storage.journal import Journal
from goqueue.testing.disk import CrashError, MemoryDisk

PATH = "meta/journal"
RECORDS = [b"first", b"second" * 50, b"third"]


def journal_of(disk: MemoryDisk, records: list[bytes]) -> Journal:
    journal = Journal(disk, PATH)
    for record in records:
        journal.append([record])
    return journal


def content_of(disk: MemoryDisk) -> bytes:
    file = disk.open(PATH)
    return file.read(Position(0), file.size())


def test_records_come_back_in_order() -> None:
    """Over any number of restarts."""
    disk = MemoryDisk()
    for record in RECORDS:
        Journal(disk, PATH).append([record])
        disk = disk.crash()

    assert Journal(disk, PATH).records == RECORDS


def test_a_torn_record_is_cut_at_every_byte() -> None:
    """It was never acknowledged; those before it stay, and the next one follows them."""
    last = 8 + len(RECORDS[-1])
    for kept in range(last):
        disk = MemoryDisk()
        journal_of(disk, RECORDS)
        file = disk.open(PATH)
        file.truncate(file.size() - last + kept)
        journal = Journal(disk, PATH)

        assert journal.records == RECORDS[:-1]
        assert len(journal.torn) == kept
        journal.append([b"next"])
        assert Journal(disk.crash(), PATH).records == [*RECORDS[:-1], b"next"]


def test_a_flipped_bit_is_never_replayed() -> None:
    """Before good records it is damage and refused; in the last it cannot be told from a tear."""
    disk = MemoryDisk()
    journal_of(disk, RECORDS)
    size = len(content_of(disk))
    for position in range(size):
        disk.flip_bits(PATH, [position])
        before = content_of(disk)
        with pytest.raises(StorageFailedError, match="damaged"):
            Journal(disk.reopen(), PATH)
        assert content_of(disk) == before
        disk.flip_bits(PATH, [position])


@pytest.mark.parametrize("drops_pages", [True, False])
def test_after_a_failed_sync_nothing_is_taken_until_the_restart(*, drops_pages: bool) -> None:
    """A later record would lie behind one that the disk may not have."""
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    disk.fail_sync(PATH, drops_pages=drops_pages)
    with pytest.raises(StorageFailedError):
        journal.append([b"lost"])
    with pytest.raises(StorageFailedError):
        journal.append([b"refused"])

    again = Journal(disk.kill(), PATH)
    assert again.records == RECORDS
    again.append([b"next"])
    assert Journal(disk.crash(), PATH).records == [*RECORDS, b"next"]


def test_a_full_disk_refuses_a_record_and_takes_it_later() -> None:
    """Nothing is written half."""
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    disk.fill_up(3)
    with pytest.raises(DiskFullError):
        journal.append([b"no room"])
    with pytest.raises(DiskFullError):
        journal.rewrite([b"no room either"])
    disk.make_room()
    journal.append([b"room"])

    assert Journal(disk.crash(), PATH).records == [*RECORDS, b"room"]


def test_rewriting_is_all_or_nothing_at_every_operation() -> None:
    """A crash leaves the old records or the new, and what follows is kept."""
    for operation in range(1, 30):
        for torn in (None, Random(operation)):
            disk = MemoryDisk()
            journal_of(disk, RECORDS)
            disk = disk.reopen()
            journal = Journal(disk, PATH)
            disk.fail_at(disk.operations + operation)
            expected = [RECORDS, [b"all"], [b"all", b"more"]]
            try:
                journal.rewrite([b"all"])
                journal.append([b"more"])
            except CrashError:
                pass
            else:
                expected = [[b"all", b"more"]]

            assert Journal(disk.crash(torn=torn), PATH).records in expected


@pytest.mark.parametrize("is_new", [True, False])
def test_a_kill_leaves_no_name_that_a_power_cut_takes(*, is_new: bool) -> None:
    """A file made or replaced by a killed process is synced before it takes records."""
    for operation in range(1, 12):
        disk = MemoryDisk()
        if not is_new:
            journal_of(disk, RECORDS)
            disk = disk.reopen()
        disk.fail_at(operation)
        with contextlib.suppress(CrashError):
            Journal(disk, PATH).rewrite([b"all"])
        disk = disk.kill()
        Journal(disk, PATH).append([b"acknowledged"])

        assert Journal(disk.crash(), PATH).records[-1:] == [b"acknowledged"]


def test_a_replaced_file_whose_name_is_not_synced_takes_no_records() -> None:
    """Either file may be the one a restart finds."""
    disk = MemoryDisk()
    journal = journal_of(disk, RECORDS)
    disk.fail_sync("meta")
    with pytest.raises(StorageFailedError):
        journal.rewrite([b"all"])

    with pytest.raises(StorageFailedError):
        journal.append([b"refused"])
    assert Journal(disk.crash(), PATH).records in (RECORDS, [b"all"])
