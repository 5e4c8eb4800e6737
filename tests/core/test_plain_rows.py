"""Rows read quickly are those that are read with care; whatever is not a plain row ends them."""

from random import Random

import pytest

from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.core.log.plain_rows import plain_rows
from goqueue.core.log.scan import Walk
from goqueue.core.record.frame import HOLE, TOMBSTONE
from goqueue.core.record.hole import encode_holes, hole_rows
from goqueue.core.record.message import Draft
from goqueue.core.record.row import Row, encode_row


def row(
    offset: int, key: bytes, value: bytes | None, headers: dict[str, bytes] | None = None
) -> bytes:
    draft = Draft(value=value, key=key, timestamp_us=offset + 1, headers=headers)
    return encode_row(draft, offset=Offset(offset))


def test_rows_tombstones_and_holes_are_taken_in_order() -> None:
    """From the offset that was asked for, wherever the chunk begins."""
    chunk = b"".join(
        (
            row(5, b"a", b"before"),
            row(6, b"b", b"1"),
            row(7, b"b", None),
            *(frame for _, _, frame in encode_holes(Offset(8), Offset(20))),
            row(20, b"c", b""),
        )
    )

    assert plain_rows(chunk, offset=Offset(6)) == ([(b"b", b"1"), (b"b", None), (b"c", b"")], 21)
    assert plain_rows(chunk, offset=Offset(21)) == ([], 21)
    assert plain_rows(chunk[:-1], offset=Offset(7)).next_offset == 20


def test_what_is_not_plain_ends_it() -> None:
    """A gap, a headers block, a bad bit: nothing from there on is believed."""
    good = row(0, b"k", b"v")
    dice = Random(7)
    others = [
        row(2, b"k", b"behind a gap"),
        row(1, b"k", b"v", {"name": b"x"}),
        b"",
        b"GQ\x01",
    ]
    for position in range(len(good)):
        flipped = bytearray(row(1, b"k", b"v"))
        flipped[position] ^= 1 << dice.randrange(8)
        others.append(bytes(flipped))
    for other in others:
        found = plain_rows(good + other + row(2, b"k", b"last"), offset=Offset(0))
        assert found == ([(b"k", b"v")], 1)


def careful_rows(chunk: bytes, offset: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    """Return what frame by frame is there: the slow twin of ``plain_rows``."""
    rows: list[tuple[bytes, bytes | None]] = []
    for span in Walk(chunk):
        header, frame = span.header, chunk[span.start : span.end]
        one = Row(header, frame)
        if header.flags == HOLE and header.offset <= offset:
            offset = max(offset, header.offset + hole_rows(header, frame[FRAME_HEADER_BYTES:]))
            continue
        is_plain = header.flags in (0, TOMBSTONE) and one.key and one.headers is None
        if not is_plain or header.offset > offset:
            break
        assert one.key is not None
        if header.offset == offset:
            rows.append((one.key, one.value))
            offset += 1
    return rows, offset


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_those_of_a_careful_reader(seed: int) -> None:
    """Rows, tombstones, holes, gaps, headers, damage and cuts, in any order."""
    random = Random(seed)
    at, frames = 5, list[bytes]()
    for _ in range(30):
        key = random.randbytes(random.randrange(0 if random.random() < 0.05 else 1, 9))
        value = random.choice([None, b"", random.randbytes(20)])
        if random.random() < 0.1:
            end = at + random.randrange(1, 50)
            frames += [frame for _, _, frame in encode_holes(Offset(at), Offset(end))]
            at = end
            continue
        frames.append(row(at, key, value, {"name": b"x"} if random.random() < 0.02 else None))
        at += 1 if random.random() < 0.97 else 2
    chunk = bytearray(b"".join(frames))
    if random.random() < 0.5:
        chunk[random.randrange(len(chunk))] ^= 1 << random.randrange(8)
    if random.random() < 0.5:
        del chunk[random.randrange(len(chunk)) :]
    offset = random.randrange(3, 20)

    assert plain_rows(bytes(chunk), offset=Offset(offset)) == careful_rows(bytes(chunk), offset)
