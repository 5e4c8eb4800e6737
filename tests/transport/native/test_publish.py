"""Publishing by hand: what is refused, what is written, and that a retry never writes twice."""

import struct
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.base.limits import BATCH_BYTES_MAX, KEY_BYTES_MAX, REQUEST_BYTES_MAX, VALUE_BYTES_MAX
from goqueue.core.record.batch import (
    BatchFields,
    PackedBatch,
    pack_batch,
    read_batch,
)
from goqueue.core.record.columns import build_batch
from goqueue.core.record.frame import CONTROL, encode_frame, read_header
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import HEAD_BYTES, Kind, Operation
from tests.frames import split_frames
from tests.transport.native.raw import HEAD, NOW_US, Raw, frames_of
from tests.transport.native.running import Running

MESSAGES = [b"one", b"two", b"three", b"four", b"five"]


def stamp(
    producer: calls.ProducerIdentity, sequence: int, *, epoch: int | None = None
) -> ProducerStamp:
    return ProducerStamp(
        ProducerId(producer.producer_id),
        Epoch(producer.epoch if epoch is None else epoch),
        Sequence(sequence),
    )


def batch_frame(*, value: bytes | None = None, **fields: object) -> bytes:
    """Return a frame of four messages whose Arrow bytes or fields are not what they should be."""
    batch, column_set = build_batch(keys=[None] * 4, values=[b"v"] * 4, timestamps_us=[NOW_US] * 4)
    packed = pack_batch(
        batch, column_set=column_set, first_timestamp_us=NOW_US, last_timestamp_us=NOW_US
    )
    changed: BatchFields = msgspec.structs.replace(packed.fields, **fields)
    return PackedBatch(changed, packed.value if value is None else value, NOW_US).frame(NO_STAMP)


def lying_batch() -> bytes:
    """Return a frame whose Arrow message claims that a value ends far behind its buffer."""
    good = batch_frame()
    header = read_header(good)
    start = len(good) - header.headers_size - header.value_size
    payload = bytearray(good[start : start + header.value_size])
    ends = struct.pack("<5i", 0, 1, 2, 3, 4)
    place = payload.rindex(ends)
    payload[place : place + len(ends)] = struct.pack("<5i", 0, 1, 2, 3, 1 << 30)
    return batch_frame(value=bytes(payload))


def bomb() -> bytes:
    """Return a frame that unpacks to far more than it declares."""
    value = pa.compress(bytes(64 << 20), codec="zstd", asbytes=True)
    return batch_frame(value=value, compression="zstd", raw_size=1_000)


def with_wrong_crc() -> bytes:
    frame = bytearray(frames_of(*MESSAGES))
    frame[-1] ^= 1
    return bytes(frame)


HOSTILE_FRAMES = {
    "nothing": b"",
    "not a frame": b"hello, broker, please take this for a frame",
    "wrong checksum": with_wrong_crc(),
    "cut": frames_of(*MESSAGES)[:-1],
    "bytes behind": frames_of(*MESSAGES) + b"x",
    "good then cut": frames_of(*MESSAGES) + frames_of(*MESSAGES)[:40],
    "a control frame": encode_frame(flags=CONTROL, offset=0, timestamp_ns=0),  # type: ignore[arg-type]
    "arrow that lies about its buffers": lying_batch(),
    "arrow that is none": batch_frame(value=bytes(200), raw_size=200),
    "rows that are not there": batch_frame(rows=5, sequence_count=5),
    "a size that is not so": batch_frame(raw_size=10),
    "a compression bomb": bomb(),
    "compressed rubbish": batch_frame(value=b"rubbish", compression="lz4", raw_size=100),
    "another column set": batch_frame(column_set=1),
    "a claimed transaction": batch_frame(transaction=1),
    "a time it does not begin at": batch_frame(first_timestamp_us=1),
    "a day and more ahead": encode_row(Draft(value=b"", timestamp_us=NOW_US + 90_000_000_000)),
    "a reserved header": encode_row(Draft(value=b"", headers={"__mine": b""})),
}


@pytest.mark.parametrize("frames", HOSTILE_FRAMES.values(), ids=HOSTILE_FRAMES.keys())
def test_a_bad_frame_is_refused_and_nothing_is_written(raw: Raw, frames: bytes) -> None:
    """A fault in any frame refuses the whole part; the connection goes on and the log is clean."""
    raw.create()
    offset, code = raw.offer(frames)

    assert offset == -1
    assert code in {"corrupt_frame", "invalid_request", "too_large"}
    assert raw.end_offset() == 0
    assert raw.offer(frames_of(b"good")) == (0, "")


