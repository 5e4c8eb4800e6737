"""The batch frame: many messages as one Arrow record batch.

Shape: codec. The value of the frame is one Arrow IPC record batch message without its schema: the
schema follows from the column set. The headers block holds the batch's own fields:

     0   1   2   3   4      8      12       20         28      30       38     42      50     56
    +---+---+---+---+------+------+--------+----------+-------+--------+------+-------+------+------
    | 1 |col|cmp| 0 | rows | raw  | first  | producer | epoch | sequ-  | sequ-| trans-| app- | re-
    |ver|set|   |   |      | size | time us| id       |       | ence   | ences| action| ended| peats
    +---+---+---+---+------+------+--------+----------+-------+--------+------+-------+------+------

The key field is six zero bytes, so that in a run of uncompressed batch frames every Arrow buffer
lies at a multiple of eight bytes and is used where it lies.

``appended`` is when the broker took a batch with dedup ids, in milliseconds (u48); 0 if unknown.

A repeat is (row u32, partition u32, offset u64): a message whose dedup id was already known and
that was therefore left out, so the batch holds fewer rows than sequence numbers.
"""

import struct
from collections.abc import Sequence as Many
from typing import Final

import msgspec
import pyarrow as pa

from goqueue.base.errors import CorruptFrameError, TooLargeError
from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, Sequence
from goqueue.base.limits import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    FRAME_HEADER_BYTES,
    HEADERS_BYTES_MAX,
)
from goqueue.base.units import NS_PER_US
from goqueue.core.record.frame import (
    BATCH,
    BATCH_KEY_BYTES,
    COMPRESSED,
    HAS_HEADERS,
    PRIORITY_NORMAL,
    Buffer,
    FrameHeader,
    seal_header,
)
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp, Repeat

TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")
HEADERS_TYPE: Final = pa.map_(pa.string(), pa.binary())

HEADERS_COLUMN: Final = 0x01
PRIORITY_COLUMN: Final = 0x02
DELIVER_AT_COLUMN: Final = 0x04
DEDUP_ID_COLUMN: Final = 0x08
COLUMN_SETS: Final = 0x10

FIELDS: Final = struct.Struct(">BBBBIIqQHQIQHI")
BATCH_OUTLINE: Final = struct.Struct(">BxBxI")
"""How they begin: their layout, the compression and the number of rows."""
_APPENDED: Final = struct.Struct(">HI")
_APPENDED_AT: Final = 50
"""Where among the fields the time of the append is."""
assert _APPENDED_AT + _APPENDED.size == FIELDS.size
_REPEAT: Final = struct.Struct(">IIq")
LAYOUT: Final = 1
ALIGNMENT_BYTES: Final = 8
_PADDING: Final = bytes(BATCH_KEY_BYTES)
assert (FRAME_HEADER_BYTES + BATCH_KEY_BYTES) % ALIGNMENT_BYTES == 0
assert FIELDS.size % ALIGNMENT_BYTES == 0
assert _REPEAT.size % ALIGNMENT_BYTES == 0
REPEATS_MAX: Final = (HEADERS_BYTES_MAX - FIELDS.size) // _REPEAT.size
"""Most messages one batch may leave out as repeats."""

_CODECS: Final = (None, "lz4", "zstd")
"""Compression by its code. Arrow's own codecs, in their frame formats."""


def _schema(column_set: int) -> pa.Schema:
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
    ]
    optional = (
        (HEADERS_COLUMN, pa.field("headers", HEADERS_TYPE)),
        (PRIORITY_COLUMN, pa.field("priority", pa.int8(), nullable=False)),
        (DELIVER_AT_COLUMN, pa.field("deliver_at", TIMESTAMP_TYPE)),
        (DEDUP_ID_COLUMN, pa.field("dedup_id", pa.binary())),
    )
    return pa.schema(fields + [field for bit, field in optional if column_set & bit])


SCHEMAS: Final = tuple(_schema(column_set) for column_set in range(COLUMN_SETS))
"""The stored schema of each column set."""

PLAIN_COLUMNS: Final = tuple(SCHEMAS[0].names)
"""What every stored batch has; a batch of just so many columns has no others."""


