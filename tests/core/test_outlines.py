"""Walking over frames without reading their headers sees what a whole walk sees."""

from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.ids import Offset
from goqueue.core.log.scan import Walk
from goqueue.core.record.control import Control, control_frame
from goqueue.core.record.frame import read_header, seal_header
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts

ROW, HEADED, BATCH, COMMITTED, ABORTED, HOLE = range(6)


def frames_of(kind: int, offset: int) -> bytes:
    """Return one frame of a kind, sealed at an offset."""
    at = Offset(offset)
    if kind in (COMMITTED, ABORTED):
        control = Control(number=7, is_commit=kind == COMMITTED)
        mark = control_frame(control, name="tx", producer_id=1, epoch=0, timestamp_us=1)
        frame = bytes(mark.frame)
    elif kind == HOLE:
        ((_, _, frame),) = encode_holes(at, Offset(offset + 3))
    elif kind == BATCH:
        drafts = [Draft(value=b"v%d" % number, timestamp_us=number) for number in range(5)]
        frame = frame_drafts(drafts)
    else:
        headers = {"h": b"1"} if kind == HEADED else None
        frame = frame_drafts([Draft(value=b"value", key=b"key", timestamp_us=1, headers=headers)])
    rest = memoryview(frame)[34:]
    return seal_header(read_header(frame), rest, offset=at) + rest


def chunk_of(kinds: list[int]) -> bytes:
    chunk, offset = b"", 0
    for kind in kinds:
        chunk += frames_of(kind, offset)
        offset += {BATCH: 5, HOLE: 3}.get(kind, 1)
    return chunk


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(ROW, HOLE), min_size=1, max_size=6), st.data())
def test_outlines_are_those_of_the_walk(kinds: list[int], data: st.DataObject) -> None:
    """The same frames, the same end and the same fault, whatever byte is flipped or cut off."""
    chunk = bytearray(chunk_of(kinds))
    if data.draw(st.booleans()):
        # Flags lie in the fourth byte of a frame, and no checksum covers them.
        place = data.draw(st.just(3) | st.integers(0, len(chunk) - 1))
        chunk[place] ^= 1 << data.draw(st.integers(0, 7))
    chunk = chunk[: data.draw(st.integers(0, len(chunk)))] if data.draw(st.booleans()) else chunk
    whole, light = Walk(bytes(chunk)), Walk(bytes(chunk))
    expected = [(span.end, span.header.offset, span.end_offset) for span in whole]

    assert list(light.outlines()) == expected
    assert (light.position, light.needed) == (whole.position, whole.needed)
    assert repr(light.fault) == repr(whole.fault)
