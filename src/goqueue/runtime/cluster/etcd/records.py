"""The keys of a cluster in etcd and what is in them.

Below ``{prefix}/``, with indexes in twenty digits so that the order of keys is that of numbers:

    feed/leader                 {"peer": 2, "lease": 123}; bound to that lease
    feed/log/{index}            a batch of entries; the index is that of its first one
    head                        {"index": 17, "term": 4711}; changed with every batch
    nodes/{peer}                {"lease": 123}; a node that is up; bound to its lease
    snapshot                    what the state machine was after an index, and where that is
    chunks/{index}/{nonce}/{n}  pieces of the state machine's snapshot

Every node watches ``feed/``, one order of batches and changes of the leader.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from crc32c import crc32c

from goqueue.base.cluster_limits import (
    ETCD_BATCH_ENTRIES_MAX,
    ETCD_CHUNK_BYTES,
    RAFT_ENTRY_BYTES_MAX,
    RAFT_SNAPSHOT_BYTES_MAX,
)
from goqueue.base.errors import ProtocolError
from goqueue.core.raft.messages import EntryKind, Membership, PeerId

_NUMBER: Final = msgspec.Meta(ge=0, le=2**63 - 1)
_Number = Annotated[int, _NUMBER]
_Peer = Annotated[PeerId, msgspec.Meta(ge=1, lt=2**31)]
_DIGITS: Final = 20

T = TypeVar("T")


class LeaderRecord(msgspec.Struct, frozen=True, gc=False):
    """Which node leads, by which lease."""

    peer: _Peer
    lease: _Number


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """The lease of a node that is up."""

    lease: _Number


class HeadRecord(msgspec.Struct, frozen=True, gc=False):
    """The last index of the log, and the leader that wrote it."""

    index: _Number
    term: _Number


class SnapshotRecord(msgspec.Struct, frozen=True):
    """A snapshot whose pieces are below ``chunks/{index}/{nonce}/``."""

    index: _Number
    nonce: _Number
    """Tells this attempt to write it from others, whose pieces may still arrive."""
    size: Annotated[int, msgspec.Meta(ge=0, le=RAFT_SNAPSHOT_BYTES_MAX)]
    crc: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    membership: Membership

    @property
    def chunks(self) -> int:
        """How many pieces there are."""
        return -(-self.size // ETCD_CHUNK_BYTES)


class LogItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A proposal, or a change of the members."""

    kind: EntryKind
    data: Annotated[bytes, msgspec.Meta(max_length=RAFT_ENTRY_BYTES_MAX)]


class LogBatch(msgspec.Struct, frozen=True, array_like=True):
    """Entries that a leader wrote at once. A term and an index name one batch for ever."""

    term: _Number
    items: Annotated[
        tuple[LogItem, ...], msgspec.Meta(min_length=1, max_length=ETCD_BATCH_ENTRIES_MAX)
    ]


class LogRecord(NamedTuple):
    """A batch with its place."""

    first: int
    batch: LogBatch
    revision: int

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.first + len(self.batch.items) - 1


_encode: Final = msgspec.json.Encoder().encode
_encode_batch: Final = msgspec.msgpack.Encoder().encode
_leader: Final = msgspec.json.Decoder(LeaderRecord)
_node: Final = msgspec.json.Decoder(NodeRecord)
_head: Final = msgspec.json.Decoder(HeadRecord)
_snapshot: Final = msgspec.json.Decoder(SnapshotRecord)
_batch: Final = msgspec.msgpack.Decoder(LogBatch)


class EtcdKeys:
    """The names of the keys of one cluster."""

    def __init__(self, prefix: str) -> None:
        root = prefix.strip("/").encode() + b"/"
        self.feed: Final = (root + b"feed/", root + b"feed0")
        self.leader: Final = root + b"feed/leader"
        self._log: Final = root + b"feed/log/"
        self.log_end: Final = root + b"feed/log0"
        self.head: Final = root + b"head"
        self.snapshot: Final = root + b"snapshot"
        self._chunks: Final = root + b"chunks/"
        self._nodes: Final = root + b"nodes/"

    def node(self, peer: PeerId) -> bytes:
        """Return the key of a node that is up."""
        return self._nodes + b"%d" % peer

    def log(self, index: int) -> bytes:
        """Return the key of the batch whose first entry has this index."""
        return self._log + b"%020d" % index

    def index_in(self, key: bytes) -> int | None:
        """Return the index of a batch's key; None if the key is another one."""
        digits = key.removeprefix(self._log)
        is_log = len(digits) == _DIGITS and len(key) == len(self._log) + _DIGITS
        return int(digits) if is_log and digits.isdigit() else None

    def chunk(self, record: SnapshotRecord, number: int) -> bytes:
        """Return the key of a piece of a snapshot."""
        return self._chunks + b"%020d/%020d/%04d" % (record.index, record.nonce, number)

    def chunks_before(self, index: int) -> tuple[bytes, bytes]:
        """Return the range of the pieces of all snapshots of earlier indexes."""
        return self._chunks, self._chunks + b"%020d/" % index


def encode_record(record: LeaderRecord | NodeRecord | HeadRecord | SnapshotRecord) -> bytes:
    """Return a record as JSON, so that it can be read with etcd's own tools."""
    return _encode(record)


def encode_batch(batch: LogBatch) -> bytes:
    """Return a batch as msgpack."""
    return _encode_batch(batch)


def decode_leader(value: bytes) -> LeaderRecord:
    """Read which node leads."""
    return _decoded(_leader, value)


def decode_node(value: bytes) -> NodeRecord:
    """Read the lease of a node."""
    return _decoded(_node, value)


def decode_head(value: bytes) -> HeadRecord:
    """Read the end of the log."""
    return _decoded(_head, value)


def decode_snapshot(value: bytes) -> SnapshotRecord:
    """Read what a snapshot consists of."""
    return _decoded(_snapshot, value)


def decode_batch(value: bytes) -> LogBatch:
    """Read a batch."""
    return _decoded(_batch, value)


def assemble(record: SnapshotRecord, chunks: Sequence[bytes]) -> bytes:
    """Return the state machine's snapshot from its pieces."""
    data = b"".join(chunks)
    if len(data) != record.size or crc32c(data) != record.crc:
        raise ProtocolError(f"the snapshot at {record.index} in etcd is damaged")
    return data


def _decoded(decoder: msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T], value: bytes) -> T:
    try:
        return decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a key of the cluster in etcd cannot be read: {error}") from None
