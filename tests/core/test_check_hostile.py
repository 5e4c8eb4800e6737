"""Whatever a stranger sends, the check answers with an error of ours or takes honest messages."""

import struct
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.errors import CorruptFrameError, InvalidRequestError, TooLargeError
from goqueue.base.ids import TopicName
from goqueue.base.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX, HEADERS_COUNT_MAX, VALUE_BYTES_MAX
from goqueue.core.record.batch import (
    DEDUP_ID_COLUMN,
    DELIVER_AT_COLUMN,
    HEADERS_COLUMN,
    PRIORITY_COLUMN,
    SCHEMAS,
    TIMESTAMP_TYPE,
    BatchFields,
    batch_fields,
    encode_fields,
    pack_batch,
)
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.columns import build_batch
from goqueue.core.record.frame import (
    BATCH,
    BATCH_KEY_BYTES,
    COMPRESSED,
    CONTROL,
    HAS_HEADERS,
    TOMBSTONE,
    TX_COMMIT,
    encode_frame,
    read_header,
)
from goqueue.core.record.headers import encode_headers
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import drafts_of, frame_drafts
from goqueue.core.record.row import Row, encode_row
from goqueue.core.record.stamp import NO_STAMP, Repeat

TOPIC = TopicName("t")
NOW_MS = 1_700_000_000_000
DRAFTS = [
    Draft(
        key=b"k%d" % n if n % 2 else None,
        value=b"value %d" % n,
        timestamp_us=NOW_MS * 1_000 + n,
        headers={"a": b"b"} if n % 3 else None,
        priority=n % 5,
        deliver_at_us=NOW_MS * 1_000 if n % 2 else None,
        dedup_id=b"id%d" % n,
    )
    for n in range(6)
]
FULL = frame_drafts(DRAFTS)
PLAIN = frame_drafts([Draft(value=b"v%d" % n, timestamp_us=5) for n in range(8)])
ROW = encode_row(DRAFTS[1])


def check(frame: bytes | bytearray) -> list[CheckedFrame]:
    return check_frames(memoryview(frame), now_ms=NOW_MS)


def sealed(frame: bytes | bytearray) -> bytes:
    """Make the checksum right, whatever it covers."""
    return bytes(frame[:4]) + struct.pack(">I", crc32c(bytes(frame[8:]))) + bytes(frame[8:])


def with_byte(frame: bytes, position: int, value: int) -> bytes:
    changed = bytearray(frame)
    changed[position] = value
    return bytes(changed)


def rebuilt(frame: bytes, *, value: bytes | None = None, **changes: object) -> bytes:
    """Return a batch frame with other fields or another value, otherwise in order."""
    header = read_header(frame)
    fields: BatchFields = msgspec.structs.replace(batch_fields(header, frame), **changes)
    start = 34 + header.key_size
    own = frame[start : start + header.value_size]
    flags = header.flags & ~COMPRESSED | (COMPRESSED if fields.compression else 0)
    return encode_frame(
        flags=flags,
        offset=header.offset,
        timestamp_ns=header.timestamp_ns,
        key=frame[34:start],
        value=own if value is None else value,
        headers=encode_fields(fields),
    )


def test_what_is_rebuilt_unchanged_is_taken() -> None:
    """The hostile frames below are refused for what is changed in them, and for nothing else."""
    for frame in (FULL, PLAIN):
        assert rebuilt(frame) == frame
        assert sum(checked.rows for checked in check(rebuilt(frame))) == len(drafts_in(frame))


def drafts_in(frame: bytes) -> list[Draft]:
    return drafts_of(read_header(frame), frame)


def framed(
    batch: pa.RecordBatch,
    column_set: int,
    *,
    compression: str | None = None,
    value: bytes | None = None,
) -> bytes:
    """Return a frame that claims to hold this batch and times from 5 to 5."""
    packed = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=5,
        last_timestamp_us=5,
        compression=compression,
    )
    if value is not None:
        fields = msgspec.structs.replace(packed.fields, raw_size=len(value))
        packed = msgspec.structs.replace(packed, value=value, fields=fields)
    return packed.frame(NO_STAMP)


