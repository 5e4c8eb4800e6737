"""Opening, truncating and searching a log of many segments."""

from pathlib import Path

import pytest

from goqueue.base.errors import DiskFullError, StorageFailedError
from goqueue.base.ids import Offset, Position
from goqueue.core.record.message import Draft
from goqueue.storage.local import LocalDisk
from goqueue.storage.log_segments import SEALED_OPEN_MAX
from goqueue.testing.disk import CrashError, MemoryDisk
from goqueue.testing.file import MemoryFile
from tests.storage.driver import DIRECTORY, NOW_MS, LogDriver, batch, row

SEGMENT_BYTES = 20_000


class Reads:
    """Counts the bytes that are read from memory disks."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()
    read = MemoryFile.read

    def counting(file: MemoryFile, position: Position, size_max: int) -> bytes:
        content = read(file, position, size_max)
        counted.count += len(content)
        return content

    monkeypatch.setattr(MemoryFile, "read", counting)
    return counted


def log_of(segments: int, *, torn: bool = False) -> MemoryDisk:
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=SEGMENT_BYTES)
    number = 0
    while len(driver.log.segments) < segments:
        driver.publish(row(b"." * 900, timestamp_us=number * 1_000))
        number += 1
    for _ in range(10):
        driver.publish(row(b"." * 900, timestamp_us=number * 1_000))
    if torn:
        disk = disk.kill()
        file = disk.open(f"{DIRECTORY}/{driver.log.segments[-1].base_offset:020d}.log")
        file.truncate(file.size() - 5)
    else:
        driver.log.close()
    return disk


@pytest.mark.parametrize("torn", [False, True], ids=["closed", "torn"])
def test_opening_reads_no_more_of_a_long_log(reads: Reads, *, torn: bool) -> None:
    """Trap B7: only the last segment's index and tail are read, however many come before."""
    counts = []
    for segments in (1, 50):
        disk = log_of(segments, torn=torn)
        reads.count = 0
        LogDriver(disk, segment_bytes=SEGMENT_BYTES)
        counts.append(reads.count)

    assert counts[1] <= counts[0]
    assert counts[0] < SEGMENT_BYTES // 2


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_long_log_keeps_few_files_open(tmp_path: Path) -> None:
    """Metrics, retention and searches by time look at every segment and hold on to none."""
    disk = LocalDisk(tmp_path)
    driver = LogDriver(disk, segment_bytes=200)
    for number in range(60):
        driver.publish(row(b"." * 100, timestamp_us=number * 1_000))
    driver.log.close()
    driver = LogDriver(disk, segment_bytes=200)
    before = open_files()

    assert driver.log.size_bytes > 6_000
    driver.log.expire(now_ms=NOW_MS, retention_ms=NOW_MS, retention_bytes=0)
    assert driver.reader.find_time(59_000) == 59
    assert len(driver.read()[0]) == 60
    assert open_files() <= before + SEALED_OPEN_MAX + 1


def test_a_time_is_found_in_any_segment() -> None:
    """Trap B1: hour 150 of 200 is not in the first segment, and retention deletes by it."""
    driver = LogDriver(MemoryDisk(), segment_bytes=5_000)
    hour_us = 3_600_000_000
    for hour in range(200):
        driver.publish(row(b"." * 50, timestamp_us=hour * hour_us))

    assert [driver.reader.find_time(hour * hour_us) for hour in (0, 62, 150, 199)] == [
        0,
        62,
        150,
        199,
    ]
    assert driver.reader.find_time(200 * hour_us) is None
    assert len(driver.log.segments) > 3
    now_ms = 150 * hour_us // 1_000 + 1
    count = driver.log.expire(now_ms=now_ms, retention_ms=1, retention_bytes=0)
    assert count > 1
    first = driver.log.start_offset
    assert first <= 150 < driver.log.segments[1].base_offset
    assert driver.reader.find_time(0) == first


def test_everything_old_goes_and_offsets_go_on() -> None:
    """Trap B1: also the segment that takes appends is deleted when all of it is old."""
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=5_000)
    for _ in range(100):
        driver.publish(row(b"." * 50))
    driver.log.expire(now_ms=NOW_MS, retention_ms=1, retention_bytes=0)

    assert (driver.log.start_offset, driver.log.end_offset) == (100, 100)
    assert driver.publish(row()) == 100
    assert LogDriver(disk.crash()).log.start_offset == 100


