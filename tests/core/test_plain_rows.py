"""Rows read quickly are those that are read with care; whatever is not a plain row ends them."""

from random import Random

from goqueue.base.ids import Offset
from goqueue.core.log.plain_rows import plain_rows
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row


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
