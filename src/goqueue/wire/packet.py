"""The native protocol's packet: how requests and replies are told apart in a stream of bytes.

Shape: codec. Big-endian. ``size`` counts what follows it; the header is msgpack, the payload raw.

     0      4           5      6             10            14
    +------+-----------+------+-------------+-------------+----------+-----------
    | size | operation | kind | correlation | header size | header … | payload …
    +------+-----------+------+-------------+-------------+----------+-----------
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from goqueue.base.errors import ProtocolError
from goqueue.base.limits import REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from goqueue.base.units import KiB

Buffer = bytes | bytearray | memoryview

_HEAD: Final = struct.Struct(">IBBII")
_SIZE: Final = struct.Struct(">I")
HEAD_BYTES: Final = _HEAD.size
_AFTER_SIZE: Final = HEAD_BYTES - _SIZE.size
_BUFFER_BYTES: Final = 4 * KiB
"""Packets up to this are received whole; of larger ones the payload has memory of its own."""


class Kind(IntEnum):
    """What a packet is."""

    REQUEST = 0
    REPLY = 1
    ERROR = 2


class Operation(IntEnum):
    """What is asked for."""

    HELLO = 1
    PING = 2
    METADATA = 3
    FIND_COORDINATOR = 4
    AUTH = 5
    WHOAMI = 6
    CREATE_TOPIC = 10
    DELETE_TOPIC = 11
    CONFIGURE_TOPIC = 12
    DESCRIBE_TOPIC = 13
    LIST_TOPICS = 14
    COMPACT_TOPIC = 15
    ADD_PARTITIONS = 16
    INIT_PRODUCER = 20
    PRODUCE = 21
    FETCH = 30
    OFFSETS = 31
    JOIN_GROUP = 32
    HEARTBEAT = 33
    LEAVE_GROUP = 34
    REVOKED = 35
    DESCRIBE_GROUP = 36
    LIST_GROUPS = 37
    DELETE_GROUP = 38
    POLL = 50
    SETTLE = 51
    COMMIT_OFFSETS = 52
    GROUP_PROGRESS = 53
    RESET_OFFSETS = 54
    NEXT = 55
    LIST_DELAYED = 60
    FIND_DELAYED = 61
    CANCEL_DELAYED = 62
    RESCHEDULE_DELAYED = 63
    CREATE_SCHEDULE = 64
    LIST_SCHEDULES = 65
    DESCRIBE_SCHEDULE = 66
    PAUSE_SCHEDULE = 67
    RESUME_SCHEDULE = 68
    TRIGGER_SCHEDULE = 69
    OVERVIEW = 70
    LIST_DLQ = 71
    PEEK_DLQ = 72
    START_REDRIVE = 73
    DESCRIBE_REDRIVE = 74
    LIST_REDRIVES = 75
    CANCEL_REDRIVE = 76
    DELETE_SCHEDULE = 77
    TX_DETACH = 78
    TX_ADOPT = 79
    TX_INIT = 80
    TX_BEGIN = 81
    TX_HOLD = 82
    TX_OFFSETS = 83
    TX_END = 84
    TX_HEARTBEAT = 85
    TX_LIST = 86
    TX_DESCRIBE = 87
    TX_ABORT = 88
    REGISTER_SCHEMA = 90
    DESCRIBE_SCHEMA = 91
    LIST_SUBJECTS = 92
    CHECK_SCHEMA = 93
    DELETE_SCHEMA = 94
    CONFIGURE_SCHEMAS = 95
    VALIDATE_VALUES = 96
    FIND_TRACE = 100
    SEARCH_TRACES = 101
    TAIL_TRACES = 102
    TRACE_STATS = 103
    MAKE_KEY = 110
    LIST_KEYS = 111
    ROTATE_KEY = 112
    REVOKE_KEY = 113
    ADD_ACL = 115
    LIST_ACLS = 116
    REMOVE_ACL = 117
    TEST_ACL = 118


class Packet(NamedTuple):
    """One request or reply. Header and payload are views into what was received."""

    operation: int
    kind: int
    correlation: int
    header: memoryview
    payload: memoryview

    @property
    def size(self) -> int:
        """Return roughly how many bytes the packet holds."""
        return HEAD_BYTES + len(self.header) + len(self.payload)


def encode_packet(
    *, operation: int, kind: Kind, correlation: int, header: bytes, payload: Sequence[Buffer] = ()
) -> list[Buffer]:
    """Return the packet as buffers to be written one behind the other."""
    size = _AFTER_SIZE + len(header) + sum(map(len, payload))
    head = _HEAD.pack(size, operation, kind, correlation, len(header))
    return [head + header, *payload]


def fresh(size: int) -> memoryview:
    """Return memory for so many bytes."""
    return memoryview(bytearray(size))


class PacketReader:
    """Cuts a stream into packets; the limits bound what a single one may declare.

    The first has a limit of its own where strangers send it, who are to hold little memory.

    An event loop gives the bytes it has to ``feed``. A thread that receives by itself does so into
    ``buffer`` and says how much came to ``received``: nothing large is copied then, and a large
    payload begins where memory begins, so that Arrow finds it aligned. One reader, one way.
    """

    def __init__(
        self,
        bytes_max: int = REQUEST_BYTES_MAX,
        *,
        header_bytes_max: int = REQUEST_HEADER_BYTES_MAX,
        first_bytes_max: int | None = None,
        allocate: Callable[[int], memoryview] = fresh,
    ) -> None:
        self._bytes_max = bytes_max
        self._size_max = bytes_max if first_bytes_max is None else first_bytes_max
        """Limit of the packet that comes next."""
        self._header_bytes_max = header_bytes_max
        self._allocate = allocate
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = HEAD_BYTES
        self._payload_start = HEAD_BYTES
        self._buffer: memoryview | None = None
        self._large: Packet | None = None
        self._filled = 0

    @property
    def needed(self) -> int:
        """Return the size of the packet being received, as far as it is known."""
        return self._needed

    @property
    def held(self) -> int:
        """Return how many bytes wait for the rest of their packet."""
        return self._held

    def feed(self, data: bytes) -> list[Packet]:
        """Take bytes off the stream; return the packets they complete."""
        if not self._held and len(data) >= HEAD_BYTES:
            size, operation, kind, correlation, header_size = _HEAD.unpack_from(data)
            if size == len(data) - _SIZE.size:
                # Just one packet, as from a client that waits for each reply.
                self._check(size, header_size)
                self._size_max = self._bytes_max
                view, payload = memoryview(data), HEAD_BYTES + header_size
                header = view[HEAD_BYTES:payload]
                return [Packet(operation, kind, correlation, header, view[payload:])]
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        # Joined once per packet, however many reads it came in.
        whole = data if len(self._chunks) == 1 else b"".join(self._chunks)
        packets, position = self._split(memoryview(whole))
        rest = whole[position:]
        self._chunks = [rest] if rest else []
        self._held = len(rest)
        return packets

    def buffer(self) -> memoryview:
        """Return where the next bytes of the stream are to be received."""
        if self._large is not None:
            return self._large.payload[self._filled :]
        if self._buffer is None:
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        return self._buffer

    def received(self, count: int) -> list[Packet]:
        """Take so many bytes, which are in the buffer now; return the packets they complete."""
        large = self._large
        if large is None:
            assert self._buffer is not None, "received into"
            packets = self.feed(bytes(self._buffer[:count]))
            if self._held >= self._payload_start:
                self._begin_payload()
            return packets
        self._filled += count
        if self._filled < len(large.payload):
            return []
        self._large = None
        return [large]

    @property
    def arriving(self) -> Packet | None:
        """Return the packet of which only the payload is still received, if there is one."""
        return self._large

    def _begin_payload(self) -> None:
        """Receive the rest of a packet where its payload is to stay."""
        held = b"".join(self._chunks)
        _, operation, kind, correlation, _ = _HEAD.unpack_from(held)
        header = memoryview(held)[HEAD_BYTES : self._payload_start]
        payload = self._allocate(self._needed - self._payload_start)
        self._filled = len(held) - self._payload_start
        payload[: self._filled] = held[self._payload_start :]
        self._large = Packet(operation, kind, correlation, header, payload)
        self._chunks, self._held = [], 0
        self._needed = self._payload_start = HEAD_BYTES

    def _split(self, whole: memoryview) -> tuple[list[Packet], int]:
        packets: list[Packet] = []
        position = 0
        while True:
            self._needed = self._payload_start = HEAD_BYTES
            if len(whole) - position < HEAD_BYTES:
                return packets, position
            size, operation, kind, correlation, header_size = _HEAD.unpack_from(whole, position)
            self._check(size, header_size)
            self._needed = _SIZE.size + size
            self._payload_start = HEAD_BYTES + header_size
            end = position + self._needed
            if end > len(whole):
                return packets, position
            payload = position + self._payload_start
            header = whole[position + HEAD_BYTES : payload]
            packets.append(Packet(operation, kind, correlation, header, whole[payload:end]))
            position = end
            self._size_max = self._bytes_max

    def _check(self, size: int, header_size: int) -> None:
        if size > self._size_max:
            raise ProtocolError(f"packet declares {size} bytes; the limit is {self._size_max}")
        if header_size > self._header_bytes_max or _AFTER_SIZE + header_size > size:
            raise ProtocolError(
                f"packet declares a header of {header_size} bytes in {size};"
                f" the limit is {self._header_bytes_max}"
            )
