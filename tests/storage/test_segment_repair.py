"""A repaired segment is the one that was damaged, with good frames in the place of the bad ones."""

from random import Random

import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset
from goqueue.core.record.frame import read_header
from goqueue.storage.log_notes import Gap
from goqueue.storage.segment_repair import Damage, Patch, SegmentPlace, inspect, write_repaired
from goqueue.storage.swap import forget_swap
from goqueue.testing.disk import CrashError, MemoryDisk
from tests.storage.driver import DIRECTORY, LogDriver, batch, row

BATCH_ROWS = 40
LOG = f"{DIRECTORY}/{0:020d}.log"


def sealed(disk: MemoryDisk, frames: int = 8) -> tuple[LogDriver, SegmentPlace, list[bytes]]:
    """Return a log with one sealed segment, and the frames in it."""
    driver = LogDriver(disk)
    for number in range(frames):
        driver.publish(batch(BATCH_ROWS) if number % 2 else row(b"row %d" % number))
    driver.seal()
    segment = driver.log.segments[0]
    place = SegmentPlace(DIRECTORY, segment.base_offset, driver.log.end_of(segment), segment.size)
    raw, position = content_of(disk), 0
    parts: list[bytes] = []
    while position < len(raw):
        size = read_header(raw, position).size
        parts.append(raw[position : position + size])
        position += size
    return driver, place, parts


def content_of(disk: MemoryDisk) -> bytes:
    file = disk.open(LOG)
    return bytes(file.read(0, file.size()))  # type: ignore[arg-type]


def hurt(disk: MemoryDisk, frames: list[bytes], *numbers: int, at: int = -1) -> None:
    """Flip a bit in some frames, counted from the end of each."""
    for number in numbers:
        disk.flip_bits(LOG, [len(b"".join(frames[: number + 1])) + at])


def patched(damage: Damage, frames: list[bytes]) -> Patch:
    """Return the frames that belong into the damage."""
    chosen = [
        frame
        for frame in frames
        if damage.start_offset <= read_header(frame).offset < damage.end_offset
    ]
    return Patch(damage, b"".join(chosen), damage.end_offset)


def repair(driver: LogDriver, place: SegmentPlace, patches: list[Patch]) -> None:
    swap = write_repaired(driver.disk, place, patches)
    driver.log.replace(swap)
    forget_swap(driver.disk, DIRECTORY)


@pytest.mark.parametrize("numbers", [(0,), (3,), (7,), (2, 3), (0, 4, 7)], ids=str)
@pytest.mark.parametrize("at", [-1, -20], ids=["payload", "earlier"])
def test_the_bytes_are_those_from_before_the_damage(numbers: tuple[int, ...], at: int) -> None:
    disk = MemoryDisk()
    driver, place, frames = sealed(disk)
    before, (messages, _) = content_of(disk), driver.read()
    hurt(disk, frames, *numbers, at=at)
    damages = inspect(disk, place)
    assert len(damages) >= 1

    repair(driver, place, [patched(one, frames) for one in damages])
    assert content_of(disk) == before
    assert driver.read() == (messages, [])
    assert inspect(disk, place) == []
    # As another process finds it.
    assert LogDriver(disk.crash()).read() == (messages, [])


def test_what_was_not_found_stays_as_it_lies() -> None:
    disk = MemoryDisk()
    driver, place, frames = sealed(disk)
    hurt(disk, frames, 1, 5)
    first, second = inspect(disk, place)
    bad = content_of(disk)[second.position : second.end_position]

    repair(driver, place, [patched(first, frames)])
    assert bad in content_of(disk)
    _, gaps = driver.read()
    assert gaps == [Gap(second.start_offset, second.end_offset)]


def test_a_part_of_what_is_missing_goes_before_the_bad_bytes() -> None:
    disk = MemoryDisk()
    driver, place, frames = sealed(disk)
    hurt(disk, frames, 3, 4)
    (damage,) = inspect(disk, place)
    behind = Offset(damage.start_offset + BATCH_ROWS)

    repair(driver, place, [Patch(damage, frames[3], behind)])
    _, gaps = driver.read()
    assert gaps == [Gap(behind, damage.end_offset)]


def test_frames_that_do_not_fit_are_refused() -> None:
    """Nothing is put in place that is not good from end to end."""
    disk = MemoryDisk()
    _, place, frames = sealed(disk)
    hurt(disk, frames, 3)
    (damage,) = inspect(disk, place)
    with pytest.raises(StorageFailedError):
        write_repaired(disk, place, [Patch(damage, frames[1], damage.end_offset)])
    broken = bytes([*frames[3][:-1], frames[3][-1] ^ 1])
    with pytest.raises(StorageFailedError):
        write_repaired(disk, place, [Patch(damage, broken, damage.end_offset)])


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["lost", "killed", "torn"])
def test_a_crash_at_any_operation_leaves_the_old_or_the_new(seed: int | None) -> None:
    torn = Random(seed) if seed == 2 else None
    operation, is_over = 1, False
    while not is_over:
        disk = MemoryDisk()
        driver, place, frames = sealed(disk)
        whole, _ = driver.read()
        hurt(disk, frames, 2, 6)
        damages = inspect(disk, place)
        missing = [Gap(one.start_offset, one.end_offset) for one in damages]
        disk.fail_at(disk.operations + operation)
        try:
            repair(driver, place, [patched(one, frames) for one in damages])
            is_over = True
        except CrashError:
            pass
        disk = disk.kill() if seed == 1 else disk.crash(torn=torn)
        again = LogDriver(disk)
        messages, gaps = again.read()
        assert (messages, gaps) == (whole, []) or gaps == missing
        assert not [name for name in disk.list_directory(DIRECTORY) if ".cleaned" in name]
        operation += 1
    assert operation > 10
