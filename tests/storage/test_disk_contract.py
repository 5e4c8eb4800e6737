"""What every disk promises, asked of the real one and of its twin in memory."""

import os
import random
from pathlib import Path

import pytest

from goqueue.base.errors import DataDirLockedError, InvalidNameError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.storage.disk import Disk, File, write_atomically
from goqueue.storage.local import LocalDisk
from goqueue.testing.disk import MemoryDisk

START = Position(0)
HOSTILE_PATHS = ["..", "../a", "a/../b", "a/..", "/a", "a//b", "a/", "./a", "a/.", "a\0b", "\0"]


def write(disk: Disk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.append([content])
    file.sync()
    file.close()


def content_of(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(START, file.size() + 1)
    finally:
        file.close()


class DiskContract:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Disk:
        raise NotImplementedError

    def another_process(self, disk: Disk) -> Disk:
        """Return the same tree as another process sees it."""
        raise NotImplementedError

    def restart(self, disk: Disk) -> Disk:
        """Lose whatever this disk can be made to lose and return the tree as found after that."""
        raise NotImplementedError

    @pytest.fixture
    def file(self, disk: Disk) -> File:
        disk.make_directory("logs")
        return disk.open("logs/a", create=True)

    def test_append_writes_all_buffers_at_the_end(self, file: File) -> None:
        """Buffers of any kind land one after the other, and the length follows."""
        file.append([b"one", bytearray(b"two"), memoryview(b"-three-")[1:-1]])
        file.append([b"four"])

        assert file.size() == 15
        assert file.read(START, 100) == b"onetwothreefour"

    def test_append_counts_bytes_not_items(self, file: File) -> None:
        """A view of wider items is as long as its bytes."""
        file.append([memoryview(b"12345678").cast("I"), b"9"])

        assert file.size() == 9
        assert file.read(START, 100) == b"123456789"

    @pytest.mark.parametrize("buffers", [[], [b""], [b"", b""]])
    def test_appending_nothing_changes_nothing(self, file: File, buffers: list[bytes]) -> None:
        """No buffers, or empty ones, are a valid append."""
        file.append([b"x"])
        file.append(buffers)

        assert file.size() == 1

    def test_append_takes_any_number_of_buffers(self, file: File) -> None:
        """More buffers than one system call accepts are still one append."""
        count = os.sysconf("SC_IOV_MAX") * 2 + 3
        file.append([b"%07d" % number for number in range(count)])
        file.append([b"end"])

        assert file.size() == 7 * count + 3
        assert file.read(Position(7 * (count - 1)), 100) == b"%07dend" % (count - 1)

    def test_append_takes_large_buffers(self, file: File) -> None:
        """Megabytes come back as they went in."""
        content = random.Random(1).randbytes(5_000_000)
        file.append([content[:1_000_001], content[1_000_001:]])

        assert file.read(START, 6_000_000) == content

    def test_read_returns_fewer_bytes_only_at_the_end(self, file: File) -> None:
        """Inside the file a read is complete; at and beyond the end it is empty."""
        file.append([b"0123456789"])

        assert file.read(Position(2), 3) == b"234"
        assert file.read(Position(8), 3) == b"89"
        assert file.read(Position(10), 3) == b""
        assert file.read(Position(99), 3) == b""
        assert file.read(START, 0) == b""

    def test_read_returns_bytes_of_its_own(self, file: File) -> None:
        """What was read does not change with the file."""
        file.append([b"before"])
        content = file.read(START, 6)
        file.truncate(0)
        file.append([b"after!"])

        assert isinstance(content, bytes)
        assert content == b"before"

    @pytest.mark.parametrize(("position", "size_max"), [(0, 10), (3, 4), (8, 9), (10, 1), (50, 1)])
    def test_read_cached_agrees_with_read(self, file: File, position: int, size_max: int) -> None:
        """It returns what read would, or None, never something else."""
        file.append([b"0123456789"])
        cached = file.read_cached(Position(position), size_max)

        assert cached in (None, file.read(Position(position), size_max))

    def test_reading_and_writing_share_no_cursor(self, file: File) -> None:
        """A read between two appends does not move the second."""
        file.append([b"one"])
        file.read(START, 1)
        file.append([b"two"])

        assert file.read(START, 6) == b"onetwo"

    def test_truncate_cuts_and_the_next_append_follows_the_cut(self, file: File) -> None:
        """After a cut the file ends there."""
        file.append([b"0123456789"])
        file.truncate(4)
        file.append([b"x"])

        assert file.size() == 5
        assert file.read(START, 10) == b"0123x"

    @pytest.mark.parametrize("size", [-1, 4])
    def test_truncate_only_cuts(self, file: File, size: int) -> None:
        """A cut to a length that the file does not have is a bug of the caller."""
        file.append([b"abc"])

        with pytest.raises(ValueError, match="cannot cut"):
            file.truncate(size)
        assert file.read(START, 10) == b"abc"

    def test_synced_bytes_survive_a_crash(self, disk: Disk, file: File) -> None:
        """What was synced, in a directory that was synced, is found again."""
        file.append([b"kept"])
        file.sync()
        disk.sync_directory("logs")

        assert content_of(self.restart(disk), "logs/a") == b"kept"

    def test_a_synced_cut_survives_a_crash(self, disk: Disk, file: File) -> None:
        """Bytes that were cut off do not come back after a sync."""
        file.append([b"kept, not kept"])
        file.sync()
        disk.sync_directory("logs")
        file.truncate(4)
        file.sync()

        assert content_of(self.restart(disk), "logs/a") == b"kept"

    def test_a_reopened_file_continues_at_its_end(self, disk: Disk, file: File) -> None:
        """The length is found again and appends follow it."""
        file.append([b"one"])
        file.close()
        again = disk.open("logs/a")
        again.append([b"two"])

        assert again.size() == 6
        assert again.read(START, 10) == b"onetwo"

    def test_create_keeps_what_is_there(self, disk: Disk, file: File) -> None:
        """Opening with create never empties a file."""
        file.append([b"one"])
        file.close()

        assert disk.open("logs/a", create=True).read(START, 10) == b"one"

    def test_a_file_knows_its_path(self, file: File) -> None:
        """The path is relative to the data directory."""
        assert file.path == "logs/a"

    def test_closing_twice_is_fine(self, file: File) -> None:
        """The second close does nothing."""
        file.close()
        file.close()

    def test_a_closed_file_refuses(self, file: File) -> None:
        """Using a closed file is a bug of the caller and never touches another file."""
        file.append([b"abc"])
        file.close()

        with pytest.raises(ValueError, match="closed"):
            file.append([b"x"])
        with pytest.raises(ValueError, match="closed"):
            file.read(START, 1)
        with pytest.raises(ValueError, match="closed"):
            file.read(Position(9), 1)
        with pytest.raises(ValueError, match="closed"):
            file.truncate(0)
        with pytest.raises(ValueError, match="closed"):
            file.sync()

    def test_a_missing_file_is_not_opened(self, disk: Disk) -> None:
        """Without create, or without its directory, there is no file to open."""
        with pytest.raises(FileNotFoundError):
            disk.open("a")
        with pytest.raises(FileNotFoundError):
            disk.open("missing/a", create=True)

    def test_a_directory_is_not_a_file(self, disk: Disk) -> None:
        """Opening, removing or listing the wrong kind fails loudly."""
        disk.make_directory("logs")
        write(disk, "a", b"")

        with pytest.raises(StorageFailedError):
            disk.open("logs")
        with pytest.raises(StorageFailedError):
            disk.remove("logs")
        with pytest.raises(StorageFailedError):
            disk.list_directory("a")
        with pytest.raises(StorageFailedError):
            disk.make_directory("a")
        with pytest.raises(StorageFailedError):
            disk.remove_tree("a")

    def test_exists_knows_files_and_directories(self, disk: Disk, file: File) -> None:
        """Both kinds are there; what was never made is not."""
        assert disk.exists(file.path)
        assert disk.exists("logs")
        assert disk.exists("")
        assert not disk.exists("logs/b")
        assert not disk.exists("other/b")

    def test_names_are_listed_sorted(self, disk: Disk) -> None:
        """Files and directories appear once each, in order; a missing directory is empty."""
        disk.make_directory("b/inner")
        for name in ("c", "a", "b/z"):
            write(disk, name, b"")

        assert disk.list_directory("") == ["a", "b", "c"]
        assert disk.list_directory("b") == ["inner", "z"]
        assert disk.list_directory("missing") == []

    def test_directories_are_made_with_their_parents_durably(self, disk: Disk) -> None:
        """No sync is needed after make_directory, and making it again is fine."""
        disk.make_directory("a/b/c")
        disk.make_directory("a/b/c")

        assert self.restart(disk).exists("a/b/c")

    def test_many_directories_are_made_at_once(self, disk: Disk) -> None:
        """All of them are durable with their parents, those that were there before included."""
        disk.make_directory("a/0")
        disk.make_directories(["a/0", "a/1", "b/c/0", "b/c/1"])
        disk.make_directories([])

        found = self.restart(disk)
        assert found.list_directory("") == ["a", "b"]
        assert found.list_directory("a") == ["0", "1"]
        assert found.list_directory("b/c") == ["0", "1"]

    def test_a_file_is_no_directory(self, disk: Disk) -> None:
        """The error names what is in the way."""
        write(disk, "a", b"")

        with pytest.raises(StorageFailedError, match="a"):
            disk.make_directories(["b", "a/0"])

    def test_syncing_a_missing_directory_is_an_error(self, disk: Disk) -> None:
        """A sync never pretends."""
        with pytest.raises(FileNotFoundError):
            disk.sync_directory("missing")

    def test_rename_replaces_the_target(self, disk: Disk) -> None:
        """The target has the source's content, the source is gone, also after a crash."""
        write(disk, "old", b"old")
        write(disk, "new", b"new")
        disk.rename("new", "old")
        disk.sync_directory("")
        after = self.restart(disk)

        assert after.list_directory("") == ["old"]
        assert content_of(after, "old") == b"new"

    def test_a_directory_is_renamed_with_all_it_holds(self, disk: Disk) -> None:
        """A tree moves as one."""
        disk.make_directory("a/b")
        disk.make_directory("trash")
        write(disk, "a/b/x", b"x")
        disk.rename("a", "trash/a")

        assert disk.list_directory("") == ["trash"]
        assert content_of(disk, "trash/a/b/x") == b"x"

    def test_a_rename_that_cannot_be_leaves_all_as_it_was(self, disk: Disk) -> None:
        """A missing source, and a target that holds files, are refused."""
        disk.make_directory("a")
        disk.make_directory("b")
        write(disk, "b/x", b"x")

        with pytest.raises(FileNotFoundError):
            disk.rename("missing", "a/x")
        with pytest.raises(FileNotFoundError):
            disk.rename("b/x", "missing/x")
        for source, target in [("a", "b"), ("b/x", "a"), ("a", "b/x"), ("b", "b/y")]:
            with pytest.raises(StorageFailedError):
                disk.rename(source, target)
        disk.rename("b/x", "b/x")
        assert disk.list_directory("") == ["a", "b"]
        assert content_of(disk, "b/x") == b"x"

    def test_an_open_file_outlives_its_name(self, disk: Disk, file: File) -> None:
        """A reader that has a removed file open still reads it."""
        file.append([b"still here"])
        disk.remove("logs/a")

        assert file.read(START, 100) == b"still here"
        assert not disk.exists("logs/a")

    def test_removed_files_stay_removed(self, disk: Disk) -> None:
        """After a sync of the directory a removal survives; removing twice is fine."""
        write(disk, "a", b"")
        disk.sync_directory("")
        disk.remove("a")
        disk.remove("a")
        disk.sync_directory("")

        assert self.restart(disk).list_directory("") == []

    def test_a_tree_is_removed_with_all_it_holds(self, disk: Disk) -> None:
        """Nothing below the directory is left, its neighbours are; a missing tree is fine."""
        disk.make_directory("a/b/c")
        write(disk, "a/x", b"x")
        write(disk, "a/b/y", b"y")
        write(disk, "ab", b"")
        disk.remove_tree("a")
        disk.remove_tree("a")

        assert disk.list_directory("") == ["ab"]

    def test_there_is_room_on_a_fresh_disk(self, disk: Disk) -> None:
        """The free space is a number of bytes."""
        disk.make_directory("")

        assert disk.free_bytes() > 0

    def test_the_lock_is_taken_once(self, disk: Disk) -> None:
        """A second owner is refused and told who the first is; the first may ask again."""
        other = self.another_process(disk)
        disk.lock()
        disk.lock()

        with pytest.raises(DataDirLockedError, match=r"in use by process \d+"):
            other.lock()
        disk.unlock()
        other.lock()
        other.unlock()
        other.unlock()

    def test_the_lock_is_not_a_file_of_the_tree(self, disk: Disk) -> None:
        """Listing the data directory shows what the broker put there and nothing else."""
        disk.lock()

        assert disk.list_directory("") == []
        disk.unlock()

    @pytest.mark.parametrize("path", HOSTILE_PATHS)
    def test_no_path_leads_outside(self, disk: Disk, path: str) -> None:
        """Every method refuses a path that is not plainly below the data directory."""
        write(disk, "fine", b"")

        for method in (
            disk.open,
            disk.exists,
            disk.list_directory,
            disk.make_directory,
            disk.sync_directory,
            disk.remove,
            disk.remove_tree,
        ):
            with pytest.raises(InvalidNameError):
                method(path)
        for source, target in [(path, "fine"), ("fine", path)]:
            with pytest.raises(InvalidNameError):
                disk.rename(source, target)
        with pytest.raises(InvalidNameError):
            disk.open(path, create=True)

    def test_the_root_itself_is_not_an_entry(self, disk: Disk) -> None:
        """The data directory cannot be opened, renamed or removed."""
        for method in (disk.open, disk.remove, disk.remove_tree):
            with pytest.raises(InvalidNameError):
                method("")
        with pytest.raises(InvalidNameError):
            disk.rename("", "a")

    def test_write_atomically_replaces_durably(self, disk: Disk) -> None:
        """The new content is there after a crash and the temporary file is not."""
        disk.make_directory("meta")
        write_atomically(disk, "meta/topics", b"one")
        write_atomically(disk, "meta/topics", b"two")
        after = self.restart(disk)

        assert after.list_directory("meta") == ["topics"]
        assert content_of(after, "meta/topics") == b"two"


class TestLocalDisk(DiskContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Disk:
        self.root = tmp_path / "made" / "on" / "demand"
        disk = LocalDisk(self.root)
        disk.make_directory("")
        return disk

    def another_process(self, disk: Disk) -> Disk:
        assert isinstance(disk, LocalDisk)
        return LocalDisk(self.root)

    def restart(self, disk: Disk) -> Disk:
        return self.another_process(disk)


class TestMemoryDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> Disk:
        return MemoryDisk()

    def another_process(self, disk: Disk) -> Disk:
        assert isinstance(disk, MemoryDisk)
        return disk.reopen()

    def restart(self, disk: Disk) -> Disk:
        assert isinstance(disk, MemoryDisk)
        return disk.crash()
