"""The sparse index against a list of pairs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import CorruptFrameError
from goqueue.core.log.index import SparseIndex

pairs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30).map(
    lambda some: list(zip(*map(sorted, zip(*some, strict=True)), strict=True)) if some else []
)


def index_of(entries: list[tuple[int, int]]) -> SparseIndex:
    index = SparseIndex()
    for key, value in entries:
        index.add(key, value)
    return index


@given(pairs, st.integers(-1, 51))
def test_a_lookup_finds_the_last_entry_before(entries: list[tuple[int, int]], wanted: int) -> None:
    """Searching by halves finds what looking at every entry finds."""
    index = index_of(entries)
    before = [entry for entry in entries if entry[0] <= wanted]

    assert index.entry_at_or_before(wanted) == (before[-1] if before else None)
    assert index.count_before(key=wanted) == sum(key < wanted for key, _ in entries)
    assert index.count_below(value=wanted) == sum(value < wanted for _, value in entries)
    assert index.last() == (entries[-1] if entries else None)


@given(pairs, st.integers(0, 30))
def test_an_index_comes_back(entries: list[tuple[int, int]], start: int) -> None:
    """Its bytes are its entries, from any entry on, and any cut leaves its beginning."""
    index = index_of(entries)
    raw = index.encode()
    again = SparseIndex.decode(raw)
    again.cut(start)

    assert list(SparseIndex.decode(raw)) == entries
    assert index.encode(min(start, len(entries))) == raw[16 * start :]
    assert list(again) == entries[:start]


@given(pairs, pairs)
def test_two_indexes_agree_as_far_as_they_do(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    """Our keys are compared with the other's values, from the first on."""
    count = index_of(ours).agrees_with(index_of(theirs))
    common = [(a[0], b[1]) for a, b in zip(ours, theirs, strict=False)]

    assert all(key == value for key, value in common[:count])
    assert count == len(common) or common[count][0] != common[count][1]


@pytest.mark.parametrize(
    "raw", [bytes(15), bytes(17), b"\xff" * 16, bytes(15) + b"\x01" + bytes(16)]
)
def test_an_index_that_is_cut_or_out_of_order_is_refused(raw: bytes) -> None:
    """It is made anew from the log instead."""
    with pytest.raises(CorruptFrameError):
        SparseIndex.decode(raw)