def batch_of(column_set: int = 0, **columns: pa.Array) -> pa.RecordBatch:
    """Return a batch of the stored schema, the named columns as given."""
    rows = max([len(column) for column in columns.values()], default=1)
    arrays = {
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.array([b"v"] * rows, pa.binary()),
        "timestamp": pa.array([5] * rows, TIMESTAMP_TYPE),
        **columns,
    }
    schema = SCHEMAS[column_set]
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


CORRUPT: dict[str, bytes] = {
    "empty header": FULL[:20],
    "magic": with_byte(FULL, 0, 0),
    "version": with_byte(FULL, 2, 2),
    "unknown flag": sealed(with_byte(FULL, 3, FULL[3] | 0x80)),
    "reserved byte": sealed(with_byte(FULL, 25, 1)),
    "priority": sealed(with_byte(ROW, 24, 5)),
    "checksum": with_byte(FULL, 5, FULL[5] ^ 1),
    "negative offset": sealed(with_byte(FULL, 8, 0x80)),
    "negative time": sealed(with_byte(FULL, 16, 0x80)),
    "cut": FULL[:-1],
    "cut row": ROW[:-1],
    "rubbish behind": FULL + b"GQ",
    "two gigabytes declared": sealed(FULL[:28] + b"\x7f\xff\xff\xff" + FULL[32:]),
    "four gigabytes declared": sealed(FULL[:28] + b"\xff\xff\xff\xff" + FULL[32:]),
    "headers that overrun": sealed(ROW[:-2]),
    "header names that are no text": encode_frame(
        flags=2, offset=read_header(ROW).offset, timestamp_ns=0, headers=b"\0\1\0\1\xff\0\0"
    ),
    "headers with a tail": encode_frame(
        flags=2, offset=read_header(ROW).offset, timestamp_ns=0, headers=b"\0\0x"
    ),
    "producer of a wrong size": encode_frame(
        flags=2,
        offset=read_header(ROW).offset,
        timestamp_ns=0,
        headers=encode_headers({"__producer": b"x"}),
    ),
    "no fields": encode_frame(
        flags=BATCH | HAS_HEADERS,
        offset=read_header(ROW).offset,
        timestamp_ns=0,
        key=bytes(BATCH_KEY_BYTES),
        headers=b"\1",
    ),
    "more rows": rebuilt(FULL, rows=7, sequence_count=7),
    "fewer rows": rebuilt(FULL, rows=5, sequence_count=5),
    "rows over the limit": rebuilt(FULL, rows=BATCH_ROWS_MAX + 1, sequence_count=1),
    "two billion rows": rebuilt(FULL, rows=2**31, sequence_count=2**31),
    "raw size too small": rebuilt(FULL, raw_size=10),
    "raw size too large": rebuilt(FULL, raw_size=BATCH_BYTES_MAX + 1),
    "columns that are not there": rebuilt(PLAIN, column_set=15),
    "begins at another time": rebuilt(FULL, first_timestamp_us=7),
    "ends at another time": sealed(FULL[:16] + struct.pack(">q", 7_000) + FULL[24:]),
    "says zstd, is not": rebuilt(FULL, compression="zstd"),
    "says lz4, is not": rebuilt(FULL, compression="lz4"),
    "no Arrow message": rebuilt(FULL, value=b"", raw_size=0),
    "zeros": rebuilt(FULL, value=bytes(400), raw_size=400),
    "the schema, not the batch": rebuilt(
        FULL,
        value=SCHEMAS[0].serialize().to_pybytes(),
        raw_size=SCHEMAS[0].serialize().size,
    ),
    "a time that is null": framed(batch_of(timestamp=pa.nulls(1, TIMESTAMP_TYPE)), 0),
    "a header that is null": framed(
        batch_of(HEADERS_COLUMN, headers=pa.array([[("a", None)]], SCHEMAS[1].field(3).type)),
        HEADERS_COLUMN,
    ),
}


@pytest.mark.parametrize("frame", CORRUPT.values(), ids=CORRUPT)
def test_what_is_no_frame_is_corrupt(frame: bytes) -> None:
    """Lengths, checksums and everything a batch declares are checked before they are believed."""
    with pytest.raises(CorruptFrameError):
        check(frame)


def rows(**changes: object) -> bytes:
    return encode_row(msgspec.structs.replace(Draft(value=b"v"), **changes))


