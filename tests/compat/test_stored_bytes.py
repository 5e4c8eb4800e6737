"""Bytes that were once on a disk. Never edit them: whatever changes, these must still be read.

The row frames are the storage contract and were laid out by hand; ``by_hand`` does it again with
nothing of ours, so that the codec is not judged by itself.
"""

import struct

import msgspec
import pytest
from crc32c import crc32c

from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, Sequence, TopicName
from goqueue.core.delivery.events import Acked, LeaseKept
from goqueue.core.delivery.runs import set_of
from goqueue.core.log.index import SparseIndex
from goqueue.core.log.scan import Walk
from goqueue.core.producers.identities import IdsReserved, LifeBegun
from goqueue.core.producers.ledger import Original
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.record.batch import batch_fields, decode_batch, pack_batch
from goqueue.core.record.columns import build_batch, messages_of
from goqueue.core.record.frame import read_header, verify
from goqueue.core.record.headers import decode_headers, encode_headers
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.row import Row, encode_row
from goqueue.core.record.stamp import ProducerStamp, Repeat
from goqueue.core.topics.catalog import Topic, TopicConfigured, TopicCreated, TopicDeleted
from goqueue.core.topics.settings import TopicSettings
from goqueue.runtime.log.producer_snapshot import SNAPSHOT_NAME, read_ledger
from goqueue.runtime.meta_journal import Event
from goqueue.storage.journal import Journal
from goqueue.storage.partition_log import PartitionLog
from goqueue.testing.disk import MemoryDisk

ORDERS = TopicName("orders")


def by_hand(
    *, flags: int, offset: int, time_ns: int, priority: int, key: bytes, value: bytes, block: bytes
) -> bytes:
    """Lay out a record of the contract with nothing but struct and a CRC."""
    sizes = struct.pack(">HIH", len(key), len(value), len(block))
    numbers = struct.pack(">qqBB", offset, time_ns, priority, 0)
    covered = numbers + sizes + key + value + block
    return bytes([0x47, 0x51, 1, flags]) + struct.pack(">I", crc32c(covered)) + covered


PLAIN = bytes.fromhex(
    "47 51 01 00 66ecb47a 0000000000000000 0000000000000000 02 00 0000 00000005 000068 65 6c 6c 6f"
)
WITH_HEADERS = bytes.fromhex(
    "47 51 01 02 662cb344 00000000000101d0 17979cfe3d85ca00 00 00 0006 00000004 0013"
    "75 73 65 72 2d 31  70 61 69 64"
    "0001 000b 74 72 61 63 65 70 61 72 65 6e 74 0002 30 30"
)
TOMBSTONE = bytes.fromhex(
    "47 51 01 04 6d65243b 0000000000000001 00000000000007d0 02 00 0001 00000000 0000 6b"
)
ROWS = [
    (
        PLAIN,
        {"flags": 0, "offset": 0, "time_ns": 0, "priority": 2},
        (b"", b"hello", b""),
        Draft(value=b"hello"),
    ),
    (
        WITH_HEADERS,
        {"flags": 2, "offset": 66_000, "time_ns": 1_700_000_000_123_456_000, "priority": 0},
        (b"user-1", b"paid", bytes.fromhex("0001 000b 7472616365706172656e74 0002 3030")),
        Draft(
            key=b"user-1",
            value=b"paid",
            timestamp_us=1_700_000_000_123_456,
            headers={"traceparent": b"00"},
            priority=0,
        ),
    ),
    (
        TOMBSTONE,
        {"flags": 4, "offset": 1, "time_ns": 2_000, "priority": 2},
        (b"k", b"", b""),
        Draft(key=b"k", value=None, timestamp_us=2),
    ),
]


@pytest.mark.parametrize(("raw", "numbers", "parts", "draft"), ROWS)
def test_a_row_frame_is_the_contract(
    raw: bytes, numbers: dict[str, int], parts: tuple[bytes, bytes, bytes], draft: Draft
) -> None:
    """Byte for byte: written by hand, written by us, and read back."""
    key, value, block = parts
    header = read_header(raw)
    verify(raw, header)

    assert by_hand(**numbers, key=key, value=value, block=block) == raw
    assert encode_row(draft, offset=Offset(numbers["offset"])) == raw
    assert Row(header, raw).draft() == draft


def test_a_headers_block_is_the_contract() -> None:
    """A count, then sizes and bytes, two bytes for every number."""
    block = bytes.fromhex("0002 0001 61 0002 0001 0002 c3a9 0000")

    assert encode_headers({"a": b"\x00\x01", "é": b""}) == block
    assert decode_headers(block) == {"a": b"\x00\x01", "é": b""}


