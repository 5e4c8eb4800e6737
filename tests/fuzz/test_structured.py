"""Hostile requests of the right outer shape, at a live broker under a ceiling of memory.

What a checksum or a length would catch is put right, so that what lies behind it is looked at.
Each target runs for GOQUEUE_FUZZ_SECONDS (a few by default). A failure names its seed.
"""

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from crc32c import crc32c

import goqueue
from goqueue.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from goqueue.base.units import GiB, MiB
from goqueue.core.record.batch import BatchFields, PackedBatch, batch_fields, pack_batch
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.frame import BATCH_KEY_BYTES, encode_frame, read_header
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.wire import calls
from goqueue.wire.packet import Kind, Operation
from tests.acceptance.served import Served
from tests.transport.native.raw import Raw, packed

SECONDS = float(os.environ.get("GOQUEUE_FUZZ_SECONDS", "3"))
TOPIC = "victim"
GOOD = [b"good-%d" % number for number in range(50)]
NOW_US = 1_700_000_000_000_000
ADDRESS_SPACE_MORE = 3 * GiB
"""Arrow's allocator reserves addresses, not memory, a gigabyte at a time."""
GROWTH_MAX = 250 * MiB

DRAFTS = [
    Draft(
        key=b"key-%d" % n if n % 2 else None,
        value=b"value-%d" % n if n % 5 else None,
        timestamp_us=NOW_US - n,
        headers={"a": b"b", "long": bytes(40)} if n % 3 else None,
        priority=n % 5,
        deliver_at_us=NOW_US if n % 4 else None,
        dedup_id=b"id-%d" % n if n % 7 else None,
    )
    for n in range(24)
]


def frame_of(drafts: list[Draft], compression: str | None) -> bytes:
    batch, column_set = batch_of_drafts(drafts)
    times = [draft.timestamp_us for draft in drafts]
    return pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=min(times),
        last_timestamp_us=max(times),
        compression=compression,
    ).frame(NO_STAMP)


