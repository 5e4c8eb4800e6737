"""Follows the log and the leader in etcd: everything once, then every change in its order.

The changes go on from the last revision that was seen, over connections that break. Where etcd no
longer keeps them (it was compacted) the snapshot and the log behind it are read anew.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from goqueue.base.cluster_limits import ETCD_PAGE_KEYS
from goqueue.base.errors import DataLossError
from goqueue.core.raft.messages import PeerId
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.etcd.api import (
    Etcd,
    EtcdCompactedError,
    EtcdError,
    EtcdTooLargeError,
    EtcdUnavailableError,
    EtcdWatch,
    KeyEvent,
    KeyValue,
    ReadKeys,
)
from goqueue.runtime.cluster.etcd.records import (
    EtcdKeys,
    HeadRecord,
    LogRecord,
    SnapshotRecord,
    decode_batch,
    decode_head,
    decode_leader,
    decode_snapshot,
)
from goqueue.runtime.cluster.etcd.replica import EtcdReplica
from goqueue.runtime.cluster.etcd.snapshots import found_cluster, load_snapshot

log = get_logger("goqueue.cluster")

PAUSE_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Before etcd is asked again; the last one from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdState:
    """The keys beside the log, all as of one revision."""

    revision: int
    snapshot: SnapshotRecord | None
    head: HeadRecord
    head_revision: int
    leader: KeyValue | None


class EtcdFeed:
    """Brings a replica to what is in etcd, and keeps it there."""

    def __init__(
        self,
        etcd: Etcd,
        keys: EtcdKeys,
        replica: EtcdReplica,
        founders: tuple[PeerId, ...],
        changed: Callable[[], None],
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._replica = replica
        self._founders = founders
        self._changed = changed
        self._revision: int | None = None
        """All up to it was seen; None: the keys have to be read."""
        self._watch: EtcdWatch | None = None
        self._seen: EtcdState | None = None
        self._failures = 0

    async def run(self) -> None:
        """Follow etcd for ever. DataLossError: etcd has less than it had."""
        while True:
            try:
                if self._revision is None:
                    self._revision = await self._load()
                await self._follow(self._revision)
            except EtcdCompactedError:
                log.info(LogEvent.ETCD_COMPACTED, revision=self._revision)
                self._revision = None
            except EtcdError as error:
                log.debug(LogEvent.ETCD_READ_FAILED, error=str(error))
            await asyncio.sleep(PAUSE_SECONDS[min(self._failures, len(PAUSE_SECONDS) - 1)])
            self._failures += 1

    # Reading everything

    async def read_state(self) -> EtcdState:
        """Read the keys beside the log."""
        keys = self._keys
        reads = [ReadKeys(key) for key in (keys.snapshot, keys.head, keys.leader)]
        reply = await self._etcd.txn((), reads)
        snapshot, head, leader = (items[0] if items else None for items in reply.found)
        return EtcdState(
            revision=reply.revision,
            snapshot=decode_snapshot(snapshot.value) if snapshot else None,
            head=decode_head(head.value) if head else HeadRecord(0, 0),
            head_revision=head.modified_at if head else 0,
            leader=leader,
        )

    async def _load(self) -> int:
        """Read the snapshot, if it is of use, and the log behind it; return the revision."""
        applied = self._replica.index
        state = await self.read_state()
        if state.snapshot is None:
            _check_kept(applied, 0)
            if not self._founders:
                raise EtcdUnavailableError("there is no cluster under this prefix yet")
            await found_cluster(self._etcd, self._keys, self._founders)
            state = await self.read_state()
        record, replica = state.snapshot, self._replica
        if record is None:
            raise EtcdUnavailableError("the cluster was not founded")
        _check_kept(applied, state.head.index)
        if record.index > replica.index or not replica.is_loaded:
            data = await load_snapshot(self._etcd, self._keys, record, revision=state.revision)
            # This node may have led and gone further meanwhile.
            if record.index > replica.index or not replica.is_loaded:
                replica.restore(record, data)
                replica.is_loaded = True
        await self._load_log(state)
        if replica.index == state.head.index:
            replica.head_revision = state.head_revision
        self._set_leader(state.leader)
        self._changed()
        return state.revision

    async def _load_log(self, state: EtcdState) -> None:
        """Apply the batches as of a revision, page by page."""
        limit, keys = ETCD_PAGE_KEYS, self._keys
        while self._replica.index < state.head.index:
            page = ReadKeys(keys.log(self._replica.index + 1), keys.log_end, limit)
            try:
                reply = await self._etcd.range(page, revision=state.revision)
            except EtcdTooLargeError:
                if limit == 1:
                    raise
                limit //= 2
                continue
            if not reply.items:
                raise EtcdCompactedError(f"the log in etcd ends at {self._replica.index}")
            for item in reply.items:
                self._apply(item.key, item.value, item.modified_at)
            self._changed()

    # Following changes

    async def _follow(self, revision: int) -> None:
        first, end = self._keys.feed
        watch = await self._etcd.watch(first, end, start_revision=revision + 1)
        self._watch = watch
        try:
            while True:
                for event in await watch.next():
                    self._take(event)
                    self._revision = event.modified_at
                self._failures = 0
                self._changed()
        finally:
            self._watch = None
            watch.close()

    def _take(self, event: KeyEvent) -> None:
        if event.key != self._keys.leader:
            if event.value is not None:
                self._apply(event.key, event.value, event.modified_at)
        elif event.value is None:
            self._set_leader(None)
        else:
            self._set_leader(KeyValue(event.key, event.value, event.modified_at, event.lease))

    def _apply(self, key: bytes, value: bytes, revision: int) -> None:
        index = self._keys.index_in(key)
        if index is None:
            return
        record = LogRecord(index, decode_batch(value), revision)
        if not self._replica.apply(record, len(value)):
            raise EtcdCompactedError(f"the log in etcd goes on at {index}")

    def _set_leader(self, item: KeyValue | None) -> None:
        if item is None:
            self._replica.set_leader(None, 0)
        else:
            self._replica.set_leader(decode_leader(item.value), item.modified_at)

    async def check(self) -> None:
        """Read everything anew if the watch does not show what has been there for a while.

        It may hang on a lost connection or on a member of etcd that is cut off, and etcd before 3.5
        may miss to show a deletion at the very revision to which it was compacted.
        """
        applied, before = self._replica.index, self._seen
        self._seen = await self.read_state()
        _check_kept(applied, self._seen.head.index)
        watch = self._watch
        if watch is None or before is None:
            return
        if self._is_behind(before) and self._is_behind(self._seen):
            log.warning(LogEvent.ETCD_WATCH_STALLED, revision=self._revision)
            self._seen = self._revision = None
            watch.close()

    def _is_behind(self, state: EtcdState) -> bool:
        replica = self._replica
        revision = state.leader.modified_at if state.leader else 0
        is_leader_old = revision != replica.leader_revision and (
            revision == 0 or revision > replica.leader_revision
        )
        return replica.index < state.head.index or is_leader_old


def _check_kept(applied: int, index: int) -> None:
    """Compare the end of the log with what was applied here before it was read."""
    if index < applied:
        raise DataLossError(
            f"etcd has the cluster's log up to {index}, this node has applied it up to {applied}: "
            "was etcd restored from a backup, or its keys deleted?"
        )
