"""The memory disk loses what a power cut would lose, and nothing else."""

from random import Random

import pytest

from goqueue.base.errors import DataDirLockedError, GoQueueError
from goqueue.base.ids import Position
from goqueue.storage.disk import write_atomically
from goqueue.testing.disk import CrashError, MemoryDisk, MemoryFile, Operation

START = Position(0)


def synced(disk: MemoryDisk, path: str, content: bytes) -> MemoryFile:
    file = disk.open(path, create=True)
    file.append([content])
    file.sync()
    disk.sync_directory(path.rpartition("/")[0])
    return file


def content_of(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(START, file.size())


def outcomes(*, page_bytes: int) -> set[bytes]:
    """Return what many torn crashes make of synced bytes with unsynced ones behind them."""
    found = set()
    for seed in range(300):
        disk = MemoryDisk(page_bytes=page_bytes)
        synced(disk, "a", b"synced").append([b"-one", b"-two"])
        found.add(content_of(disk.crash(torn=Random(seed)), "a"))
    return found


class TestBytes:
    def test_bytes_not_synced_are_lost(self) -> None:
        """After a power cut a file is what it was at its last sync."""
        disk = MemoryDisk()
        synced(disk, "a", b"kept").append([b"lost"])

        assert content_of(disk.crash(), "a") == b"kept"

    def test_a_cut_not_synced_is_undone(self) -> None:
        """Bytes cut off come back, and what was appended after the cut does not."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"0123456789")
        file.truncate(6)
        file.truncate(3)
        file.append([b"xyz"])

        assert content_of(disk.crash(), "a") == b"0123456789"

    def test_a_cut_that_was_synced_stays(self) -> None:
        """A sync after the cut covers the cut and what followed it."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"0123456789")
        file.truncate(3)
        file.append([b"xyz"])
        file.sync()

        assert content_of(disk.crash(), "a") == b"012xyz"

    def test_a_killed_process_loses_no_bytes(self) -> None:
        """The system still has what a process wrote before kill -9, until the power fails."""
        disk = MemoryDisk()
        synced(disk, "a", b"kept").append([b" for now"])
        after = disk.kill()

        assert content_of(after, "a") == b"kept for now"
        assert content_of(after.crash(), "a") == b"kept"

    def test_a_hundred_megabytes_are_quick(self) -> None:
        """Appending and syncing cost what is new, not what is there."""
        disk = MemoryDisk()
        file = disk.open("a", create=True)
        block = bytes(100_000)
        for _ in range(1_000):
            file.append([block])
            file.sync()

        assert file.size() == 100_000_000


class TestTornBytes:
    def test_a_torn_crash_keeps_what_was_synced(self) -> None:
        """Whatever happens to the rest, synced bytes are intact."""
        assert all(content.startswith(b"synced") for content in outcomes(page_bytes=2))

    def test_a_torn_crash_keeps_none_some_or_all_of_the_rest(self) -> None:
        """The last write may be there, missing or partial."""
        found = outcomes(page_bytes=4096)

        assert {b"synced", b"synced-one-two", b"synced-one-t"} <= found

    def test_a_torn_crash_leaves_holes(self) -> None:
        """A later page may be on the device while an earlier one is still zeros."""
        found = outcomes(page_bytes=2)

        assert b"synced\0\0\0\0-two" in found
        assert b"synced-one\0\0\0\0" in found

    def test_a_torn_crash_may_undo_a_cut(self) -> None:
        """A cut that was not synced may have happened or not, but is never half done."""
        found = set()
        for seed in range(100):
            disk = MemoryDisk()
            synced(disk, "a", b"0123456789").truncate(4)
            found.add(content_of(disk.crash(torn=Random(seed)), "a"))

        assert found == {b"0123456789", b"0123"}

    def test_a_seed_tells_the_whole_story(self) -> None:
        """The same seed tears the same way."""
        assert outcomes(page_bytes=2) == outcomes(page_bytes=2)


class TestNames:
    def test_a_created_name_needs_its_directory_synced(self) -> None:
        """A file whose bytes are durable is still lost with its name."""
        disk = MemoryDisk()
        disk.make_directory("logs")
        file = disk.open("logs/a", create=True)
        file.append([b"x"])
        file.sync()
        disk.sync_directory("")

        assert disk.crash().list_directory("logs") == []

    def test_a_durable_name_may_hold_no_bytes(self) -> None:
        """A directory sync says nothing about the content."""
        disk = MemoryDisk()
        disk.open("a", create=True).append([b"x"])
        disk.sync_directory("")

        assert content_of(disk.crash(), "a") == b""

    def test_a_removal_not_synced_is_undone(self) -> None:
        """The file is back with its durable bytes, also when a new one took its name."""
        disk = MemoryDisk()
        synced(disk, "a", b"old")
        disk.remove("a")
        file = disk.open("a", create=True)
        file.append([b"new"])
        file.sync()

        assert content_of(disk.crash(), "a") == b"old"

    def test_a_rename_not_synced_is_undone(self) -> None:
        """Source and target are both as they were."""
        disk = MemoryDisk()
        synced(disk, "a", b"a")
        synced(disk, "b", b"b")
        disk.rename("a", "b")
        after = disk.crash()

        assert content_of(after, "a") == b"a"
        assert content_of(after, "b") == b"b"

    @pytest.mark.parametrize("directory", ["here", "there"])
    def test_a_rename_between_directories_is_one_change(self, directory: str) -> None:
        """A file is never lost and never doubled, whichever side is synced."""
        disk = MemoryDisk()
        disk.make_directory("here")
        disk.make_directory("there")
        synced(disk, "here/a", b"a")
        disk.rename("here/a", "there/a")
        disk.sync_directory(directory)
        after = disk.crash()

        assert after.list_directory("here") == []
        assert content_of(after, "there/a") == b"a"

    def test_a_renamed_file_does_not_come_back_under_its_first_name(self) -> None:
        """A name made durable brings the changes it was built on."""
        disk = MemoryDisk()
        disk.make_directory("here")
        disk.make_directory("there")
        disk.open("here/a", create=True)
        disk.rename("here/a", "there/a")
        disk.sync_directory("there")
        disk.sync_directory("here")
        after = disk.crash()

        assert after.list_directory("here") == []
        assert after.list_directory("there") == ["a"]

    def test_a_removed_tree_comes_back_unless_its_parent_is_synced(self) -> None:
        """Removing a tree is many removals, none of them durable by itself."""
        disk = MemoryDisk()
        disk.make_directory("a/b")
        synced(disk, "a/b/x", b"x")
        disk.remove_tree("a")
        after = disk.crash()

        assert content_of(after, "a/b/x") == b"x"
        after.remove_tree("a")
        after.sync_directory("")
        assert after.crash().list_directory("") == []

    def test_a_directory_made_again_is_the_new_one(self) -> None:
        """What the removed directory held is not found in its successor."""
        disk = MemoryDisk()
        disk.make_directory("a")
        synced(disk, "a/x", b"x")
        disk.remove_tree("a")
        disk.make_directory("a")

        assert disk.crash().list_directory("a") == []

    def test_a_torn_crash_may_keep_the_first_changes_of_names(self) -> None:
        """Changes that nobody synced become durable in their order or not at all."""
        found = set()
        for seed in range(100):
            disk = MemoryDisk()
            synced(disk, "a", b"")
            disk.open("b", create=True)
            disk.remove("a")
            found.add(tuple(disk.crash(torn=Random(seed)).list_directory("")))

        assert found == {("a",), ("a", "b"), ("b",)}


class TestProcesses:
    def test_nothing_works_after_a_crash(self) -> None:
        """Old handles and old disks raise; only closing is allowed, for it is cleaning up."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"x")
        disk.crash()

        with pytest.raises(CrashError):
            file.read(START, 1)
        with pytest.raises(CrashError):
            file.append([b"y"])
        with pytest.raises(CrashError):
            file.sync()
        with pytest.raises(CrashError):
            disk.open("a")
        with pytest.raises(CrashError):
            disk.exists("a")
        file.close()

    def test_no_handler_of_the_broker_survives_a_crash(self) -> None:
        """CrashError is caught neither as an OSError, nor as ours, nor as any Exception."""
        assert not issubclass(CrashError, Exception)
        assert not issubclass(CrashError, OSError | GoQueueError)

    def test_the_lock_ends_with_its_process(self) -> None:
        """Another process waits for the holder, not for a dead one."""
        first = MemoryDisk()
        second = first.reopen()
        first.lock()
        with pytest.raises(DataDirLockedError, match="process 1"):
            second.lock()
        first.kill()
        second.lock()
        third = second.crash()
        third.lock()

        with pytest.raises(CrashError):
            second.lock()

    def test_two_handles_may_not_write_one_file(self) -> None:
        """On a real disk the second would overwrite the first, so here it is found out."""
        disk = MemoryDisk()
        one, two = disk.open("a", create=True), disk.open("a")
        one.append([b"x"])

        with pytest.raises(AssertionError, match="two handles"):
            two.append([b"y"])


class TestFailAt:
    def test_every_durable_operation_is_counted(self) -> None:
        """The log tells what a crash could have separated."""
        disk = MemoryDisk()
        disk.make_directory("a")
        disk.make_directory("a")
        write_atomically(disk, "a/x", b"x")
        disk.open("a/x").truncate(0)
        disk.remove_tree("a")

        assert disk.operations == len(disk.log) == 9
        assert disk.log == [
            Operation("make_directory", "a"),
            Operation("create", "a/x.tmp"),
            Operation("append", "a/x.tmp"),
            Operation("sync", "a/x.tmp"),
            Operation("rename", "a/x.tmp"),
            Operation("sync_directory", "a"),
            Operation("truncate", "a/x"),
            Operation("remove", "a/x"),
            Operation("remove", "a"),
        ]

    def test_the_process_dies_before_the_operation(self) -> None:
        """The n-th operation has not happened, and none follows it."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        disk.fail_at(disk.operations + 2)
        file.append([b"two"])

        with pytest.raises(CrashError, match="operation 6: sync a"):
            file.sync()
        with pytest.raises(CrashError):
            file.sync()
        assert content_of(disk.crash(), "a") == b"one"

    def test_an_operation_that_is_over_cannot_fail(self) -> None:
        """A number that would never come is a mistake in the test."""
        disk = MemoryDisk()
        synced(disk, "a", b"")

        with pytest.raises(ValueError, match="is over"):
            disk.fail_at(2)

    @pytest.mark.parametrize("seed", [None, *range(20)])
    def test_write_atomically_survives_a_crash_anywhere(self, seed: int | None) -> None:
        """At every operation the file holds the old content or the new, never a mix."""
        for number in range(1, 6):
            disk = MemoryDisk()
            write_atomically(disk, "x", b"old")
            disk = disk.kill()
            disk.fail_at(number)
            with pytest.raises(CrashError):
                write_atomically(disk, "x", b"new")
            after = disk.crash(torn=None if seed is None else Random(seed))

            assert content_of(after, "x") in (b"old", b"new")
