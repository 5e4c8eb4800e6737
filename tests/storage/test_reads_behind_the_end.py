"""A read at or behind the end of what may be seen finds nothing, and ends."""

import pytest

from goqueue.base.ids import Offset
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.testing.disk import MemoryDisk
from tests.storage.driver import LogDriver


@pytest.mark.parametrize("end", [0, 1, 2])
def test_a_read_behind_what_may_be_seen_finds_nothing(end: int) -> None:
    """Neither messages nor damage."""
    driver = LogDriver(MemoryDisk())
    for number in range(4):
        driver.publish(frame_drafts([Draft(value=b"%d" % number)]))
    offset = Offset(2)
    location = driver.reader.locate(offset, bytes_max=1_000)
    chunk = location.file.read(location.position, location.size)

    piece = driver.reader.pick(location, chunk, offset, end_offset=Offset(end), bytes_max=1_000)

    assert (bytes(piece.frames), piece.next_offset, piece.gaps) == (b"", offset, ())