PLAIN = [Draft(value=b"v" * 30, timestamp_us=NOW_US) for _ in range(50)]
FRAMES = [
    *(frame_of(drafts, codec) for drafts in (DRAFTS, PLAIN) for codec in (None, "lz4", "zstd")),
    encode_row(DRAFTS[1]),
    encode_row(DRAFTS[10]),
    encode_row(PLAIN[0]),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with some good messages that may not take much more memory than it has."""
    data: Path = tmp_path_factory.mktemp("fuzz") / "data"
    with Served(data) as served:
        with goqueue.connect(served.address) as client:
            client.create_topic(TOPIC, partitions=1, dedup_window_ms="1h")
            producer = client.producer(TOPIC)
            for value in GOOD:
                producer.send(value)
        process = psutil.Process(served.pid)
        ceiling = process.memory_info().vms + ADDRESS_SPACE_MORE
        process.rlimit(psutil.RLIMIT_AS, (ceiling, ceiling))
        yield served
        assert served.stop() == 0


def mutate(dice: random.Random, raw: bytes, *, first: int = 0) -> bytes:
    """Flip, overwrite, cut or add a few bytes behind ``first``."""
    changed = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        if len(changed) <= first:
            break
        place = dice.randrange(first, len(changed))
        match dice.randrange(5):
            case 0:
                changed[place] ^= 1 << dice.randrange(8)
            case 1:
                size = min(dice.choice((1, 2, 4, 8)), len(changed) - place)
                changed[place : place + size] = dice.choice((b"\0", b"\xff", b"\x7f")) * size
            case 2:
                number = dice.choice((0, 1, -1, 2**31 - 1, -(2**31), dice.randrange(2**31)))
                changed[place : place + 4] = struct.pack("<i", number)
            case 3:
                del changed[place : place + dice.randint(1, 8)]
            case _:
                changed[place:place] = dice.randbytes(dice.randint(1, 8))
    return bytes(changed)


def sealed(frame: bytes) -> bytes:
    return frame[:4] + struct.pack(">I", crc32c(frame[8:])) + frame[8:]


def mutated_frame(dice: random.Random) -> bytes:
    """Return a frame with a wrong byte anywhere and a right checksum."""
    return sealed(mutate(dice, dice.choice(FRAMES), first=8))


def mutated_arrow(dice: random.Random) -> bytes:
    """Return a frame whose Arrow message is wrong while all that surrounds it is right."""
    frame = dice.choice(FRAMES[:6])
    header = read_header(frame)
    end = len(frame) - header.headers_size
    value = mutate(dice, frame[end - header.value_size : end])
    fields: BatchFields = batch_fields(header, frame)
    if fields.compression is None:
        fields = msgspec.structs.replace(fields, raw_size=len(value))
    return PackedBatch(fields, value, header.timestamp_ns // 1_000).frame(NO_STAMP)


def mutated_fields(dice: random.Random) -> bytes:
    """Return a frame whose batch fields are wrong while everything else is right."""
    frame = dice.choice(FRAMES[:6])
    header = read_header(frame)
    end = len(frame) - header.headers_size
    block = mutate(dice, frame[end:])
    return encode_frame(
        flags=header.flags,
        offset=header.offset,
        timestamp_ns=header.timestamp_ns,
        key=bytes(BATCH_KEY_BYTES),
        value=frame[end - header.value_size : end],
        headers=block,
    )


@pytest.mark.parametrize(
    "target", [mutated_frame, mutated_arrow, mutated_fields], ids=lambda target: target.__name__
)
def test_what_is_taken_can_be_read(
    broker: Served, target: Callable[[random.Random], bytes]
) -> None:
    """P10, P11: a frame is refused with a reason, or every message of it is whole and readable."""
    before = broker.resident_bytes()
    with Raw(broker.address) as raw, goqueue.connect(broker.address) as client:
        raw.greet()
        start = raw.end_offset(TOPIC)
        for seed in seeds():
            frame = target(random.Random(seed))
            offset, code = raw.offer(frame, topic=TOPIC)
            assert offset >= 0 or code in CODES, (target.__name__, seed, code)
        rows = 0
        for batch in client.read_batches(TOPIC, start=start):
            batch.validate(full=True)
            rows += batch.num_rows
        for message in client.read(TOPIC, start=start):
            assert len(message.key or b"") <= KEY_BYTES_MAX
            assert len(message.value or b"") <= VALUE_BYTES_MAX
            assert message.priority in range(5)
            assert not any(name.startswith("__") for name in message.headers or ())
        # A changed time of delivery may lie ahead; such a message is pending, not gone.
        pending = sum(delayed.offset >= start for delayed in client.delayed(TOPIC, limit=1_000))

    assert rows + pending == end_offset(broker) - start
    still_good(broker, before)


CODES = {
    "corrupt_frame",
    "invalid_request",
    "too_large",
    "unknown_producer",
    "producer_fenced",
    "out_of_order_sequence",
}


def any_value(dice: random.Random, depth: int = 0) -> object:
    """Return something msgpack can say, mostly not what was asked for."""
    leaves: list[object] = [
        None, True, 0, 1, -1, 2**31, 2**31 - 1, 2**62, 2**63, 2**64 - 1, -(2**63), 1.5,
        float("nan"), "", TOPIC, "all", "x" * 300, "\0", "../..", b"", b"\xff" * 20,
    ]  # fmt: skip
    if depth > 4 or dice.random() < 0.5:
        return dice.choice(leaves)
    values = [any_value(dice, depth + 1) for _ in range(dice.randrange(5))]
    if dice.random() < 0.8:
        return values
    return {str(number): value for number, value in enumerate(values)}


GOOD_HEADERS: dict[Operation, list[object]] = {
    Operation.HELLO: [1, "fuzz", None],
    Operation.PING: [],
    Operation.METADATA: [[TOPIC], 0],
    Operation.FIND_COORDINATOR: ["group", "fuzz"],
    Operation.DESCRIBE_TOPIC: [TOPIC],
    Operation.CONFIGURE_TOPIC: [TOPIC, {}],
    Operation.LIST_TOPICS: [],
    Operation.COMPACT_TOPIC: [TOPIC, None, True],
    # As many as there are: others would share its messages out.
    Operation.ADD_PARTITIONS: [TOPIC, 1, {}],
    Operation.INIT_PRODUCER: [0, 0],
    Operation.PRODUCE: [TOPIC, "all", [[0, 0]]],
    Operation.FETCH: [TOPIC, 1_000, 0, [[0, 0, None]]],
    Operation.OFFSETS: [TOPIC, None],
    Operation.JOIN_GROUP: ["fuzz", "a", [TOPIC], "eager", "sticky", None, {"max_retries": 3}],
    Operation.HEARTBEAT: ["fuzz", "a-0", 1],
    Operation.LEAVE_GROUP: ["fuzz", "a-0"],
    Operation.REVOKED: ["fuzz", "a-0", 1, [[TOPIC, [0]]]],
    Operation.DESCRIBE_GROUP: ["fuzz"],
    Operation.LIST_GROUPS: [],
    Operation.DELETE_GROUP: ["fuzz", True],
}


def wrong_header(dice: random.Random) -> tuple[Operation, bytes]:
    """Return an operation with a header in which something is not as it should be."""
    operation = dice.choice(list(GOOD_HEADERS))
    fields = list(GOOD_HEADERS[operation])
    for _ in range(dice.randint(1, 2)):
        place = dice.randrange(len(fields) + 1)
        fields[place : place + 1] = [any_value(dice)]
    raw = msgspec.msgpack.encode(fields)
    match dice.randrange(6):
        case 0:
            raw = mutate(dice, raw)
        case 1:
            raw += b"\x91" * dice.choice((10, 10_000))
        case 2:
            raw = raw[: dice.randrange(len(raw))]
        case _:
            pass
    return operation, raw


def test_any_header_is_answered(broker: Served) -> None:
    """P11: whatever the header says, a reply or an error of ours comes back; never a surprise."""
    before = broker.resident_bytes()
    with Raw(broker.address) as raw:
        raw.greet()
        for seed in seeds():
            operation, header = wrong_header(random.Random(seed))
            raw.write(packed(operation, header, correlation=seed + 1))
            packet = raw.receive()
            assert packet is not None, seed
            assert packet.correlation == seed + 1
            if packet.kind == Kind.ERROR:
                failure = msgspec.msgpack.decode(packet.header, type=calls.Failure)
                assert failure.code != "internal", (seed, operation, header)

    still_good(broker, before)


def test_any_stream_ends_well(broker: Served) -> None:
    """P11: good and bad packets in pieces of any size end in answers or a closed connection."""
    before = broker.resident_bytes()
    for seed in seeds(count_min=12):
        dice = random.Random(seed)
        stream = packed(Operation.HELLO, calls.Hello(1, "fuzz"))
        for number in range(dice.randint(1, 8)):
            operation, header = wrong_header(dice)
            stream += packed(
                operation, header, dice.randbytes(dice.randrange(50)), correlation=number
            )
        if dice.random() < 0.5:
            stream = mutate(dice, stream)
        with Raw(broker.address) as raw:
            send_in_pieces(dice, raw, stream)

    still_good(broker, before)


def send_in_pieces(dice: random.Random, raw: Raw, stream: bytes) -> None:
    position = 0
    try:
        while position < len(stream):
            size = dice.choice((1, 7, 100, 5_000))
            raw.write(stream[position : position + size])
            position += size
        if dice.random() < 0.5:
            raw.socket.shutdown(1)
            while raw.receive() is not None:
                pass
    except OSError:
        return


def seeds(count_min: int = 102) -> Iterator[int]:
    """Yield numbers until the time is over, and so many of them however slow it goes."""
    deadline = time.monotonic() + SECONDS
    seed = 0
    while time.monotonic() < deadline or seed < count_min:
        yield seed
        seed += 1


def end_offset(broker: Served) -> int:
    with Raw(broker.address) as raw:
        raw.greet()
        return raw.end_offset(TOPIC)


def still_good(broker: Served, before: int) -> None:
    """The broker serves, remembers what was good, has not grown, and found no fault in itself."""
    with goqueue.connect(broker.address) as client:
        first = [message.value for message in client.read(TOPIC, end=len(GOOD))]
        place = client.producer(TOPIC).send(b"still here").result(60)
        (message,) = client.read(TOPIC, start=place.offset)

    assert first == GOOD
    assert message.value == b"still here"
    assert broker.resident_bytes() - before < GROWTH_MAX
    assert broker.complaints() == []
