"""Sets, arrays and runs of offsets are the same offsets."""

from random import Random

import numpy as np
import pytest
from pyroaring import BitMap64

from goqueue.core.delivery.runs import (
    Written,
    array_of,
    count_of,
    is_written,
    numbers_in,
    peek_at,
    runs_in,
    runs_of,
    set_from,
    set_of,
    written_in,
    written_of,
)


def some_offsets(seed: int) -> list[int]:
    """Return offsets near and far from one another, few and many."""
    random = Random(seed)
    start = random.choice([0, 65_000, 2**32 - 40_000, 2**40, 2**61])
    span = random.choice([10, 3_000, 70_000, 400_000, 2**33])
    count = random.choice([0, 1, 5, 63, 64, 5_000, 20_000])
    return sorted({start + random.randrange(span) for _ in range(count)})


@pytest.mark.parametrize("seed", range(60))
def test_every_form_holds_the_same_offsets(seed: int) -> None:
    """However offsets are written down, they are the same."""
    offsets = some_offsets(seed)
    made = set_from(np.array(offsets, np.int64))
    runs = runs_of(made)

    assert made == BitMap64(offsets)
    assert array_of(made).tolist() == offsets
    assert runs == runs_in(offsets)
    assert set_of(runs) == made
    for written in (runs, written_of(made), written_in(np.array(offsets, np.int64))):
        assert set_of(written) == made
        assert peek_at(written) == made
        assert numbers_in(written).tolist() == offsets
        assert count_of(written) == len(offsets)
        assert is_written(written, end_offset=2**62)


def test_many_single_offsets_are_packed() -> None:
    """Four bytes for an offset, where runs would take ten."""
    written = written_of(BitMap64(range(2**40, 2**40 + 2_000, 2)))

    assert isinstance(written, bytes)
    assert len(written) == 8 + 4 * 1_000


def test_a_set_of_ones_own_may_be_changed() -> None:
    """Sets that come again are kept as they were read; nobody's changes are seen by others."""
    offsets = BitMap64(range(0, 2_000, 2))
    written = written_of(offsets)
    set_of(written).clear()
    offsets.clear()

    assert len(set_of(written)) == len(peek_at(written)) == 1_000


def test_a_set_packed_here_is_not_believed_to_be_within_bounds() -> None:
    """That it ascends is known; what bound there is, only who asks knows."""
    written = written_of(BitMap64(range(0, 2_000, 2)))

    assert isinstance(written, bytes)
    assert is_written(written, end_offset=1_999)
    assert not is_written(written, end_offset=1_998)
    assert not is_written(written[:-4] + written[8:12], end_offset=2_000)


def test_what_does_not_ascend_keeps_its_order() -> None:
    """The order of lanes is not that of offsets."""
    order = [*range(50, 150, 2), *range(0, 50, 3)]

    assert numbers_in(written_in(np.array(order))).tolist() == order


FIRST = bytes(8)


@pytest.mark.parametrize(
    "written",
    [
        [1],
        [1, 1],
        [2, 1],
        [0, 5, 4, 9],
        [3, 4, 1, 2],
        [0, 2**62 + 1],
        [-1, 4],
        b"",
        FIRST,
        FIRST + bytes(3),
        FIRST + bytes(8),
        b"\xff" * 8 + bytes(4),
        (2**62).to_bytes(8, "little") + bytes(4),
    ],
)
def test_what_is_no_set_is_refused(written: Written) -> None:
    """Ascending, none empty, within the bound, whichever form a stranger chose."""
    assert not is_written(written, end_offset=2**62)