class BatchFields(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a batch frame says of itself beside its messages."""

    rows: int
    column_set: int
    compression: str | None
    raw_size: int
    first_timestamp_us: int
    stamp: ProducerStamp = NO_STAMP
    sequence_count: int = 0
    transaction: int = 0
    repeats: tuple[Repeat, ...] = ()
    appended_ms: int = 0


def compression_code(name: str | None) -> int:
    """Return the code of a compression, or raise naming those there are."""
    if name not in _CODECS:
        raise ValueError(f"compression must be None, 'lz4' or 'zstd', not {name!r}")
    return _CODECS.index(name)


def encode_fields(fields: BatchFields) -> bytes:
    """Lay out the batch's own fields."""
    stamp = fields.stamp
    fixed = FIELDS.pack(
        LAYOUT,
        fields.column_set,
        compression_code(fields.compression),
        0,
        fields.rows,
        fields.raw_size,
        fields.first_timestamp_us,
        stamp.producer_id,
        stamp.epoch,
        stamp.sequence,
        fields.sequence_count,
        fields.transaction,
        *divmod(fields.appended_ms, 1 << 32),
    )
    repeats = (_REPEAT.pack(one.row, one.partition, one.offset) for one in fields.repeats)
    return fixed + b"".join(repeats)


def decode_fields(block: Buffer) -> BatchFields:
    """Read the batch's own fields, refusing impossible ones."""
    if len(block) < FIELDS.size or (len(block) - FIELDS.size) % _REPEAT.size:
        raise CorruptFrameError(f"batch fields have an impossible size of {len(block)} bytes")
    layout, columns, codec, reserved, rows, raw, first, *rest = FIELDS.unpack_from(block)
    producer, epoch, sequence, count, tx, high, low = rest
    if layout != LAYOUT or reserved or columns >= COLUMN_SETS or codec >= len(_CODECS):
        raise CorruptFrameError("batch fields are of an unknown layout, column set or compression")
    if rows > BATCH_ROWS_MAX or raw > BATCH_BYTES_MAX or count > BATCH_ROWS_MAX:
        raise CorruptFrameError(
            f"batch declares {rows} rows in {raw} bytes;"
            f" the limits are {BATCH_ROWS_MAX} and {BATCH_BYTES_MAX}"
        )
    return BatchFields(
        rows=rows,
        column_set=columns,
        compression=_CODECS[codec],
        raw_size=raw,
        first_timestamp_us=first,
        stamp=ProducerStamp(ProducerId(producer), Epoch(epoch), Sequence(sequence)),
        sequence_count=count,
        transaction=tx,
        appended_ms=(high << 32) + low,
        repeats=tuple(
            Repeat(row, PartitionId(partition), Offset(offset))
            for row, partition, offset in _REPEAT.iter_unpack(memoryview(block)[FIELDS.size :])
        )
        if len(block) > FIELDS.size
        else (),
    )


class PackedBatch(msgspec.Struct, frozen=True, gc=False):
    """A record batch serialised and compressed, stamped with its producer only when it leaves.

    Sent again under a new epoch it keeps its Arrow bytes; only the fields and the checksum change.
    """

    fields: BatchFields
    value: Buffer
    last_timestamp_us: int

    @property
    def rows(self) -> int:
        """Return how many messages there are."""
        return self.fields.rows

    def frame(
        self,
        stamp: ProducerStamp,
        offset: Offset = Offset(0),  # noqa: B008 - a NewType of an int
    ) -> bytes:
        """Return the frame under a producer's stamp."""
        return b"".join(self.buffers(stamp, offset))

    def buffers(
        self,
        stamp: ProducerStamp,
        offset: Offset = Offset(0),  # noqa: B008 - a NewType of an int
    ) -> tuple[Buffer, Buffer, Buffer]:
        """Return the same in pieces to be written one behind the other: the value is not copied."""
        block = encode_fields(msgspec.structs.replace(self.fields, stamp=stamp))
        header = FrameHeader(
            BATCH | HAS_HEADERS | (COMPRESSED if self.fields.compression else 0),
            0,
            offset,
            self.last_timestamp_us * NS_PER_US,
            PRIORITY_NORMAL,
            BATCH_KEY_BYTES,
            len(self.value),
            len(block),
        )
        return seal_header(header, _PADDING, self.value, block) + _PADDING, self.value, block


def pack_batch(
    batch: pa.RecordBatch,
    *,
    column_set: int,
    first_timestamp_us: int,
    last_timestamp_us: int,
    compression: str | None = None,
    sequence_count: int | None = None,
    transaction: int = 0,
    repeats: Many[Repeat] = (),
) -> PackedBatch:
    """Serialise a record batch of our schema; compression that does not pay is left out."""
    packed = pack_message(
        memoryview(batch.serialize()),
        rows=batch.num_rows,
        column_set=column_set,
        first_timestamp_us=first_timestamp_us,
        last_timestamp_us=last_timestamp_us,
        compression=compression,
        transaction=transaction,
    )
    if sequence_count is None and not repeats:
        return packed
    count = packed.rows if sequence_count is None else sequence_count
    fields = msgspec.structs.replace(packed.fields, sequence_count=count, repeats=tuple(repeats))
    return msgspec.structs.replace(packed, fields=fields)


def pack_message(
    raw: Buffer,
    *,
    rows: int,
    column_set: int,
    first_timestamp_us: int,
    last_timestamp_us: int,
    compression: str | None = None,
    transaction: int = 0,
) -> PackedBatch:
    """Pack a record batch of our schema that is serialised already."""
    if len(raw) > BATCH_BYTES_MAX:
        raise TooLargeError(f"batch of {len(raw)} bytes; the limit is {BATCH_BYTES_MAX}")
    value = raw
    if compression is not None:
        # As bytes: the buffer compress returns shows its spare room in a memoryview.
        smaller = pa.compress(raw, codec=compression, asbytes=True)
        value, compression = (smaller, compression) if len(smaller) < len(raw) else (raw, None)
    fields = BatchFields(
        rows=rows,
        column_set=column_set,
        compression=compression,
        raw_size=len(raw),
        first_timestamp_us=first_timestamp_us,
        sequence_count=rows,
        transaction=transaction,
    )
    return PackedBatch(fields, value, last_timestamp_us)


def batch_fields(header: FrameHeader, frame: Buffer) -> BatchFields:
    """Read the fields of a whole batch frame."""
    fields = decode_fields(memoryview(frame)[header.size - header.headers_size :])
    if bool(header.flags & COMPRESSED) != (fields.compression is not None):
        raise CorruptFrameError("batch and frame disagree about compression")
    return fields


def with_append_time(header: FrameHeader, frame: Buffer, appended_ms: int) -> bytes:
    """Return a batch frame that says when it was appended; its checksum is to be made anew."""
    changed = bytearray(frame)
    _APPENDED.pack_into(
        changed, header.size - header.headers_size + _APPENDED_AT, *divmod(appended_ms, 1 << 32)
    )
    return bytes(changed)


def batch_payload(fields: BatchFields, header: FrameHeader, frame: Buffer) -> pa.Buffer:
    """Return the Arrow message of a frame whose checksum holds, decompressed within its bound."""
    start = header.size - header.headers_size - header.value_size
    payload = pa.py_buffer(memoryview(frame)[start : start + header.value_size])
    if fields.compression is not None:
        try:
            payload = _decompress(payload, fields.compression, fields.raw_size)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptFrameError(f"batch does not decompress: {error}") from error
    if payload.size != fields.raw_size:
        raise CorruptFrameError("batch is not as large as it declares")
    return payload


def _decompress(payload: pa.Buffer, compression: str, raw_size: int) -> pa.Buffer:
    if compression != "lz4":
        return pa.decompress(payload, decompressed_size=raw_size, codec=compression)
    # Where an lz4 frame is shorter than declared, ``pa.decompress`` fills the rest with whatever
    # lies in memory. A stream tells the real size, and asking for one byte more shows a longer one.
    return pa.CompressedInputStream(pa.BufferReader(payload), "lz4").read_buffer(raw_size + 1)


def read_batch(payload: pa.Buffer, column_set: int) -> pa.RecordBatch:
    """Return the record batch of an Arrow message, without copying."""
    try:
        return pa.ipc.read_record_batch(payload, SCHEMAS[column_set])
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise CorruptFrameError(f"batch is not readable: {error}") from error


def decode_batch(header: FrameHeader, frame: Buffer) -> pa.RecordBatch:
    """Return the record batch of a frame that the broker has checked and stored."""
    fields = batch_fields(header, frame)
    payload = batch_payload(fields, header, frame)
    if payload.address % ALIGNMENT_BYTES:
        # Arrow computes on misaligned columns only with warnings; it lay behind a row frame.
        payload = pa.py_buffer(payload.to_pybytes())
    return read_batch(payload, fields.column_set)