def test_the_broker_s_own_headers_are_frozen() -> None:
    """A row keeps its producer, due time, dedup id and the emptiness of its key in headers."""
    draft = Draft(value=b"", key=b"", deliver_at_us=5, dedup_id=b"id")
    stamp = ProducerStamp(ProducerId(7), Epoch(1), Sequence(3))
    frame = encode_row(draft, stamp=stamp)
    block = b"".join(
        (
            b"\x00\x04",
            b"\x00\x0a__producer\x00\x12" + struct.pack(">QHQ", 7, 1, 3),
            b"\x00\x0c__deliver_at\x00\x08" + struct.pack(">q", 5),
            b"\x00\x0a__dedup_id\x00\x02id",
            b"\x00\x0b__empty_key\x00\x00",
        )
    )

    assert frame == by_hand(
        flags=2, offset=0, time_ns=0, priority=2, key=b"", value=b"", block=block
    )
    assert Row(read_header(frame), frame).draft() == draft
    assert Row(read_header(frame), frame).stamp == stamp


BATCH_FIELDS = bytes.fromhex(
    "01 00 00 00 00000002 00000158 0000000000000005 0000000000000007 0001 0000000000000003"
    "00000003 0000000000000000 000000000000  00000002 00000001 0000000000000028"
)
BATCH_VALUE = bytes.fromhex(
    "ffffffff0801000014000000000000000c0016000600050008000c000c000000000304001800000048000000"
    "0000000000000a0018000c00040008000a0000009c0000001000000002000000000000000000000008000000"
    "0000000000000000010000000000000008000000000000000c00000000000000180000000000000001000000"
    "000000002000000000000000000000000000000020000000000000000c000000000000003000000000000000"
    "0600000000000000380000000000000000000000000000003800000000000000100000000000000000000000"
    "0300000002000000000000000100000000000000020000000000000000000000000000000200000000000000"
    "0000000000000000010000000000000000000000010000000100000000000000610000000000000000000000"
    "0300000006000000000000006f6e6574776f000005000000000000000600000000000000"
)
LZ4 = bytes.fromhex(
    "47510123a212e1ec000000000000000000000000000013880200000600000155003800000000000004224d18"
    "60408246010000a2ffffffff0801000014000100d00c0016000600050008000c000c13009003040018000000"
    "d8030d00000200f0080a0018000c00040008000a0000009c00000010000000281b0003020013080800000200"
    "1005050007140011a40e00300000b005000702000f1000050430002258012d00134008002298021000040200"
    "04100004200000020000b3000498000c08000402000418000f0200a900700100840100a80113208c01f32e30"
    "0000003800000040000000480000005000000058000000600000006800000070000000780000008000000088"
    "0000009000000098000000a0000000a89001d0b8000000c0000000c8000000d00402f001000000e0000000e8"
    "000000f0000000f83501300100004002f6071001000018010000200100002801000030010000380190018f74"
    "68652073616d650800ff260448030f0800ff21500000000000000000000100010000000028000004e8000000"
    "0000000005000000000000000000000000000000000000000000280000000000000000000000000000"
)
ZSTD = bytes.fromhex(
    "4751012326fc8d5a0000000000000000000000000000138802000006000000df003800000000000028b52ffd"
    "60e803ad0600520e222a9029690d796ff5bbe8deea776d95d72add6b7d557da760da85e6152e686896cb6205"
    "6e720f228434990291038304282251b8c7e7f8a20ffad8f77ceafb8c63fce216afbce2149fb844c4213eb9c3"
    "1bcef085235cf282434ef0814b7fdc019da9d1725263223d48cae9744aa936d5e8cf1fee54992beb5c2a6799"
    "e5d7556d0214b8067caab5d60220003540c152f1829a95626172e1e9c175fb6eee1d2e57628002c807320362"
    "2b122323b03176200430702609400018b8920c3407700343037203b201dcc0686034b01b60e341c603e80201"
    "00020000000028000004e8000000000000000500000000000000000000000000000000000000000028000000"
    "0000000000000000000000"
)


