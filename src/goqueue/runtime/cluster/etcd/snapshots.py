"""The state machine's snapshot in etcd: in pieces, because etcd takes values of 1.5 MiB at most."""

import secrets

from crc32c import crc32c

from goqueue.base.cluster_limits import ETCD_CHUNK_BYTES
from goqueue.core.raft.messages import Membership, PeerId
from goqueue.runtime.cluster.etcd.api import (
    DeleteKeys,
    Etcd,
    EtcdCompactedError,
    KeyOperation,
    ModifiedAt,
    PutKey,
    ReadKeys,
)
from goqueue.runtime.cluster.etcd.records import (
    EtcdKeys,
    SnapshotRecord,
    assemble,
    decode_snapshot,
    encode_record,
)


async def found_cluster(etcd: Etcd, keys: EtcdKeys, founders: tuple[PeerId, ...]) -> None:
    """Begin a cluster, unless it was begun: the first snapshot is empty, with its first members."""
    first = SnapshotRecord(0, 0, 0, 0, Membership(tuple(sorted(founders))))
    await etcd.txn([ModifiedAt(keys.snapshot, 0)], [PutKey(keys.snapshot, encode_record(first))])


async def load_snapshot(
    etcd: Etcd, keys: EtcdKeys, record: SnapshotRecord, *, revision: int
) -> bytes:
    """Read the pieces as they were at a revision."""
    chunks: list[bytes] = []
    for number in range(record.chunks):
        key = ReadKeys(keys.chunk(record, number))
        items = (await etcd.range(key, revision=revision)).items
        if not items:
            raise EtcdCompactedError(f"the snapshot at {record.index} is not whole")
        chunks.append(items[0].value)
    return assemble(record, chunks)


def describe_snapshot(index: int, membership: Membership, data: bytes) -> SnapshotRecord:
    """Return the record of a snapshot that is to be stored."""
    return SnapshotRecord(index, secrets.randbits(62), len(data), crc32c(data), membership)


async def store_snapshot(
    etcd: Etcd, keys: EtcdKeys, record: SnapshotRecord, data: bytes, *, leader_revision: int
) -> bool:
    """Write the pieces, then the record, and delete what it replaces. False: another node leads.

    An attempt that fails leaves pieces without a record, which a later snapshot deletes. One that
    arrives late changes nothing: the record it would replace has been replaced.
    """
    leads = ModifiedAt(keys.leader, leader_revision)
    (known,) = (await etcd.range(ReadKeys(keys.snapshot))).items
    if decode_snapshot(known.value).index >= record.index:
        return False
    replaces = ModifiedAt(keys.snapshot, known.modified_at)
    for number, at in enumerate(range(0, len(data), ETCD_CHUNK_BYTES)):
        put = PutKey(keys.chunk(record, number), data[at : at + ETCD_CHUNK_BYTES])
        if not (await etcd.txn([leads], [put])).is_success:
            return False
    operations: list[KeyOperation] = [
        PutKey(keys.snapshot, encode_record(record)),
        DeleteKeys(*keys.chunks_before(record.index)),
        DeleteKeys(keys.log(0), keys.log(record.index + 1)),
    ]
    return (await etcd.txn([leads, replaces], operations)).is_success
