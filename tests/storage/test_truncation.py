"""Cutting a log that has gaps or damage, or a disk that fails meanwhile."""

import pytest

from goqueue.base.errors import InvalidRequestError, StorageFailedError
from goqueue.base.ids import Offset
from goqueue.storage.log_notes import Gap
from goqueue.storage.truncation import find_cut
from goqueue.testing.disk import MemoryDisk
from tests.storage.driver import LogDriver, batch, row


def driver_with_gap(disk: MemoryDisk) -> LogDriver:
    """Return a log of 0..10 and 20..30: between them is what a crash took."""
    driver = LogDriver(disk, segment_bytes=5_000)
    for _ in range(10):
        driver.publish(row(b"early"))
    driver.log.skip_to(Offset(20))
    for _ in range(10):
        driver.publish(row(b"late"))
    return driver


@pytest.mark.parametrize("end", [5, 10, 15, 20, 25])
def test_a_log_with_a_gap_is_cut_where_it_should_be(end: int) -> None:
    disk = MemoryDisk()
    driver = driver_with_gap(disk)
    driver.log.truncate(Offset(end))
    assert (driver.log.start_offset, driver.log.end_offset) == (0, end)
    gap = [Gap(Offset(10), Offset(min(end, 20)))] if end > 10 else []
    assert driver.log.recovery.gaps == gap
    again = LogDriver(disk.crash(), segment_bytes=5_000)
    assert again.publish(batch(3)) == end
    offsets = [message.offset for message in again.read()[0]]
    assert offsets == [one for one in range(end + 3) if one >= end or not 10 <= one < 20]


def test_bad_frames_before_the_cut_stay() -> None:
    """They may hold messages that are committed: what repairs them needs to see them."""
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=5_000)
    sizes = []
    for _ in range(10):
        driver.publish(row(b"early"))
        sizes.append(driver.log.size_bytes)
    disk.flip_bits(driver.log.segments[0].log_path, [sizes[6] - 1])
    driver.log.truncate(Offset(7))
    assert driver.log.size_bytes == sizes[6]
    assert driver.log.end_offset == 7
    assert driver.publish(row(b"new")) == 7
    messages, gaps = driver.read()
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4, 5, 7]
    assert gaps == [Gap(Offset(6), Offset(7))]


def test_an_offset_inside_a_batch_is_no_place_to_cut() -> None:
    driver = LogDriver(MemoryDisk(), segment_bytes=5_000)
    driver.publish(batch(5))
    with pytest.raises(InvalidRequestError):
        find_cut(driver.log.segments, Offset(3))
    assert find_cut(driver.log.segments, Offset(5)).size == driver.log.size_bytes


def test_a_disk_that_fails_half_way_leaves_a_log_that_takes_no_more() -> None:
    disk = MemoryDisk()
    driver = LogDriver(disk, segment_bytes=300)
    for _ in range(20):
        driver.publish(row(b"." * 50))
    disk.fail_sync("*.log")
    with pytest.raises(StorageFailedError):
        driver.log.truncate(Offset(4))
    with pytest.raises(StorageFailedError):
        driver.publish(row(b"more"))
    disk.heal()
    again = LogDriver(disk.crash(), segment_bytes=300)
    assert 4 <= again.log.end_offset <= 20
    again.log.truncate(Offset(4))
    assert again.publish(row(b"new")) == 4