def test_a_bad_part_does_not_hurt_the_good_one_beside_it(raw: Raw) -> None:
    """The parts of one request stand or fall on their own."""
    raw.create(partitions=2)

    bad, good = raw.produce((0, with_wrong_crc()), (1, frames_of(*MESSAGES)))
    assert bad.failure is not None
    assert bad.failure.code == "corrupt_frame"
    assert (good.failure, good.base_offset) == (None, 0)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (calls.Produce("nowhere", "all", [calls.ProducePart(0, 4)]), "topic_not_found"),
        (calls.Produce("orders", "some", [calls.ProducePart(0, 4)]), "invalid_request"),
        (calls.Produce("orders", "all", [calls.ProducePart(0, 5)]), "invalid_request"),
        (calls.Produce("orders", "all", [calls.ProducePart(0, 2**31 - 1)] * 2), "invalid_request"),
    ],
    ids=["no topic", "no such acks", "sizes that do not add up", "sizes of two gigabytes"],
)
def test_a_request_that_makes_no_sense_is_refused_whole(
    raw: Raw, header: calls.Produce, code: str
) -> None:
    """What is wrong with the request itself is said before any frame is looked at."""
    raw.create()
    raw.send(Operation.PRODUCE, header, b"GQxx")

    assert raw.refusal().code == code
    raw.ping()


def test_a_partition_that_is_not_there_refuses_its_part(raw: Raw) -> None:
    """The error is beside the part it belongs to."""
    raw.create()
    (part,) = raw.produce((7, frames_of(b"lost")))

    assert part.failure is not None
    assert part.failure.code == "partition_not_found"


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_value_at_the_limit(raw: Raw, extra: int) -> None:
    """The largest value is taken and read back; one byte more is refused by name."""
    raw.create()
    value = bytes(VALUE_BYTES_MAX + extra)
    (part,) = raw.produce((0, encode_row(Draft(value=value, timestamp_us=NOW_US))))

    if extra > 0:
        assert part.failure is not None
        assert (part.failure.code, raw.end_offset()) == ("too_large", 0)
        assert part.failure.message.startswith("value")
    else:
        _, frames = raw.fetch(calls.FetchPart(0, 0))
        ((header, _),) = split_frames(memoryview(frames))
        assert header.value_size == VALUE_BYTES_MAX + extra


def test_a_key_and_headers_at_their_limits_fit_beside_the_largest_value(raw: Raw) -> None:
    """The largest message there can be fits a frame, a request and a reply."""
    raw.create()
    draft = Draft(
        value=bytes(VALUE_BYTES_MAX),
        key=bytes(KEY_BYTES_MAX),
        headers={"h": bytes(64_000)},
        timestamp_us=NOW_US,
    )
    assert raw.offer(encode_row(draft)) == (0, "")

    parts, frames = raw.fetch(calls.FetchPart(0, 0), bytes_max=1)
    assert parts[0].next_offset == 1
    assert len(frames) > VALUE_BYTES_MAX + KEY_BYTES_MAX


@pytest.mark.parametrize("extra", [0, 1])
def test_a_batch_at_the_limit(raw: Raw, extra: int) -> None:
    """A batch may be as large as its limit says, and not a byte larger."""
    raw.create()
    batch = batch_of_size(BATCH_BYTES_MAX + 64 * extra)
    fields = BatchFields(
        rows=4,
        column_set=0,
        compression=None,
        raw_size=len(batch),
        first_timestamp_us=NOW_US,
        sequence_count=4,
    )
    offset, code = raw.offer(PackedBatch(fields, batch, NOW_US).frame(NO_STAMP))

    assert (offset, code) == ((-1, "corrupt_frame") if extra else (0, ""))