def test_a_batch_frame_is_frozen() -> None:
    """Header and fields are written as ever, and the Arrow message is still read."""
    batch, column_set = build_batch(
        keys=[b"a", None], values=[b"one", b"two"], timestamps_us=[5, 6]
    )
    stamp = ProducerStamp(ProducerId(7), Epoch(1), Sequence(3))
    repeats = (Repeat(2, PartitionId(1), Offset(40)),)
    written = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=5,
        last_timestamp_us=6,
        sequence_count=3,
        repeats=repeats,
    ).frame(stamp)
    stored = by_hand(
        flags=0x22,
        offset=9,
        time_ns=6_000,
        priority=2,
        key=bytes(6),
        value=BATCH_VALUE,
        block=BATCH_FIELDS,
    )
    header = read_header(stored)
    fields = batch_fields(header, stored)

    assert written[-len(BATCH_FIELDS) :] == BATCH_FIELDS
    assert written[:4] + written[8:34] == stored[:4] + bytes(8) + stored[16:34]
    assert (fields.rows, fields.sequence_count, fields.stamp) == (2, 3, stamp)
    assert fields.repeats == repeats
    assert list(
        messages_of(
            decode_batch(header, stored),
            topic=ORDERS,
            partition=PartitionId(0),
            first_offset=header.offset,
        )
    ) == [
        Message(ORDERS, PartitionId(0), Offset(9), 5, b"a", b"one", None, 2),
        Message(ORDERS, PartitionId(0), Offset(10), 6, None, b"two", None, 2),
    ]


@pytest.mark.parametrize("frame", [LZ4, ZSTD], ids=["lz4", "zstd"])
def test_a_compressed_batch_is_frozen(frame: bytes) -> None:
    """Both compressions are read for ever."""
    header = read_header(frame)
    verify(frame, header)

    assert decode_batch(header, frame).column("value").to_pylist() == [b"the same"] * 40


def test_index_entries_are_the_contract() -> None:
    """Two signed 64-bit numbers, big-endian."""
    raw = struct.pack(">qqqq", 0, 0, 100, 4_096)
    index = SparseIndex()
    index.add(0, 0)
    index.add(100, 4_096)

    assert index.encode() == raw
    assert list(SparseIndex.decode(raw)) == [(0, 0), (100, 4_096)]


def test_a_journal_record_is_frozen() -> None:
    """Size, CRC-32C, record."""
    raw = bytes.fromhex("00000006 7996acd4 72 65 63 6f 72 64")
    disk = MemoryDisk()
    disk.make_directory("meta")
    file = disk.open("meta/a", create=True)
    file.append([raw])
    Journal(disk, "meta/b").append([b"record"])

    assert Journal(disk, "meta/a").records == [b"record"]
    assert disk.open("meta/b").read(0, 100) == raw  # type: ignore[arg-type]


CREATED = (
    b"\x82\xa4type\xadtopic_created\xa5topic\x84\xa4name\xa6orders\xaapartitions\x03\xa8settings"
    b"\x85\xacretention_ms\xce$\x0c\x84\x00\xafretention_bytes\x00\xadsegment_bytes\xce\x04\x00"
    b"\x00\x00\xaadurability\xa5fsync\xafdedup_window_ms\x00\xaacreated_ms\xcf\x00\x00\x01\x8b\xcf"
    b"\xe5h\x00"
)
CONFIGURED = (
    b"\x83\xa4type\xb0topic_configured\xa4name\xa6orders\xa8settings\x85\xacretention_ms\xce$\x0c"
    b"\x84\x00\xafretention_bytes\x00\xadsegment_bytes\xce\x04\x00\x00\x00\xaadurability\xa2os"
    b"\xafdedup_window_ms\x05"
)
TOPIC = Topic(name=ORDERS, partitions=3, settings=TopicSettings(), created_ms=1_700_000_000_000)
OTHER_SETTINGS = TopicSettings(durability="os", dedup_window_ms=5)
EVENTS = [
    (CREATED, TopicCreated(topic=TOPIC)),
    (CONFIGURED, TopicConfigured(name=ORDERS, settings=OTHER_SETTINGS)),
    (b"\x82\xa4type\xadtopic_deleted\xa4name\xa6orders", TopicDeleted(name=ORDERS)),
    (b"\x82\xa4type\xacids_reserved\xa6end_id\xcd\x03\xe9", IdsReserved(end_id=1_001)),
    (
        b"\x83\xa4type\xaalife_begun\xabproducer_id\x07\xa5epoch\x02",
        LifeBegun(producer_id=7, epoch=2),
    ),
]


@pytest.mark.parametrize(("raw", "event"), EVENTS, ids=lambda one: type(one).__name__)
def test_journal_events_are_frozen(raw: bytes, event: Event) -> None:
    """A catalogue written by an older broker is read by a newer one."""
    assert msgspec.msgpack.decode(raw, type=Event) == event


