"""The packet codec: whatever way the bytes come in pieces, the same packets come out."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import ProtocolError
from goqueue.base.limits import REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from goqueue.base.units import GiB
from goqueue.wire import calls
from goqueue.wire.complaint import complaint
from goqueue.wire.packet import HEAD_BYTES, Kind, Operation, PacketReader, encode_packet

HEAD = struct.Struct(">IBBII")

Plain = tuple[int, int, int, bytes, bytes]

packets = st.tuples(
    st.sampled_from(Operation),
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=40),
    st.lists(st.binary(max_size=60), max_size=3),
)


def encode(packet: tuple[Operation, Kind, int, bytes, list[bytes]]) -> bytes:
    operation, kind, correlation, header, payload = packet
    return b"".join(
        encode_packet(
            operation=operation,
            kind=kind,
            correlation=correlation,
            header=header,
            payload=payload,
        )
    )


def plain(reader: PacketReader, chunk: bytes) -> list[Plain]:
    return [
        (p.operation, p.kind, p.correlation, bytes(p.header), bytes(p.payload))
        for p in reader.feed(chunk)
    ]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(stream) + 1) for place in places} | {len(stream)})
    return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(st.lists(packets, max_size=8), st.lists(st.integers(0, 10_000), max_size=30))
def test_any_chunking_yields_the_same_packets(
    sent: list[tuple[Operation, Kind, int, bytes, list[bytes]]], places: list[int]
) -> None:
    """However the network cuts the stream, each packet comes out once, in order and unchanged."""
    reader = PacketReader()

    received = [
        packet
        for chunk in cut(b"".join(map(encode, sent)), places)
        for packet in plain(reader, chunk)
    ]

    assert received == [(o, k, c, header, b"".join(payload)) for o, k, c, header, payload in sent]
    assert reader.held == 0


def pulled(reader: PacketReader, stream: bytes, sizes: list[int]) -> list[Plain]:
    """Receive a stream into the reader's own memory, at most so much at a time."""
    found: list[Plain] = []
    rounds = 0
    while stream:
        buffer = reader.buffer()
        count = min(len(buffer), len(stream), sizes[rounds % len(sizes)])
        buffer[:count], stream = stream[:count], stream[count:]
        found += [
            (p.operation, p.kind, p.correlation, bytes(p.header), bytes(p.payload))
            for p in reader.received(count)
        ]
        rounds += 1
    return found


large_packets = st.tuples(
    st.sampled_from(Operation),
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=40) | st.just(bytes(5_000)),
    st.lists(st.binary(max_size=60) | st.just(bytes(range(256)) * 40), max_size=3),
)


@given(st.lists(large_packets, max_size=8), st.lists(st.integers(1, 9_000), min_size=1, max_size=9))
def test_a_thread_that_receives_by_itself_gets_the_same_packets(
    sent: list[tuple[Operation, Kind, int, bytes, list[bytes]]], sizes: list[int]
) -> None:
    """Both ways to read a stream agree, for small and large packets and any pieces."""
    stream = b"".join(map(encode, sent))

    received = pulled(PacketReader(), stream, sizes)

    assert received == plain(PacketReader(), stream)


def test_the_header_of_a_large_packet_is_known_before_its_payload() -> None:
    """A reader asks for what follows while the payload is still on its way, into own memory."""
    raw = encode((Operation.FETCH, Kind.REPLY, 7, b"head", [bytes(100_000)]))
    asked: list[int] = []

    def allocate(size: int) -> memoryview:
        asked.append(size)
        return memoryview(bytearray(size))

    reader = PacketReader(allocate=allocate)
    buffer = reader.buffer()
    buffer[:1_000] = raw[:1_000]

    assert reader.received(1_000) == []
    assert reader.arriving is not None
    assert bytes(reader.arriving.header) == b"head"
    assert asked == [100_000]
    assert len(reader.buffer()) == len(raw) - 1_000


def test_a_packet_that_comes_byte_by_byte_is_joined_once() -> None:
    """What is held is known at any time, so that it can be bounded."""
    raw = encode((Operation.PRODUCE, Kind.REQUEST, 7, b"head", [b"pay", b"load"]))
    reader = PacketReader()

    for position in range(len(raw) - 1):
        assert reader.feed(raw[position : position + 1]) == []
        assert reader.held == position + 1
    (packet,) = reader.feed(raw[-1:])

    assert bytes(packet.header) == b"head"
    assert bytes(packet.payload) == b"payload"
    assert packet.size == len(raw)


def test_the_size_of_a_packet_is_known_from_its_head() -> None:
    """The memory for a large request can be set aside before it arrives."""
    raw = encode((Operation.PRODUCE, Kind.REQUEST, 7, b"", [bytes(100_000)]))
    reader = PacketReader()

    assert reader.needed == HEAD_BYTES
    assert reader.feed(raw[:HEAD_BYTES]) == []

    assert reader.needed == len(raw)