@pytest.mark.parametrize("end", [0, 5, 37, 99])
def test_a_truncated_log_goes_on_at_its_end(end: int) -> None:
    """Trap B4: the next append lands where the log was cut, on disk and in the indexes."""
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=5_000)
    for number in range(100):
        driver.append(row(b"%d" % number * 40, timestamp_us=number))
    driver.log.truncate(Offset(end))

    assert driver.publish(batch(4)) == end
    messages, _ = driver.read()
    assert [message.offset for message in messages] == list(range(end + 4))
    again = LogDriver(disk.crash(), segment_bytes=5_000)
    assert again.log.end_offset == end + 4
    assert again.read()[0] == messages


def test_a_kill_leaves_no_name_that_a_power_cut_takes() -> None:
    """What a killed process made and did not sync is synced by the next before it is used."""
    operation = 0
    while True:
        operation += 1
        disk = MemoryDisk()
        disk.fail_at(operation)
        try:
            write_some(LogDriver(disk, segment_bytes=300))
        except CrashError:
            disk = disk.kill()
        else:
            break
        driver = LogDriver(disk, segment_bytes=300)
        base = driver.publish(row(b"acknowledged"))
        messages, gaps = LogDriver(disk.crash(), segment_bytes=300).read()

        assert gaps == []
        assert messages[base].value == b"acknowledged"
    assert operation > 30


def write_some(driver: LogDriver) -> None:
    for number in range(6):
        driver.publish(row(b"%d" % number * 100))
    driver.log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_finds_no_room_comes_later(suffix: str) -> None:
    """Appends are durable without it, and the index is whole once there is room again."""
    disk = MemoryDisk()
    driver = LogDriver(disk)
    driver.publish(row(b"." * 5_000))
    disk.fill_up(path_glob=f"*{suffix}")
    for _ in range(5):
        driver.publish(row(b"." * 5_000))
    assert driver.log.failure is None
    with pytest.raises(DiskFullError):
        driver.log.roll()
    driver.publish(row(b"small"))
    disk.make_room()
    driver.publish(row(b"." * 5_000))
    driver.log.close()
    again = LogDriver(disk)

    assert again.log.recovery.index_rebuilds == 0
    assert len(again.log.segments[0].times) > 6
    assert len(again.read()[0]) == 8


def test_a_log_opens_on_a_full_disk() -> None:
    """Indexes that have to be made anew are made in memory; reads go on."""
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=3_000)
    for number in range(20):
        driver.publish(row(b"%d" % number * 200))
    messages, _ = driver.read()
    disk = disk.kill()
    for name in disk.list_directory(DIRECTORY):
        if not name.endswith(".log"):
            disk.remove(f"{DIRECTORY}/{name}")
    disk.fill_up()
    again = LogDriver(disk, segment_bytes=3_000)

    assert again.read() == (messages, [])
    with pytest.raises(DiskFullError):
        again.append(row())
    disk.make_room()
    assert again.publish(row()) == 20


def test_a_directory_that_cannot_be_synced_ends_the_writing() -> None:
    """A new segment whose name may not last takes no messages."""
    disk = MemoryDisk()
    driver = LogDriver(disk)
    driver.publish(row())
    disk.fail_sync(DIRECTORY)
    with pytest.raises(StorageFailedError):
        driver.log.roll()

    with pytest.raises(StorageFailedError):
        driver.append(row())
    assert len(driver.read()[0]) == 1
    assert LogDriver(disk.crash()).publish(row()) == 1


def test_frames_without_messages_never_fill_a_segment_of_their_own() -> None:
    """Two segments cannot begin at the same offset."""
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=400)
    for _ in range(10):
        driver.append_empty([Draft(value=b"repeat")])
    driver.publish(row(b"message"))
    driver.log.expire(now_ms=NOW_MS, retention_ms=1, retention_bytes=0)
    driver.append_empty([Draft(value=b"repeat")])
    driver.log.expire(now_ms=NOW_MS, retention_ms=1, retention_bytes=0)

    assert driver.publish(row(b"another")) == 1
    assert [one.value for one in LogDriver(disk.crash()).read()[0]] == [b"another"]
