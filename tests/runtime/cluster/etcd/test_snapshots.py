"""Snapshots in etcd: pieces, and attempts that come to an end too late."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from goqueue.base.cluster_limits import ETCD_CHUNK_BYTES
from goqueue.base.errors import ProtocolError
from goqueue.core.raft.messages import Membership, PeerId
from goqueue.runtime.cluster.etcd.api import (
    EtcdCompactedError,
    EtcdUnavailableError,
    KeyOperation,
    ModifiedAt,
    PutKey,
    ReadKeys,
    TxnReply,
)
from goqueue.runtime.cluster.etcd.records import EtcdKeys, SnapshotRecord, decode_snapshot
from goqueue.runtime.cluster.etcd.snapshots import (
    describe_snapshot,
    found_cluster,
    load_snapshot,
    store_snapshot,
)
from goqueue.testing.sim.etcd import SimEtcd, SimEtcdLink
from goqueue.testing.sim.simulation import Simulation

KEYS = EtcdKeys("goqueue")
MEMBERS = Membership((PeerId(1),))


class Late(SimEtcdLink):
    """Keeps the write of a snapshot's record back; its sender hears nothing."""

    def __init__(self, server: SimEtcd) -> None:
        super().__init__(server, "late")
        self.kept: list[Callable[[], TxnReply]] = []

    async def txn(
        self,
        conditions: Sequence[ModifiedAt],
        then: Sequence[KeyOperation],
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnReply:
        if any(isinstance(one, PutKey) and one.key == KEYS.snapshot for one in then):
            self.kept.append(lambda: self._server.model.txn(conditions, then, otherwise))
            raise EtcdUnavailableError("no answer")
        return await super().txn(conditions, then, otherwise)


def run(scenario: Callable[[SimEtcd], Awaitable[None]]) -> None:
    """Run a scenario on an etcd with a cluster and a leader."""

    async def main(simulation: Simulation) -> None:
        etcd = SimEtcd(simulation.loop, Random(simulation.chance.getrandbits(64)))
        link = etcd.link("node")
        await found_cluster(link, KEYS, (PeerId(1),))
        await link.txn((), [PutKey(KEYS.leader, b"leader")])
        await scenario(etcd)

    Simulation(1).run(main)


async def store(link: SimEtcdLink, index: int, data: bytes, *, by: int = 0) -> bool:
    """Store a snapshot as the leader of the time, or of a revision."""
    leader = (await link.range(ReadKeys(KEYS.leader))).items[0].modified_at
    record = describe_snapshot(index, MEMBERS, data)
    return await store_snapshot(link, KEYS, record, data, leader_revision=by or leader)


async def stored(link: SimEtcdLink) -> tuple[SnapshotRecord, bytes]:
    """Return the snapshot in etcd."""
    reply = await link.range(ReadKeys(KEYS.snapshot))
    record = decode_snapshot(reply.items[0].value)
    return record, await load_snapshot(link, KEYS, record, revision=reply.revision)


def test_a_snapshot_is_read_as_it_was_stored() -> None:
    """With any number of pieces; those of earlier ones are deleted, and the log before it."""

    async def scenario(etcd: SimEtcd) -> None:
        link = etcd.link("node")
        assert await stored(link) == (SnapshotRecord(0, 0, 0, 0, MEMBERS), b"")
        for index, size in enumerate((1, ETCD_CHUNK_BYTES, 3 * ETCD_CHUNK_BYTES + 7, 0), 1):
            data = Random(index).randbytes(size)
            await link.txn((), [PutKey(KEYS.log(index), b"batch")])
            assert await store(link, index, data)
            record, found = await stored(link)

            assert (record.index, record.membership, found) == (index, MEMBERS, data)
            chunks = await link.range(ReadKeys(*KEYS.chunks_before(99)))
            assert len(chunks.items) == record.chunks == -(-size // ETCD_CHUNK_BYTES)
            assert not (await link.range(ReadKeys(KEYS.log(0), KEYS.log_end))).items

    run(scenario)


def test_a_record_that_arrives_late_replaces_nothing() -> None:
    """It would name pieces that are deleted, and the log behind it is gone."""

    async def scenario(etcd: SimEtcd) -> None:
        link, late = etcd.link("node"), Late(etcd)
        with pytest.raises(EtcdUnavailableError):
            await store(late, 10, b"old")
        assert await store(link, 20, b"new")
        assert not late.kept[0]().is_success

        assert (await stored(link))[1] == b"new"

    run(scenario)


def test_only_the_leader_stores_a_snapshot_and_only_a_later_one() -> None:
    """A node that was deposed may be far behind."""

    async def scenario(etcd: SimEtcd) -> None:
        link = etcd.link("node")
        assert await store(link, 20, b"new")
        assert not await store(link, 20, b"same")
        assert not await store(link, 30, b"foreign", by=99)

        assert (await stored(link))[1] == b"new"

    run(scenario)


def test_a_snapshot_that_is_not_whole_is_not_taken() -> None:
    """A missing piece is read again later; a damaged one is never restored."""

    async def scenario(etcd: SimEtcd) -> None:
        link = etcd.link("node")
        await store(link, 1, b"good")
        record, _ = await stored(link)
        await link.txn((), [PutKey(KEYS.chunk(record, 0), b"evil")])
        with pytest.raises(ProtocolError):
            await stored(link)
        missing = SnapshotRecord(1, 5, 4, 0, MEMBERS)
        with pytest.raises(EtcdCompactedError):
            await load_snapshot(link, KEYS, missing, revision=0)

    run(scenario)
