"""The memory disk fails as a device would: syncs, room, speed and decay."""

import threading

import pytest

from goqueue.base.errors import DiskFullError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.testing.disk import CrashError, MemoryDisk, MemoryFile

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


class TestSyncFaults:
    def test_a_sync_fails_once_or_forever(self) -> None:
        """Only paths that match fail, as often as they were told to."""
        disk = MemoryDisk()
        one, two = disk.open("one.log", create=True), disk.open("two.index", create=True)
        error = OSError(5, "broken")
        disk.fail_sync("*.log", error)
        disk.fail_sync("two*", forever=True)

        with pytest.raises(StorageFailedError, match=r"cannot sync one\.log: broken") as caught:
            one.sync()
        assert caught.value.__cause__ is error
        one.sync()
        for _ in range(3):
            with pytest.raises(StorageFailedError):
                two.sync()
        disk.heal()
        two.sync()

    def test_bytes_of_a_failed_sync_are_never_durable(self) -> None:
        """A sync that succeeds later does not cover them: the system forgot that it owes them."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        file.append([b"two"])
        disk.fail_sync("a")
        with pytest.raises(StorageFailedError):
            file.sync()
        file.append([b"three"])
        file.sync()

        assert file.read(START, 100) == b"onetwothree"
        assert content_of(disk.crash(), "a") == b"one\0\0\0three"

    def test_bytes_written_anew_after_a_failed_sync_are_durable(self) -> None:
        """Whoever cuts the doubtful bytes off and writes them again is safe."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        file.append([b"two"])
        disk.fail_sync("a")
        with pytest.raises(StorageFailedError):
            file.sync()
        file.truncate(3)
        file.append([b"two"])
        file.sync()

        assert content_of(disk.crash(), "a") == b"onetwo"

    def test_a_kinder_failed_sync_may_be_repeated(self) -> None:
        """Without dropped pages the next sync covers everything."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        file.append([b"two"])
        disk.fail_sync("a", drops_pages=False)
        with pytest.raises(StorageFailedError):
            file.sync()
        file.sync()

        assert content_of(disk.crash(), "a") == b"onetwo"

    def test_a_directory_sync_fails_too(self) -> None:
        """The names stay pending."""
        disk = MemoryDisk()
        disk.open("a", create=True)
        disk.fail_sync("")
        with pytest.raises(StorageFailedError):
            disk.sync_directory("")

        assert disk.crash().list_directory("") == []

    def test_a_slow_sync_covers_only_what_came_before_it(self) -> None:
        """Bytes appended while the device works wait for the next sync."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        file.append([b"two"])
        disk.delay_sync(lambda _: file.append([b"three"]))
        file.sync()

        assert file.size() == 11
        assert content_of(disk.crash(), "a") == b"onetwo"

    def test_a_cut_during_a_sync_spares_what_is_below_it(self) -> None:
        """The sync covers the bytes that were there all the time."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        file.append([b"two"])
        disk.delay_sync(lambda _: file.truncate(5))
        file.sync()

        assert content_of(disk.crash(), "a") == b"onetw"

    def test_a_power_cut_during_a_sync_makes_nothing_durable(self) -> None:
        """The thread that syncs finds out that it is dead."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"one")
        file.append([b"two"])
        entered, released = threading.Event(), threading.Event()
        raised: list[BaseException] = []

        def wait(_: str) -> None:
            entered.set()
            released.wait(timeout=60)

        def sync() -> None:
            try:
                file.sync()
            except CrashError as error:
                raised.append(error)

        disk.delay_sync(wait)
        thread = threading.Thread(target=sync)
        thread.start()
        assert entered.wait(timeout=60)
        after = disk.crash()
        released.set()
        thread.join(timeout=60)

        assert len(raised) == 1
        assert content_of(after, "a") == b"one"


class TestRoom:
    def test_a_full_disk_takes_nothing_of_an_append(self) -> None:
        """What fits is written, what does not fit leaves the file as it was."""
        disk = MemoryDisk()
        file = disk.open("a", create=True)
        disk.fill_up(5)
        file.append([b"four"])
        with pytest.raises(DiskFullError):
            file.append([b"x", b"y"])
        assert (file.size(), disk.free_bytes()) == (4, 1)
        disk.make_room()
        file.append([b"xy"])

        assert file.read(START, 10) == b"fourxy"

    def test_cutting_replacing_and_removing_make_room(self) -> None:
        """Bytes given up can be written again."""
        disk = MemoryDisk()
        for name in ("a", "b", "c"):
            synced(disk, name, b"0123456789")
        disk.fill_up(0)
        disk.open("a").truncate(7)
        disk.rename("a", "b")
        disk.remove("c")

        assert disk.free_bytes() == 3 + 10 + 10

    def test_the_disk_is_full_for_one_kind_of_file(self) -> None:
        """A test can aim at the index and spare the log."""
        disk = MemoryDisk()
        disk.fill_up(path_glob="*.index")
        disk.open("a.log", create=True).append([b"x"])

        with pytest.raises(DiskFullError):
            disk.open("a.index", create=True).append([b"x"])


class TestDecay:
    def test_flipped_bits_are_read_and_stay(self) -> None:
        """The device changed them, so a crash does not repair them."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"abcd")
        disk.flip_bits("a", [1, 3])
        disk.flip_bits("a", [0], mask=0x20)

        assert file.read(START, 4) == b"Acce"
        assert content_of(disk.crash(), "a") == b"Acce"

    def test_cold_files_are_not_cached(self) -> None:
        """A cached read finds nothing while a plain read does."""
        disk = MemoryDisk()
        file = synced(disk, "a", b"abcd")
        disk.evict("a")

        assert file.read_cached(START, 4) is None
        assert file.read(START, 4) == b"abcd"
        disk.heal()
        assert file.read_cached(START, 4) == b"abcd"
