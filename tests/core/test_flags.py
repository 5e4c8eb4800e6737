"""Flags lie outside the checksum: one that flipped is found, or means nothing."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.core.log.scan import Walk
from goqueue.core.record.check import check_frames
from goqueue.core.record.control import Control, control_frame, read_control
from goqueue.core.record.frame import CONTROL, TX_COMMIT, read_header
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import Row, encode_row
from goqueue.core.record.stamp import ProducerStamp

NOW_MS = 1_700_000_000_000
STAMP = ProducerStamp(7, 1, 0)  # type: ignore[arg-type]
UNCHECKED_BITS = range(32)
"""Those of the magic, the version and the flags."""
HOLE_AS_ROW = {(26, 27)}
"""Both flags of a hole: without them it is a row like any other."""


def stored(frames: bytes) -> bytes:
    """Return frames as the broker writes them."""
    return b"".join(
        bytes(one.frame) for one in check_frames(memoryview(frames), now_ms=NOW_MS, by_broker=True)
    )


def ended(*, is_commit: bool) -> bytes:
    control = Control(number=77, is_commit=is_commit)
    frame = control_frame(control, name="tx", producer_id=7, epoch=1, timestamp_us=5_000)
    return bytes(frame.frame)


def frames() -> Iterator[tuple[str, bytes]]:
    """Yield a frame of every kind there is in a log."""
    headers = {"a": b"1", "bc": b"two"}
    many = {f"h{number}": b"" for number in range(300)}
    rows = {
        "row": Draft(value=b"value", key=b"key"),
        "row like a control frame": Draft(value=bytes(14), key=b"tx", priority=0),
        "row like a control frame, with headers": Draft(
            value=bytes(14), key=b"tx", priority=0, headers=headers
        ),
        "row like a hole": Draft(value=bytes(7) + b"\x05", timestamp_us=3_000, priority=0),
        "row with headers": Draft(value=b"value", key=b"sixsix", headers=headers),
        "row with many headers": Draft(value=b"value", key=b"sixsix", headers=many),
        "empty": Draft(value=b"", key=b"key"),
        "empty with headers": Draft(value=b"", key=b"key", headers=headers),
        "tombstone": Draft(value=None, key=b"key"),
        "tombstone with headers": Draft(value=None, key=b"key", headers=headers),
        "empty key": Draft(value=b"", key=b""),
        "nothing": Draft(value=None),
    }
    for name, draft in rows.items():
        yield name, stored(encode_row(draft))
        yield f"stamped {name}", stored(encode_row(draft, stamp=STAMP))
        yield f"compacted {name}", encode_row(draft, is_stored=True)
    drafts = [Draft(value=b"value %d" % number, key=b"k") for number in range(20)]
    yield "batch", stored(frame_drafts(drafts))
    yield "batch with headers", stored(frame_drafts([Draft(value=b"", headers=headers)] * 20))
    yield "compressible batch", stored(frame_drafts([Draft(value=bytes(2_000))] * 50))
    yield "hole", next(encode_holes(Offset(3), Offset(9)))[2]
    yield "commit", ended(is_commit=True)
    yield "abort", ended(is_commit=False)


def meaning(raw: bytes) -> object:
    """Return what a reader makes of a frame; None if it is refused."""
    spans = list(Walk(raw))
    walk = Walk(raw)
    outlines = list(walk.outlines())
    assert outlines == [(one.end, one.header.offset, one.end_offset) for one in spans]
    if not spans:
        return None
    header = spans[0].header
    if header.flags & CONTROL:
        return header.is_hole, spans[0].rows, read_control(header, raw)
    if header.is_batch:
        return header.flags, spans[0].rows
    row = Row(header, raw)
    return row.key, row.value, row.headers, row.stamp


@pytest.mark.parametrize(("name", "raw"), list(frames()), ids=lambda one: str(one)[:40])
def test_a_flip_is_found(name: str, raw: bytes) -> None:
    """One flipped bit before the checksum, or two of them, change no message in silence."""
    del name
    truth = meaning(raw)
    assert truth is not None
    flips = {*combinations(UNCHECKED_BITS, 1), *combinations(UNCHECKED_BITS, 2)} - HOLE_AS_ROW
    for flip in flips:
        bad = bytearray(raw)
        for bit in flip:
            bad[bit // 8] ^= 1 << bit % 8
        assert meaning(bytes(bad)) in (None, truth), flip


def test_frames_of_earlier_versions_are_read() -> None:
    """They do not say their flags again; the flags they have are believed."""
    draft = Draft(value=None, key=b"key")
    old = encode_row(draft)

    assert meaning(old) is not None
    assert len(old) == FRAME_HEADER_BYTES + 3
    header = read_header(old)
    assert not header.flags & TX_COMMIT
    assert Row(header, old).value is None
