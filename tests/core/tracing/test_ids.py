"""Ids, the W3C header and sampling, against naive models of them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.core.record.batch import HEADERS_TYPE, pack_batch
from goqueue.core.record.check import check_frames
from goqueue.core.record.columns import build_batch
from goqueue.core.record.stamp import NO_STAMP
from goqueue.core.tracing import ids, sampling
from goqueue.core.tracing.caller_index import CallerIndex
from goqueue.core.tracing.callers import CallerRows, callers_of_batch
from goqueue.core.tracing.sampling import Sampler
from goqueue.core.tracing.traceparent import (
    TraceParent,
    format_traceparent,
    pack_parent,
    parse_traceparent,
    traceparents_of,
    unpack_parent,
)

U64 = st.integers(0, 2**64 - 1)
OFFSETS = st.integers(0, 2**62)
GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BAD = [
    b"",
    b"00",
    GOOD[:-1],
    GOOD + b"0",
    GOOD + b"-more",
    GOOD.upper(),
    b"ff" + GOOD[2:],
    GOOD.replace(b"0af7651916cd43dd8448eb211c80319c", b"0" * 32),
    GOOD.replace(b"b7ad6b7169203331", b"0" * 16),
    GOOD.replace(b"-", b"_"),
    GOOD.replace(b"0af", b"0ag"),
    GOOD[:-2] + b"zz",
    b" " + GOOD,
    GOOD + b"\n",
    b"01" + GOOD[2:] + b"x",
    b"cc-" + b"\xff" * 32 + b"-" + b"\x00" * 16 + b"-01",
    b"0" * 100_000,
]


@given(U64)
def test_mixing_can_be_undone(number: int) -> None:
    assert ids.unmix(ids.mix(number)) == number


@given(st.text(max_size=20), st.integers(0, 9_999), st.integers(0, 2**45), OFFSETS)
def test_a_trace_id_names_its_message(topic: str, number: int, life: int, offset: int) -> None:
    """Whoever knows the partitions finds the message from the id alone."""
    place = ids.place_of(topic, number, life=life)
    trace_id = ids.trace_id_of(place.tag, offset)

    assert trace_id >> 64 == place.tag
    assert ids.offset_of(trace_id) == offset
    assert ids.parse_trace_id(ids.hex_of(trace_id)) == trace_id
    assert ids.root_span_of(place.tag, offset) != ids.root_span_of(place.tag, offset + 1)
    made = traceparents_of(place.tag, np.array([offset, offset + 1]))
    assert parse_traceparent(made[offset].encode()) == TraceParent(
        trace_id, ids.root_span_of(place.tag, offset), is_sampled=True
    )


@pytest.mark.parametrize(
    "text", ["", "0" * 32, "x" * 32, "1" * 31, "1" * 33, "\uff11" * 32, "-" + "1" * 31]
)
def test_what_is_no_trace_id_is_none(text: str) -> None:
    assert ids.parse_trace_id(text) is None


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_traceparent_survives_the_way(trace_id: int, span_id: int, is_sampled: bool) -> None:  # noqa: FBT001
    parent = TraceParent(trace_id, span_id, is_sampled)

    assert parse_traceparent(format_traceparent(parent).encode()) == parent
    assert unpack_parent(pack_parent(parent)) == parent._replace(is_sampled=True)


@pytest.mark.parametrize("text", BAD)
def test_a_malformed_traceparent_is_none(text: bytes) -> None:
    """Whatever is not to the letter is not believed, and looking at it costs nothing."""
    assert parse_traceparent(text) is None
    assert callers_of_batch(pa.array([[("traceparent", text)]], HEADERS_TYPE)) is None


def test_a_later_version_is_read() -> None:
    """What a version of the future adds behind the flags is not ours to understand."""
    later = b"01" + GOOD[2:] + b"-what-the-future-brings"
    known = parse_traceparent(GOOD)

    assert parse_traceparent(later) == known
    rows = callers_of_batch(pa.array([None, [("traceparent", later)]], HEADERS_TYPE))
    assert rows is not None
    assert rows.sampled == {1: known}


TEXTS = st.one_of(
    st.sampled_from([*BAD[:-1], GOOD, GOOD[:-2] + b"00", GOOD[:-2] + b"03"]),
    st.binary(max_size=60),
    st.builds(
        lambda a, b, c: format_traceparent(TraceParent(a, b, c)).encode(),
        st.integers(1, 2**128 - 1),
        st.integers(1, 2**64 - 1),
        st.booleans(),
    ),
)
NAMES = st.sampled_from(["traceparent", "Traceparent", "tracestate", "source", "tracepareno", ""])


@given(st.lists(st.one_of(st.none(), st.dictionaries(NAMES, TEXTS, max_size=3)), max_size=30))
def test_a_batch_is_read_like_its_messages(headers: list[dict[str, bytes] | None]) -> None:
    """The columns say what the messages say one by one."""
    column = pa.array([None if one is None else list(one.items()) for one in headers], HEADERS_TYPE)
    parents = [parse_traceparent((one or {}).get("traceparent", b"")) for one in headers]
    known = [row for row, parent in enumerate(parents) if parent is not None]

    for found in (callers_of_batch(column), stored_callers(headers)):
        check_callers(found, parents, known)


def stored_callers(headers: list[dict[str, bytes] | None]) -> CallerRows | None:
    """Return what the broker finds in a batch that came by the wire."""
    if not headers:
        return None
    rows = len(headers)
    batch, column_set = build_batch(
        keys=[None] * rows, values=[b"x"] * rows, timestamps_us=[1] * rows, headers=headers
    )
    packed = pack_batch(batch, column_set=column_set, first_timestamp_us=1, last_timestamp_us=1)
    (checked,) = check_frames(memoryview(packed.frame(NO_STAMP)), now_ms=1)
    return None if checked.queue is None else checked.queue.callers


def check_callers(
    found: CallerRows | None, parents: list[TraceParent | None], known: list[int]
) -> None:
    if not known:
        assert found is None
        return
    assert found is not None
    assert found.rows.tolist() == known
    assert found.sampled == {
        row: parent
        for row, parent in enumerate(parents)
        if parent is not None and parent.is_sampled
    }


def test_the_index_of_callers_survives_a_file() -> None:
    index = CallerIndex()
    parent = parse_traceparent(GOOD)
    assert parent is not None
    index.note(100, CallerRows(np.arange(50), dict.fromkeys(range(50), parent)))
    index.note(200, CallerRows(np.array([0, 2, 3]), {2: parent}))
    again = CallerIndex.restore(index.snapshot())
    again.trim(149)

    assert index.known == BitMap64([*range(100, 150), 200, 202, 203])
    assert index.sampled == BitMap64([*range(100, 150), 202])
    assert again.known == BitMap64([149, 200, 202, 203])
    assert again.sampled == BitMap64([149, 202])


RATES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-9, 1e-6, 0.01, 0.5, 0.999999, 1.0]))


@given(U64, RATES, st.integers(0, 2**61), st.lists(st.integers(0, 5_000), min_size=1, max_size=8))
def test_a_range_is_sampled_like_its_parts(
    tag: int, rate: float, start: int, sizes: list[int]
) -> None:
    """However a range is cut, by whatever stage of a life, the same messages are chosen."""
    sampler = Sampler(tag, rate)
    parts, offset = BitMap64(), start
    for size in sizes:
        parts |= sampler.choose(offset, offset + size)
        offset += size

    assert sampler.choose(start, offset) == parts
    share = (offset - start) * sampling.millionths_of(rate) / sampling.SCALE
    assert abs(len(parts) - share) <= 2


@given(U64, st.floats(0.0001, 0.9999), st.integers(0, 2**40))
def test_columns_choose_what_single_strata_do(tag: int, rate: float, start: int) -> None:
    """The quick way for many and the quick way for few agree."""
    sampler = Sampler(tag, rate)

    whole = sampler.choose(start, start + 3_000)
    one_by_one = BitMap64(
        offset for offset in range(start, start + 3_000) if sampler.choose(offset, offset + 1)
    )

    assert whole == one_by_one


def test_no_place_in_a_stratum_is_preferred() -> None:
    """A topic whose messages come in turns of a hundred is not traced at one of them only."""
    chosen = Sampler(12_345, 0.01).choose(0, 1_000_000)
    places = np.bincount(np.array(list(chosen)) % 100, minlength=100)

    assert len(chosen) == 10_000
    assert places.min() > 50
    assert places.max() < 160


def test_a_new_rate_is_for_new_messages() -> None:
    """What was decided for a message stays decided."""
    sampler = Sampler(7, 0.01)
    before = sampler.choose(0, 10_000)
    sampler.change(1.0, from_offset=10_000)
    sampler.change(0.0, from_offset=10_100)

    assert sampler.choose(0, 10_000) == before
    assert len(sampler.choose(10_000, 20_000)) == 100
    assert not sampler.is_off
    for turn in range(100):
        sampler.change(turn % 2, from_offset=30_000 + turn)
    assert repr(sampler) == "<Sampler of 1000000 in a million>"


def test_headers_of_nobody_are_nobody_s() -> None:
    """A stranger's column may hold headers before the first message and behind the last."""
    names = pa.array(["traceparent"] * 4)
    values = pa.array([GOOD] * 4, pa.binary())
    column = pa.MapArray.from_arrays(pa.array([1, 1, 3], pa.int32()), names, values)
    found = callers_of_batch(column)

    assert found is not None
    assert found.rows.tolist() == [1]
    assert list(found.sampled) == [1]
    behind = pa.MapArray.from_arrays(pa.array([0, 0], pa.int32()), names, values)
    assert callers_of_batch(behind) is None