INVALID: dict[str, bytes] = {
    "nothing": b"",
    "control": sealed(with_byte(ROW, 3, ROW[3] | CONTROL)),
    "commit": sealed(with_byte(ROW, 3, ROW[3] | TX_COMMIT)),
    "control batch": sealed(with_byte(FULL, 3, FULL[3] | CONTROL)),
    "compressed row": sealed(with_byte(ROW, 3, ROW[3] | COMPRESSED)),
    "tombstone with a value": sealed(with_byte(ROW, 3, ROW[3] | TOMBSTONE)),
    "reserved header": rows(headers={"__mine": b"x"}),
    "due before 1970": rows(deliver_at_us=-1),
    "due in a thousand years": rows(deliver_at_us=NOW_MS * 1_000 + 1_000 * 365 * 86_400 * 10**6),
    "an empty delay id": rows(deliver_at_us=NOW_MS * 1_000, headers={"goqueue-delay-id": b""}),
    "a day and more ahead": rows(timestamp_us=NOW_MS * 1_000 + 86_400_000_001),
    "no rows": rebuilt(FULL, rows=0, sequence_count=0),
    "other sequences than rows": rebuilt(FULL, sequence_count=7),
    "repeats": rebuilt(FULL, repeats=(Repeat(0, 0, 0),)),  # type: ignore[arg-type]
    "transaction": rebuilt(FULL, transaction=1),
    "batch with a reserved header": framed(
        build_batch(keys=[None], values=[b""], timestamps_us=[5], headers=[{"__a": b""}])[0],
        HEADERS_COLUMN,
    ),
    "batch due before 1970": framed(
        build_batch(keys=[None], values=[b""], timestamps_us=[5], deliver_at_us=[-1])[0],
        DELIVER_AT_COLUMN,
    ),
    "batch with a wrong priority": framed(
        build_batch(keys=[None], values=[b""], timestamps_us=[5], priorities=[5])[0],
        PRIORITY_COLUMN,
    ),
    "batch with a negative priority": framed(
        build_batch(keys=[None], values=[b""], timestamps_us=[5], priorities=[-1])[0],
        PRIORITY_COLUMN,
    ),
    "batch without a priority": framed(
        batch_of(PRIORITY_COLUMN, priority=pa.nulls(1, pa.int8())), PRIORITY_COLUMN
    ),
}


@pytest.mark.parametrize("frame", INVALID.values(), ids=INVALID)
def test_what_a_client_may_not_say_is_refused(frame: bytes) -> None:
    """Control frames, reserved names and claims that only the broker makes."""
    with pytest.raises(InvalidRequestError):
        check(frame)


MANY_HEADERS = {str(n): b"" for n in range(HEADERS_COUNT_MAX + 1)}
TOO_LARGE: dict[str, Callable[[], bytes]] = {
    "value": lambda: rows(value=bytes(VALUE_BYTES_MAX + 1)),
    "dedup id": lambda: rows(dedup_id=bytes(257)),
    "headers": lambda: rows(headers=MANY_HEADERS),
    "value in a batch": lambda: framed(
        batch_of(value=pa.array([bytes(VALUE_BYTES_MAX + 1)], pa.binary())), 0
    ),
    "key in a batch": lambda: framed(batch_of(key=pa.array([bytes(65_536)], pa.binary())), 0),
    "dedup id in a batch": lambda: framed(
        batch_of(DEDUP_ID_COLUMN, dedup_id=pa.array([b"", bytes(257)], pa.binary())),
        DEDUP_ID_COLUMN,
    ),
    "headers in a batch": lambda: framed(
        build_batch(keys=[None], values=[b""], timestamps_us=[5], headers=[MANY_HEADERS])[0],
        HEADERS_COLUMN,
    ),
    "bytes of headers in a batch": lambda: framed(
        build_batch(keys=[None], values=[b""], timestamps_us=[5], headers=[{"a": bytes(65_100)}])[
            0
        ],
        HEADERS_COLUMN,
    ),
}


