"""What is encoded is decoded again, whatever it is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, Sequence, TopicName
from goqueue.core.log.scan import Walk
from goqueue.core.record.batch import (
    BatchFields,
    decode_batch,
    decode_fields,
    encode_fields,
    pack_batch,
)
from goqueue.core.record.check import check_frames
from goqueue.core.record.columns import batch_of_drafts, messages_of
from goqueue.core.record.frame import (
    HAS_HEADERS,
    TOMBSTONE,
    encode_frame,
    read_header,
    verify,
)
from goqueue.core.record.headers import decode_headers, encode_headers
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import drafts_of, frame_drafts
from goqueue.core.record.row import Row, encode_row
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp, Repeat
from tests.frames import split_frames

TOPIC = TopicName("orders")
NOW_MS = 1_700_000_000_000

names = st.text(max_size=20).filter(lambda name: not name.startswith("__"))
headers = st.dictionaries(names, st.binary(max_size=30), max_size=4)
drafts = st.builds(
    Draft,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=100),
    timestamp_us=st.integers(0, NOW_MS * 1_000),
    headers=st.none() | headers.filter(bool),
    priority=st.integers(0, 4),
    deliver_at_us=st.none() | st.integers(0, 2**52),
    dedup_id=st.none() | st.binary(max_size=40),
)
stamps = st.just(NO_STAMP) | st.builds(
    ProducerStamp,
    st.integers(1, 2**64 - 1).map(ProducerId),
    st.integers(0, 65_535).map(Epoch),
    st.integers(0, 2**63).map(Sequence),
)
offsets = st.integers(0, 2**62).map(Offset)


def messages_in(frames: bytes) -> list[Message]:
    messages: list[Message] = []
    for header, frame in split_frames(memoryview(frames)):
        if header.is_batch:
            batch = decode_batch(header, frame)
            messages += messages_of(
                batch, topic=TOPIC, partition=PartitionId(0), first_offset=header.offset
            )
        else:
            messages.append(Row(header, frame).message(TOPIC, PartitionId(0)))
    return messages


@given(offsets, st.binary(max_size=50), st.binary(max_size=50), st.binary(max_size=50))
def test_a_frame_comes_back(offset: Offset, key: bytes, value: bytes, block: bytes) -> None:
    """Every part of a frame is where it was, and the checksum holds."""
    flags = (HAS_HEADERS if block else 0) | (0 if value else TOMBSTONE)
    frame = encode_frame(
        flags=flags, offset=offset, timestamp_ns=7, key=key, value=value, headers=block, priority=4
    )
    header = read_header(frame)
    verify(frame, header)

    assert header[0] == flags
    assert header[2:5] == (offset, 7, 4)
    assert header[5:] == (len(key), len(value), len(block))
    assert frame[34:] == key + value + block


@settings(max_examples=25)
@given(
    st.one_of(drafts.map(encode_row), st.lists(drafts, min_size=4, max_size=4).map(frame_drafts))
)
def test_no_single_bit_of_a_frame_can_flip_unnoticed(frame: bytes) -> None:
    """Also in the flags, which the contract leaves out of the checksum.

    With one exception the contract leaves no room for: an empty value and a tombstone differ in one
    bit only.
    """
    header = read_header(frame)
    body = range(34 * 8, len(frame) * 8)
    for bit in [*range(34 * 8), *body[:: max(1, len(body) // 200)]]:
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        if bit // 8 == 3 and 1 << bit % 8 == TOMBSTONE and not header.value_size:
            continue
        assert list(Walk(bytes(flipped))) == []


@given(headers)
def test_a_headers_block_comes_back(block: dict[str, bytes]) -> None:
    """Names and values of any length, none among them."""
    assert decode_headers(encode_headers(block)) == block


@given(drafts, stamps, offsets)
def test_a_row_comes_back(draft: Draft, stamp: ProducerStamp, offset: Offset) -> None:
    """One message with all it may carry; an empty key is not a missing one."""
    frame = encode_row(draft, offset=offset, stamp=stamp)
    row = Row(read_header(frame), frame)

    assert row.draft() == draft
    assert row.stamp == stamp
    assert row.header.offset == offset


@given(st.lists(drafts, min_size=1, max_size=12), stamps, st.sampled_from([None, "lz4", "zstd"]))
def test_messages_come_back_from_frames(
    many: list[Draft], stamp: ProducerStamp, compression: str | None
) -> None:
    """Rows or a batch, compressed or not: the checked frames hold the same messages."""
    batch, column_set = batch_of_drafts(many)
    times = [draft.timestamp_us for draft in many]
    as_batch = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=min(times),
        last_timestamp_us=max(times),
        compression=compression,
    ).frame(stamp)
    for frames in (frame_drafts(many, stamp), as_batch):
        checked = check_frames(memoryview(frames), now_ms=NOW_MS)
        found = [draft for frame in checked for draft in drafts_of(frame.header, frame.frame)]

        assert [normal(draft) for draft in found] == [normal(draft) for draft in many]
        assert sum(frame.rows for frame in checked) == len(many)
        assert sum(span.rows for span in Walk(frames)) == len(many)
        assert checked[0].stamp == stamp


@given(st.lists(drafts, min_size=1, max_size=12))
def test_readers_see_what_was_sent(many: list[Draft]) -> None:
    """A message object is the same whichever kind of frame carried it."""
    for message, draft in zip(messages_in(frame_drafts(many)), many, strict=True):
        assert message == Message(
            TOPIC,
            PartitionId(0),
            message.offset,
            draft.timestamp_us,
            draft.key,
            draft.value,
            draft.headers or None,
            draft.priority,
            draft.deliver_at_us,
        )


def normal(draft: Draft) -> tuple[object, ...]:
    """An empty map of headers and none are the same to a reader."""
    return (
        draft.key,
        draft.value,
        draft.timestamp_us,
        draft.headers or None,
        draft.priority,
        draft.deliver_at_us,
        draft.dedup_id,
    )


@given(
    st.builds(
        BatchFields,
        rows=st.integers(0, 100_000),
        column_set=st.integers(0, 15),
        compression=st.sampled_from([None, "lz4", "zstd"]),
        raw_size=st.integers(0, 16 * 2**20),
        first_timestamp_us=st.integers(-(2**62), 2**62),
        stamp=stamps,
        sequence_count=st.integers(0, 100_000),
        transaction=st.integers(0, 2**64 - 1),
        repeats=st.lists(
            st.builds(Repeat, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), offsets),
            max_size=5,
        ).map(tuple),
    )
)
def test_the_fields_of_a_batch_come_back(fields: BatchFields) -> None:
    """Everything a batch says of itself."""
    assert decode_fields(encode_fields(fields)) == fields