def batch_of_size(size: int) -> bytes:
    """Return an Arrow message of four messages that has just so many bytes."""

    def serialised(last: int) -> bytes:
        quarter = bytes(BATCH_BYTES_MAX // 4)
        batch, _ = build_batch(
            keys=[None] * 4,
            values=[quarter, quarter, quarter, bytes(last)],
            timestamps_us=[NOW_US] * 4,
        )
        return bytes(memoryview(batch.serialize()))

    spare = size - len(serialised(0))
    raw = serialised(spare)
    assert len(raw) == size
    assert read_batch(pa.py_buffer(raw), 0).num_rows == 4
    return raw


@pytest.mark.parametrize("extra", [-1, 0])
def test_a_request_at_the_limit_is_read_to_its_end(raw: Raw, extra: int) -> None:
    """A request of the largest size arrives, is understood, and the next one is, too."""
    raw.create()
    header = msgspec.msgpack.encode(calls.Produce("orders", "all", [calls.ProducePart(0, 1)]))
    size = REQUEST_BYTES_MAX + extra
    raw.write(HEAD.pack(size, Operation.PRODUCE, Kind.REQUEST, 5, len(header)) + header)
    raw.write(bytes(size - (HEAD_BYTES - 4) - len(header)))

    refused = raw.refusal()
    assert (refused.code, refused.correlation) == ("invalid_request", 5)
    raw.ping()


def test_a_repeat_returns_the_original_offsets(raw: Raw) -> None:
    """The same producer, epoch and sequence write nothing and say where the first copy is."""
    raw.create()
    producer = raw.identify()
    first, second = (
        frames_of(*MESSAGES, stamp=stamp(producer, 0)),
        frames_of(*MESSAGES, stamp=stamp(producer, 5)),
    )
    assert [raw.offer(frames) for frames in (first, second)] == [(0, ""), (5, "")]

    (again,) = raw.produce((0, first))

    assert (again.base_offset, again.is_duplicate) == (0, True)
    assert raw.end_offset() == 10


def test_a_repeat_is_known_on_another_connection_and_after_a_restart(tmp_path: Path) -> None:
    """A retry is recognised wherever and whenever it comes."""
    with Running(tmp_path / "data") as server, server.connect() as raw:
        raw.create()
        producer = raw.identify()
        frames = frames_of(*MESSAGES, stamp=stamp(producer, 0))
        assert raw.offer(frames) == (0, "")
        with server.connect() as other:
            assert other.offer(frames) == (0, "")
    with Running(tmp_path / "data") as server, server.connect() as raw:
        assert raw.offer(frames) == (0, "")

        assert raw.end_offset() == 5


def test_a_sequence_that_does_not_follow_is_refused(raw: Raw) -> None:
    """A gap would hide a lost batch, so it is refused; what fills it is taken."""
    raw.create()
    producer = raw.identify()
    raw.offer(frames_of(*MESSAGES, stamp=stamp(producer, 0)))

    early = frames_of(*MESSAGES, stamp=stamp(producer, 10))
    assert raw.offer(early) == (-1, "out_of_order_sequence")
    assert raw.offer(frames_of(*MESSAGES, stamp=stamp(producer, 5))) == (5, "")
    assert raw.offer(early) == (10, "")


def test_a_new_life_begins_at_zero_and_fences_the_old_one(raw: Raw) -> None:
    """Trap A11: sequence 0 of a new epoch is not a duplicate, and a zombie may not publish."""
    raw.create(partitions=2)
    old = raw.identify()
    raw.offer(frames_of(*MESSAGES, stamp=stamp(old, 0)))
    new = raw.identify(old.producer_id, old.epoch)

    assert new == calls.ProducerIdentity(old.producer_id, old.epoch + 1)
    assert raw.offer(frames_of(b"zombie", stamp=stamp(old, 5))) == (-1, "producer_fenced")
    assert raw.offer(frames_of(*MESSAGES, stamp=stamp(new, 0))) == (5, "")
    assert raw.offer(frames_of(*MESSAGES, stamp=stamp(new, 0))) == (5, "")
    (elsewhere,) = raw.produce((1, frames_of(b"zombie", stamp=stamp(old, 0))))
    assert elsewhere.failure is not None
    assert elsewhere.failure.code == "producer_fenced"
    assert raw.end_offset() == 10


def test_a_fenced_life_stays_fenced_after_a_restart(tmp_path: Path) -> None:
    """Trap A11: who was fenced does not come back with the broker."""
    with Running(tmp_path / "data") as server, server.connect() as raw:
        raw.create()
        old = raw.identify()
        raw.identify(old.producer_id, old.epoch)
    with Running(tmp_path / "data") as server, server.connect() as raw:
        assert raw.offer(frames_of(b"zombie", stamp=stamp(old, 0))) == (-1, "producer_fenced")
        raw.send(Operation.INIT_PRODUCER, calls.InitProducer(old.producer_id, old.epoch))

        assert raw.refusal().code == "producer_fenced"


def test_an_identity_nobody_gave_is_refused(raw: Raw) -> None:
    """An id that was never handed out, or an epoch that was never begun, publishes nothing."""
    raw.create()
    producer = raw.identify()
    stranger = calls.ProducerIdentity(producer.producer_id + 100_000, 0)

    assert raw.offer(frames_of(b"x", stamp=stamp(stranger, 0))) == (-1, "unknown_producer")
    assert raw.offer(frames_of(b"x", stamp=stamp(producer, 0, epoch=3))) == (-1, "unknown_producer")
    assert raw.offer(frames_of(b"x", stamp=stamp(producer, 3))) == (-1, "unknown_producer")
    assert raw.end_offset() == 0


def test_an_identity_to_come_cannot_be_taken_in_advance(raw: Raw) -> None:
    """Who guesses the next id cannot make its owner's first messages pass for repeats."""
    raw.create()
    mine = raw.identify()
    guess = calls.ProducerIdentity(mine.producer_id + 1, 0)
    assert raw.offer(frames_of(b"guess", stamp=stamp(guess, 0))) == (-1, "unknown_producer")

    assert raw.identify() == guess
    (part,) = raw.produce((0, frames_of(b"owner", stamp=stamp(guess, 0))))
    assert (part.base_offset, part.is_duplicate) == (0, False)


def test_a_fresh_broker_holds_nothing(raw: Raw) -> None:
    """Trap D4: no demo topics, no demo messages."""
    raw.send(Operation.LIST_TOPICS)

    assert raw.reply(calls.TopicList).topics == []