@pytest.mark.parametrize("frame", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_is_over_a_limit_is_too_large(frame: Callable[[], bytes]) -> None:
    """Every part of a message has its limit, in a row and in a batch."""
    with pytest.raises(TooLargeError):
        check(frame())


AT_LIMIT: dict[str, Callable[[], bytes]] = {
    "value": lambda: rows(value=bytes(VALUE_BYTES_MAX)),
    "key": lambda: rows(key=bytes(65_535)),
    "dedup id": lambda: rows(dedup_id=bytes(256)),
    "time": lambda: rows(timestamp_us=NOW_MS * 1_000 + 86_400_000_000),
    "value in a batch": lambda: framed(
        batch_of(value=pa.array([bytes(VALUE_BYTES_MAX)], pa.binary())), 0
    ),
    "key in a batch": lambda: framed(batch_of(key=pa.array([bytes(65_535)], pa.binary())), 0),
    "headers without any entry beside a large value": lambda: framed(
        batch_of(
            HEADERS_COLUMN,
            headers=pa.nulls(1, SCHEMAS[1].field(3).type),
            value=pa.array([bytes(100_000)], pa.binary()),
        ),
        HEADERS_COLUMN,
    ),
}


@pytest.mark.parametrize("frame", AT_LIMIT.values(), ids=AT_LIMIT)
def test_what_is_at_a_limit_is_taken(frame: Callable[[], bytes]) -> None:
    """The limit itself is allowed."""
    (checked,) = check(frame())

    assert checked.rows == 1


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("is_legacy", [False, True])
def test_compression_inside_arrow_is_refused(codec: str, *, is_legacy: bool) -> None:
    """The sizes of compressed Arrow buffers are not ours to bound, in either message layout."""
    batch = batch_of(value=pa.array([b"a" * 1_000], pa.binary()))
    options = pa.ipc.IpcWriteOptions(compression=codec, use_legacy_format=is_legacy)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream = pa.BufferReader(sink.getvalue())
    pa.ipc.read_message(stream)
    at = stream.tell()
    message = sink.getvalue().to_pybytes()[at:]

    with pytest.raises(CorruptFrameError):
        check(framed(batch, 0, value=message))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("off_by", [-1, 1, 1_000])
def test_a_compressed_batch_has_its_declared_size(codec: str, off_by: int) -> None:
    """Too much is a bomb, too little would be filled up with what lies in memory."""
    frame = framed(batch_of(value=pa.array([b"a" * 1_000], pa.binary())), 0, compression=codec)
    raw_size = batch_fields(read_header(frame), frame).raw_size

    check(frame)
    with pytest.raises(CorruptFrameError):
        check(rebuilt(frame, raw_size=raw_size + off_by))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_decompression_bomb_is_not_unpacked(codec: str) -> None:
    """A gigabyte in a few kilobytes costs no more than the size it declares."""
    bomb = pa.compress(bytes(64 * 2**20), codec=codec, asbytes=True)
    before = pa.total_allocated_bytes()
    for raw_size in (1_000, BATCH_BYTES_MAX):
        with pytest.raises(CorruptFrameError):
            check(rebuilt(PLAIN, value=bomb, compression=codec, raw_size=raw_size))

    assert pa.total_allocated_bytes() <= before


def open_all(frame: bytes) -> None:
    """Check a frame and, if it is taken, look at every message as a reader would."""
    try:
        checked = check(frame)
    except InvalidRequestError:
        return
    for one in checked:
        drafts = drafts_of(one.header, one.frame)
        assert len(drafts) == one.rows
        assert one.dedup_ids is None or len(one.dedup_ids) == one.rows
        if not one.header.is_batch:
            Row(one.header, one.frame).message(TOPIC, 0)  # type: ignore[arg-type]


BASES = [FULL, PLAIN, ROW, frame_drafts(DRAFTS * 20)]
BASES += [framed(batch_of(value=pa.array([b"a" * 500] * 4)), 0, compression="lz4")]
mutations = st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=4)


@settings(max_examples=1_500)
@given(st.sampled_from(BASES), mutations)
def test_a_mutated_frame_never_surprises(base: bytes, changes: list[tuple[int, int]]) -> None:
    """Bytes changed anywhere under a right checksum: an error of ours, or messages to read."""
    frame = bytearray(base)
    for position, mask in changes:
        frame[position % len(frame)] ^= mask

    open_all(sealed(frame))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_never_surprise(noise: bytes) -> None:
    """Noise, bare and as the value of a batch that declares its size."""
    open_all(noise)
    open_all(rebuilt(PLAIN, value=noise, raw_size=len(noise)))
