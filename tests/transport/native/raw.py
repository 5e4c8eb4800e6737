"""A client that speaks the protocol by hand, and can speak it wrongly."""

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import HEAD_BYTES, Kind, Operation, Packet, PacketReader

HEAD = struct.Struct(">IBBII")
TIMEOUT_SECONDS = 30
NOW_US = 1_700_000_000_000_000
LARGE_BYTES = 20 << 20

Reply = TypeVar("Reply", bound=calls.Call)


class Refused(NamedTuple):
    """The code and the words of an error, and to which request it belongs."""

    code: str
    message: str
    correlation: int


def packed(
    operation: int,
    header: object = (),
    payload: bytes = b"",
    *,
    correlation: int = 1,
    kind: int = Kind.REQUEST,
) -> bytes:
    """Return a packet; the header is encoded unless it is bytes already."""
    raw = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    size = HEAD_BYTES - 4 + len(raw) + len(payload)
    return HEAD.pack(size, operation, kind, correlation, len(raw)) + raw + payload


def frames_of(*values: bytes, stamp: ProducerStamp = NO_STAMP) -> bytes:
    """Return messages as a producer sends them."""
    drafts = [Draft(value=value, timestamp_us=NOW_US) for value in values]
    return frame_drafts(drafts, stamp)


def begin_large(raw: "Raw", *, arrived: int) -> None:
    """Send hello, the head of a request of 20 MiB and some of its bytes."""
    produce = calls.Produce("orders", "all", [calls.ProducePart(0, LARGE_BYTES)])
    header = msgspec.msgpack.encode(produce)
    size = HEAD_BYTES - 4 + len(header) + LARGE_BYTES
    head = HEAD.pack(size, Operation.PRODUCE, Kind.REQUEST, 1, len(header))
    raw.write(packed(Operation.HELLO, calls.Hello(1, "large")) + head + header + bytes(arrived))
    raw.reply(calls.HelloReply)


class Raw:
    """One connection."""

    def __init__(
        self, address: str, *, receive_bytes: int | None = None, own_host: str = ""
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if own_host:
            self.socket.bind((own_host, 0))
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect((host, int(port)))
        self._reader = PacketReader(64 << 20, header_bytes_max=64 << 20)
        self._received: list[Packet] = []
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def send(self, operation: int, header: object = (), payload: bytes = b"") -> int:
        """Send a request and return its correlation."""
        self._correlation += 1
        self.write(packed(operation, header, payload, correlation=self._correlation))
        return self._correlation

    def receive(self) -> Packet | None:
        """Return the next packet, or None when the broker has closed the connection."""
        while not self._received:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._received += self._reader.feed(data)
        return self._received.pop(0)

    def reply(self, kind: type[Reply]) -> Reply:
        """Return the next reply, which must not be an error."""
        packet = self.receive()
        assert packet is not None, "closed"
        assert packet.kind == Kind.REPLY, bytes(packet.header)
        return msgspec.msgpack.decode(packet.header, type=kind)

    def refusal(self) -> Refused:
        """Return the next reply, which must be an error."""
        packet = self.receive()
        assert packet is not None, "closed"
        assert packet.kind == Kind.ERROR, bytes(packet.header)
        failure = msgspec.msgpack.decode(packet.header, type=calls.Failure)
        return Refused(failure.code, failure.message, packet.correlation)

    def is_closed(self) -> bool:
        """Tell whether the broker closes the connection with nothing more to say."""
        return self.receive() is None

    # Requests.

    def greet(self) -> calls.HelloReply:
        self.send(Operation.HELLO, calls.Hello(1, "raw"))
        return self.reply(calls.HelloReply)

    def ping(self) -> None:
        self.send(Operation.PING)
        self.reply(calls.Nothing)

    def create(self, name: str = "orders", partitions: int = 1, **settings: Any) -> None:
        # What these tests send is years old: a broker with a real clock would delete it soon.
        kept = {"retention_ms": 0, **settings}
        self.send(Operation.CREATE_TOPIC, calls.CreateTopic(name, partitions, kept))
        self.reply(calls.TopicState)

    def produce(
        self, *parts: tuple[int, bytes], topic: str = "orders", acks: str = "all"
    ) -> list[calls.ProducedPart]:
        sizes = [calls.ProducePart(partition, len(frames)) for partition, frames in parts]
        payload = b"".join(frames for _, frames in parts)
        self.send(Operation.PRODUCE, calls.Produce(topic, acks, sizes), payload)
        return self.reply(calls.Produced).parts

    def offer(self, frames: bytes, *, topic: str = "orders") -> tuple[int, str]:
        """Publish to the first partition; return the offset and no code, or -1 and the code."""
        (part,) = self.produce((0, frames), topic=topic)
        return part.base_offset, part.failure.code if part.failure else ""

    def fetch(
        self, *parts: calls.FetchPart, topic: str = "orders", bytes_max: int = 1 << 20
    ) -> tuple[Sequence[calls.FetchedPart], bytes]:
        self.send(Operation.FETCH, calls.Fetch(topic, bytes_max, 0, list(parts)))
        packet = self.receive()
        assert packet is not None, "closed"
        assert packet.kind == Kind.REPLY, bytes(packet.header)
        fetched = msgspec.msgpack.decode(packet.header, type=calls.Fetched)
        return fetched.parts, bytes(packet.payload)

    def end_offset(self, topic: str = "orders", partition: int = 0) -> int:
        self.send(Operation.OFFSETS, calls.Offsets(topic))
        return self.reply(calls.OffsetsReply).parts[partition].end_offset

    def identify(self, producer_id: int = 0, epoch: int = 0) -> calls.ProducerIdentity:
        self.send(Operation.INIT_PRODUCER, calls.InitProducer(producer_id, epoch))
        return self.reply(calls.ProducerIdentity)