ACKED_RUN = b"\x93\xa1a\x92\x03\x05\x07"
ACKED_WHOLE = b"\x93\xa1a\x90\x07"
LEASE_OF_A_RUN = b"\x95\x07\xa1m\x92\x03\x05\xcdu0\xcdu0"
LEASE_PACKED = (
    b"\x95\x07\xa1m\xc4\x10" + bytes.fromhex("0a00000000000000 00000000 02000000") + b"\xcdu0\xcdu0"
)


def test_acks_in_the_state_are_frozen() -> None:
    """Some messages of a lease are named; all of them are not."""
    assert msgspec.msgpack.encode(Acked(offsets=[3, 5], nonce=7)) == ACKED_RUN
    assert msgspec.msgpack.encode(Acked(offsets=[], nonce=7)) == ACKED_WHOLE
    assert msgspec.msgpack.decode(ACKED_WHOLE, type=Acked) == Acked(offsets=[], nonce=7)


def test_leases_in_a_snapshot_are_frozen() -> None:
    """Runs, as before, or packed."""
    run = msgspec.msgpack.decode(LEASE_OF_A_RUN, type=LeaseKept)
    packed = msgspec.msgpack.decode(LEASE_PACKED, type=LeaseKept)

    assert list(set_of(run.offsets)) == [3, 4]
    assert list(set_of(packed.offsets)) == [10, 12]
    assert msgspec.msgpack.encode(packed) == LEASE_PACKED


def test_a_producer_snapshot_is_frozen() -> None:
    """The ledger of an older broker is taken over: the producer's next batch is the next."""
    raw = (
        b"\xaa\x99'\xf1\x00\x00\x00\x00\x00\x00\x00\x07\x91\x94\x07\x01\x03\x91\x84\xa8sequence\x00"
        b"\xa5count\x03\xabbase_offset\x05\xa7repeats\x91\x83\xa3row\x02\xa9partition\x01\xa6offset("
    )
    disk = MemoryDisk()
    disk.make_directory("p")
    disk.open(f"p/{7:020d}.log", create=True)
    disk.open(f"p/{SNAPSHOT_NAME}", create=True).append([raw])
    ledger, reached = read_ledger(disk, "p", known=range(7, 8))
    stamp = ProducerStamp(ProducerId(7), Epoch(1), Sequence(0))

    assert reached == Offset(7)
    assert ledger.judge(stamp, 3) == Original(
        base_offset=Offset(5), repeats=(Repeat(2, PartitionId(1), Offset(40)),)
    )
    assert ledger.judge(stamp.after(3), 1) is None


def test_a_segment_of_the_contract_is_served() -> None:
    """A log directory of row frames laid out by hand, without indexes, is read as it is."""
    raw = b"".join(
        by_hand(flags=0, offset=n, time_ns=n * 1_000, priority=2, key=b"k", value=b"v", block=b"")
        for n in range(100, 103)
    )
    disk = MemoryDisk()
    disk.make_directory("p")
    disk.open("p/00000000000000000100.log", create=True).append([raw])
    log = PartitionLog(disk, "p")

    assert (log.start_offset, log.end_offset) == (100, 103)
    assert log.recovery.torn_bytes == 0


@pytest.mark.parametrize(
    ("key", "digest"), [(b"a", 1_009_084_850), (b"hello", 613_153_351), (b"", 0)]
)
def test_keys_hash_as_in_the_contract(key: bytes, digest: int) -> None:
    """Murmur3-32 with seed 0, so that a key stays in its partition whoever computes it."""
    assert partition_of_key(key, 2**32) == digest


def test_a_key_chooses_its_partition() -> None:
    """Trap G6: "user-300" belongs to partition 2 of 3, not to partition 0."""
    assert partition_of_key(b"user-300", 3) == 2


HOLE = bytes.fromhex(
    "47 51 01 0c 81b37fd2 0000000000000007 0000000000000000 00 00 0000 00000008 0000"
    "000000000000000a"
)


def test_a_hole_stands_for_its_offsets() -> None:
    """What compaction once left in a log is passed over for as long as it is read."""
    ((offset, rows, frame),) = encode_holes(Offset(7), Offset(10))
    (span,) = Walk(HOLE)

    value = struct.pack(">Q", 10)
    assert (
        HOLE
        == frame
        == by_hand(flags=12, offset=7, time_ns=0, priority=0, key=b"", value=value, block=b"")
    )
    assert (offset, rows) == (7, 3)
    assert (span.header.is_hole, span.rows, span.end_offset) == (True, 3, 10)