@pytest.mark.parametrize(
    ("size", "header_size"),
    [
        pytest.param(REQUEST_BYTES_MAX + 1, 0, id="one byte over the limit"),
        pytest.param(2 * GiB, 0, id="two gigabytes"),
        pytest.param(2**32 - 1, 2**32 - 1, id="all ones"),
        pytest.param(HEAD_BYTES - 5, 0, id="smaller than its own head"),
        pytest.param(0, 0, id="nothing"),
        pytest.param(100, 91, id="header larger than the packet"),
        pytest.param(100, 2**31, id="header of two gigabytes"),
        pytest.param(REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES_MAX + 1, id="header over its limit"),
    ],
)
def test_a_size_that_cannot_be_is_refused_from_the_head_alone(size: int, header_size: int) -> None:
    """A lie about a length is found before anything is allocated for it."""
    reader = PacketReader()

    with pytest.raises(ProtocolError, match="declares"):
        reader.feed(HEAD.pack(size, Operation.PING, Kind.REQUEST, 1, header_size))


@pytest.mark.parametrize(
    ("size", "header_size"),
    [
        pytest.param(HEAD_BYTES - 4, 0, id="an empty packet"),
        pytest.param(REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES_MAX, id="the largest"),
        pytest.param(100, 90, id="all header"),
    ],
)
def test_sizes_at_their_limits_are_taken(size: int, header_size: int) -> None:
    """The limits themselves are allowed."""
    reader = PacketReader()

    reader.feed(HEAD.pack(size, Operation.PING, Kind.REQUEST, 1, header_size))

    assert reader.needed in {4 + size, HEAD_BYTES}


def test_a_reader_of_replies_may_allow_more() -> None:
    """A list of very many topics is one large header; a client takes what a broker would not."""
    raw = encode((Operation.LIST_TOPICS, Kind.REPLY, 1, bytes(REQUEST_HEADER_BYTES_MAX + 1), []))
    reader = PacketReader(2 * len(raw), header_bytes_max=2 * len(raw))

    (packet,) = reader.feed(raw)

    assert len(packet.header) == REQUEST_HEADER_BYTES_MAX + 1


@given(st.binary(min_size=HEAD_BYTES, max_size=400))
def test_random_bytes_are_packets_or_refused(stream: bytes) -> None:
    """Garbage ends in a protocol error or waits for a bounded rest, and in nothing else."""
    reader = PacketReader()

    try:
        reader.feed(stream)
    except ProtocolError:
        return

    assert reader.needed <= REQUEST_BYTES_MAX + 4
    assert reader.held <= len(stream)


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (calls.Fetch, ["t", 1, 0, [[0, "x"]]], "`parts[0].offset`"),
        (calls.Fetch, ["t", 1, 0, [[0, 1, None], [2**31, 1]]], "`parts[1].partition`"),
        (calls.Fetch, ["t", 0, 0, [[0, 1]]], "`bytes_max`"),
        (calls.Produce, ["t", 5, []], "`acks`"),
        (calls.Produce, ["t", "all", []], "`parts`"),
        (calls.CreateTopic, ["t", 1, {"retention_ms": True}], "`settings[...]`"),
        (calls.CreateTopic, ["t", "three"], "`partitions`"),
        (calls.Hello, [1, "x" * 1_001], "`client`"),
        (calls.TopicCall, [None], "`name`"),
    ],
)
def test_a_complaint_names_the_field(kind: type[calls.Call], fields: Any, named: str) -> None:
    """Headers travel without names; who gets one wrong is told the name all the same."""
    raw = msgspec.msgpack.encode(fields)

    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.msgpack.decode(raw, type=kind)

    assert named in complaint(kind, caught.value)
    assert "$" not in complaint(kind, caught.value)


def headers() -> list[calls.Call]:
    failure = calls.Failure("topic_not_found", "no", retryable=False)
    return [
        calls.Hello(1, "test", "key"),
        calls.CreateTopic("t", 3, {"retention_ms": "7d", "segment_bytes": 4_096}),
        calls.TopicState("t", 1, {"durability": "fsync"}, [calls.PartitionState(0, 1, 2, 3)]),
        calls.TopicList([calls.TopicSummary("t", 1, 2, 3)]),
        calls.Produce("t", "all", [calls.ProducePart(0, 100)]),
        calls.Produced("fsync", [calls.ProducedPart(0, 5, True, [calls.RepeatPart(0, 1, 2)])]),  # noqa: FBT003 - fields by place, as they travel
        calls.Produced("fsync", [calls.ProducedPart(0, -1, failure=failure)]),
        calls.Fetch("t", 1, 0, [calls.FetchPart(0, 5), calls.FetchPart(1, 5, 9)]),
        calls.Fetched([calls.FetchedPart(0, 10, 5, 0, 9, [(1, 2)])]),
        calls.OffsetsReply([calls.OffsetsPart(0, 1, 2), calls.OffsetsPart(1, 1, 2, 1)]),
    ]


@pytest.mark.parametrize("header", headers(), ids=lambda header: type(header).__name__)
def test_headers_come_back_as_they_went(header: calls.Call) -> None:
    """A header survives the wire, and one with a field more than we know is still read."""
    raw = msgspec.msgpack.encode(header)
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(raw), ["new", {"field": 1}]])

    assert msgspec.msgpack.decode(raw, type=type(header)) == header
    assert msgspec.msgpack.decode(longer, type=type(header)) == header
