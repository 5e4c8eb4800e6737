"""The batch written by hand is, byte by byte, the one Arrow writes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.client.producer.packing import PLAIN_ROWS_MAX, Packing
from goqueue.client.producer.pile import Pile
from goqueue.client.protocol.outcome import Part
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.check import check_frames
from goqueue.core.record.columns import build_batch
from goqueue.core.record.frame import read_header
from goqueue.core.record.plain_batch import PlainRows
from goqueue.core.record.stamp import NO_STAMP

ROWS = st.lists(
    st.tuples(st.binary(max_size=20), st.binary(max_size=50), st.integers(0, 2**50)),
    min_size=1,
    max_size=40,
)


@given(rows=ROWS, data=st.data())
def test_any_run_of_rows_is_what_arrow_writes(
    rows: list[tuple[bytes, bytes, int]], data: st.DataObject
) -> None:
    """Nobody can tell who has written a batch."""
    start = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(start + 1, len(rows)))
    keys, values, times = map(list, zip(*rows, strict=True))
    by_hand = PlainRows(keys, values, np.array(times, np.int64)).batch(start, end)
    batch, column_set = build_batch(
        keys=keys[start:end], values=values[start:end], timestamps_us=times[start:end]
    )

    assert by_hand == batch.serialize().to_pybytes()
    assert column_set == PlainRows.column_set


def test_a_missing_key_or_value_is_refused() -> None:
    """Who has messages without a key or a value is told, and lets Arrow write the batch."""
    for keys, values in (([b"a", None], [b"1", b"2"]), ([b"a", b"b"], [None, b"2"])):
        with pytest.raises(TypeError):
            PlainRows(keys, values, np.zeros(2, np.int64))  # type: ignore[arg-type]


def pile_of(rows: list[tuple[bytes | None, bytes | None, int]]) -> Pile:
    """Return a closed pile of keys, values and times."""
    pile = Pile("orders", lambda _: None, None, 1)  # type: ignore[arg-type]
    for key, value, time_ns in rows:
        pile.rows += (value, key, time_ns)
    pile.close()
    return pile


def messages(part: Part) -> pa.RecordBatch:
    """Return what a part holds as a reader sees it."""
    frame = memoryview(part.packed.frame(NO_STAMP))
    check_frames(frame, now_ms=0, transaction=7)
    return decode_batch(read_header(frame), frame)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("last", [(b"z", b"9", 5_000), (None, b"9", 5_000), (b"z", None, 5_000)])
def test_small_and_large_piles_are_cut_alike(
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    last: tuple[bytes | None, bytes | None, int],
) -> None:
    """How a batch is written is a question of speed only."""
    rows: list[tuple[bytes | None, bytes | None, int]] = [
        (b"%d" % number, b"v" * (number % 7), 1_000 * (1_000 - number)) for number in range(200)
    ]
    small = Packing(partitions, None).cut(pile_of([*rows, last]), 7)
    monkeypatch.setattr("goqueue.client.producer.packing.PLAIN_ROWS_MAX", 0)
    large = Packing(partitions, None).cut(pile_of([*rows, last]), 7)

    assert len(rows) < PLAIN_ROWS_MAX
    assert [one.partition for one in small] == [one.partition for one in large]
    assert [one.rows.tolist() for one in small] == [one.rows.tolist() for one in large]
    assert [messages(one) for one in small] == [messages(one) for one in large]
