"""A hole cannot be forged, and one flipped bit makes nothing a hole and no hole a message."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import CorruptFrameError, InvalidRequestError
from goqueue.base.ids import Offset
from goqueue.core.log.scan import Walk
from goqueue.core.record.check import check_frames
from goqueue.core.record.frame import HOLE, encode_frame, read_header
from goqueue.core.record.hole import HOLE_ROWS_MAX, encode_holes
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row

FLAGS_AT = 3


def flipped(frame: bytes, bit: int) -> bytes:
    changed = bytearray(frame)
    changed[FLAGS_AT] ^= 1 << bit
    return bytes(changed)


@given(start=st.integers(0, 2**40), rows=st.integers(1, 3 * HOLE_ROWS_MAX))
def test_holes_cover_what_they_stand_for(start: int, rows: int) -> None:
    """Every offset once, in order, however many frames that takes."""
    frames = list(encode_holes(Offset(start), Offset(start + rows)))
    reached = start
    for span in Walk(b"".join(frame for _, _, frame in frames)):
        assert (span.header.offset, span.header.is_hole) == (reached, True)
        reached = span.end_offset

    assert reached == start + rows
    assert len(frames) == -(-rows // HOLE_ROWS_MAX)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_flag_makes_no_hole_a_message(bit: int) -> None:
    """Its sizes fit no other frame."""
    ((_, _, frame),) = encode_holes(Offset(5), Offset(9))

    with pytest.raises(CorruptFrameError):
        read_header(flipped(frame, bit))


@pytest.mark.parametrize("value", [None, b"", b"12345678"])
@pytest.mark.parametrize("priority", [0, 2])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_flag_makes_no_message_a_hole(
    value: bytes | None, priority: int, bit: int
) -> None:
    """Whatever else becomes of it, its offset is not passed over in silence."""
    frame = flipped(encode_row(Draft(value=value, priority=priority)), bit)
    try:
        header = read_header(frame)
    except CorruptFrameError:
        return

    assert not header.is_hole


@pytest.mark.parametrize("end", [0, 5, 4, 5 + HOLE_ROWS_MAX + 1, 2**63, 2**64 - 1])
def test_a_hole_of_an_impossible_size_is_a_fault(end: int) -> None:
    """A good checksum alone is not believed."""
    frame = encode_frame(
        flags=HOLE, offset=Offset(5), timestamp_ns=0, value=struct.pack(">Q", end), priority=0
    )
    walk = Walk(frame)

    assert list(walk) == []
    assert walk.fault is not None


def test_nobody_can_publish_a_hole() -> None:
    """Only the broker empties offsets."""
    ((_, _, frame),) = encode_holes(Offset(0), Offset(9))

    with pytest.raises(InvalidRequestError, match="control frames"):
        check_frames(memoryview(encode_row(Draft(value=b"x")) + frame), now_ms=0)
