"""Frames with some of their messages: right offsets, whole frames untouched, nothing else out."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.check import check_frames
from goqueue.core.record.columns import messages_of
from goqueue.core.record.control import Control, control_frame
from goqueue.core.record.cut import cut_frames
from goqueue.core.record.frame import FrameHeader, read_header, seal_header
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import Row
from tests.frames import split_frames

TOPIC, PARTITION = TopicName("t"), PartitionId(0)
NOW_MS = 1_700_000_000_000


def draft(number: int) -> Draft:
    return Draft(
        value=b"value %d" % number if number % 7 else None,
        key=b"key %d" % number if number % 3 else None,
        timestamp_us=number,
        headers={"number": b"%d" % number} if number % 5 == 0 else None,
        priority=number % 5,
        deliver_at_us=number * 1_000 if number % 2 else None,
    )


def stored(sizes: list[int], first: int = 0) -> memoryview:
    """Return frames of so many messages each, as a log holds them."""
    parts: list[bytes] = []
    offset = first
    for size in sizes:
        raw = frame_drafts([draft(offset + row) for row in range(size)])
        for checked in check_frames(memoryview(raw), now_ms=NOW_MS):
            header: FrameHeader = checked.header._replace(offset=Offset(offset))
            rest = memoryview(checked.frame)[34:]
            parts.append(seal_header(header, rest) + bytes(rest))
            offset += checked.rows
    return memoryview(b"".join(parts))


def messages(frames: memoryview) -> list[Message]:
    found: list[Message] = []
    for header, frame in split_frames(frames):
        if header.is_batch:
            batch = decode_batch(header, frame)
            found += messages_of(
                batch, topic=TOPIC, partition=PARTITION, first_offset=header.offset
            )
        else:
            found.append(Row(header, frame).message(TOPIC, PARTITION))
    return found


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    first=st.sampled_from([0, 7, 2**40]),
    data=st.data(),
)
def test_just_the_kept_messages_come_out(sizes: list[int], first: int, data: st.DataObject) -> None:
    """Whatever is kept comes out as it was, under its offset and in order; nothing else does."""
    frames = stored(sizes, first)
    rows = data.draw(st.sets(st.integers(0, sum(sizes) - 1)))
    keep = BitMap64([first + row for row in rows])
    out = memoryview(b"".join(cut_frames(frames, keep)))

    assert messages(out) == [one for one in messages(frames) if one.offset in keep]


def test_frames_kept_whole_are_the_same_bytes() -> None:
    """What needs no cutting is handed on as one view, without a copy."""
    frames = stored([10, 1, 30])
    keep = BitMap64(range(41))
    (out,) = cut_frames(frames, keep)

    assert out == frames
    assert isinstance(out, memoryview)
    assert out.obj is frames.obj


def test_a_long_run_stays_a_batch_and_a_short_one_becomes_rows() -> None:
    """Cutting the middle out of a batch leaves a batch on one side and single messages behind."""
    frames = stored([20])
    keep = BitMap64([*range(15), 18, 19])
    out = memoryview(b"".join(cut_frames(frames, keep)))
    headers = [header for header, _ in split_frames(out)]

    assert [(header.is_batch, header.offset) for header in headers] == [
        (True, 0),
        (False, 18),
        (False, 19),
    ]


def test_no_byte_of_what_is_left_out_goes_out() -> None:
    """Neither in front of a run nor behind it, nor in the padding of its columns."""
    frames = stored([60])
    keep = BitMap64(range(20, 40))
    out = b"".join(cut_frames(frames, keep))

    for number in range(10, 60):
        assert (b"value %d" % number in out) == (number in keep and number % 7 > 0)


def test_nothing_kept_is_nothing() -> None:
    """A frame none of whose messages is kept does not go out at all."""
    assert cut_frames(stored([5, 1, 1]), BitMap64()) == []
    assert read_header(stored([1], 3)).offset == 3


def test_marks_of_transactions_are_left_out() -> None:
    """Who is not shown everything is shown no marks either; messages around one stay whole."""
    control = Control(number=1, is_commit=False)
    mark = control_frame(control, name="tx", producer_id=1, epoch=0, timestamp_us=1)
    rest = memoryview(mark.frame)[34:]
    between = seal_header(mark.header, rest, offset=Offset(2)) + bytes(rest)
    frames = memoryview(bytes(stored([1, 1])) + between + bytes(stored([1], first=3)))
    out = memoryview(b"".join(cut_frames(frames, BitMap64([0, 2, 3]))))

    assert [message.offset for message in messages(out)] == [0, 3]
    assert sum(1 for _ in split_frames(out)) == 2
