"""Frames of single messages, read and written in one go, are those of the general codec."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.base.limits import TIMESTAMP_AHEAD_MS_MAX
from goqueue.core.record.check import check_frames
from goqueue.core.record.message import Draft
from goqueue.core.record.row import PackedRows, encode_row
from goqueue.core.record.single_row import (
    PackedRow,
    PackedSingleRows,
    check_single_row,
    check_single_rows,
    encode_single_row,
)
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp

NOW_MS = 1_700_000_000_000
LATEST_US = (NOW_MS + TIMESTAMP_AHEAD_MS_MAX) * 1_000

stamps = st.one_of(
    st.just(NO_STAMP),
    st.builds(
        ProducerStamp,
        st.integers(0, 2**64 - 1).map(ProducerId),
        st.integers(0, 2**16 - 1).map(Epoch),
        st.integers(0, 2**64 - 1).map(Sequence),
    ),
)
times = st.one_of(st.integers(0, LATEST_US + 10), st.integers(LATEST_US - 2, LATEST_US + 2))
drafts = st.builds(
    Draft,
    value=st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=1, max_size=40)),
    key=st.one_of(st.none(), st.binary(max_size=9)),
    timestamp_us=times,
    headers=st.sampled_from([None, None, None, {"h": b"1"}]),
    priority=st.sampled_from([2, 2, 2, 0, 4]),
    deliver_at_us=st.sampled_from([None, None, None, NOW_MS * 1_000]),
    dedup_id=st.sampled_from([None, None, None, b"id"]),
)


def agrees(frame: bytes) -> bool:
    """Compare both ways with a frame; return True if the quick one took it."""
    single = check_single_row(memoryview(frame), now_ms=NOW_MS)
    if single is None:
        return False
    assert [single] == check_frames(memoryview(frame), now_ms=NOW_MS)
    return True


@given(drafts, stamps)
def test_a_frame_is_checked_as_by_check_frames(draft: Draft, stamp: ProducerStamp) -> None:
    """What ``check_single_row`` takes, ``check_frames`` takes, too, and sees the same in it."""
    is_plain = draft.value and not (draft.headers or draft.deliver_at_us or draft.dedup_id)
    is_plain = is_plain and draft.priority == 2 and draft.timestamp_us < LATEST_US

    is_taken = agrees(encode_row(draft, stamp=stamp))

    assert is_taken == bool(is_plain and draft.key != b"")


@given(drafts, stamps, st.integers(0))
def test_a_damaged_frame_is_not_taken(draft: Draft, stamp: ProducerStamp, seed: int) -> None:
    """One that is cut, has bytes behind it or a bit flipped is never taken for another."""
    random = Random(seed)
    frame = encode_row(draft, stamp=stamp)
    flipped = bytearray(frame)
    flipped[random.randrange(len(frame))] ^= 1 << random.randrange(8)
    changed = [bytes(flipped), frame[: random.randrange(len(frame))], frame + b"\0", frame + frame]

    for one in changed:
        if agrees(one):
            # Not covered by the checksum, and the same by the general way.
            assert one == bytes(flipped)
    with pytest.raises(GoQueueError):
        check_frames(memoryview(changed[1]), now_ms=NOW_MS)


@given(st.binary(min_size=1, max_size=99), st.binary(min_size=1, max_size=99), times, stamps)
def test_a_message_is_encoded_as_by_encode_row(
    value: bytes, key: bytes, time_us: int, stamp: ProducerStamp
) -> None:
    """``encode_single_row`` writes the bytes of ``encode_row``."""
    draft = Draft(value=value, key=key, timestamp_us=time_us)

    assert encode_single_row(value, key, time_us, stamp) == encode_row(draft, stamp=stamp)


@given(st.lists(drafts, max_size=5), stamps, st.integers(0))
def test_frames_are_checked_as_by_check_frames(
    many: list[Draft], stamp: ProducerStamp, seed: int
) -> None:
    """What ``check_single_rows`` takes, also cut or damaged, is what ``check_frames`` takes."""
    random = Random(seed)
    frames = b"".join([encode_row(draft, stamp=stamp) for draft in many])
    flipped = bytearray(frames)
    if frames:
        flipped[random.randrange(len(frames))] ^= 1 << random.randrange(8)
    for one in (frames, bytes(flipped), frames[: random.randrange(len(frames) + 1)], frames + b"G"):
        checked = check_single_rows(memoryview(one), now_ms=NOW_MS)
        if checked is not None:
            assert checked == check_frames(memoryview(one), now_ms=NOW_MS)
    are_taken = [agrees(encode_row(draft, stamp=stamp)) for draft in many]
    is_taken = check_single_rows(memoryview(frames), now_ms=NOW_MS) is not None
    assert is_taken == (bool(many) and all(are_taken))


@given(
    st.lists(st.tuples(st.binary(min_size=1), st.binary(min_size=1), times), max_size=5),
    st.builds(ProducerStamp, st.integers(0, 9).map(ProducerId), st.just(1), st.integers(0, 99)),
)
def test_few_messages_are_packed_as_by_packed_rows(
    many: list[tuple[bytes, bytes, int]], stamp: ProducerStamp
) -> None:
    """``PackedSingleRows`` writes the bytes of ``PackedRows``."""
    quick = PackedSingleRows([PackedRow(*one) for one in many])
    slow = PackedRows([Draft(value=one[0], key=one[1], timestamp_us=one[2]) for one in many])

    assert quick.frame(stamp) == slow.frame(stamp)
    assert quick.rows == slow.rows
