"""Etcd in memory: revisions, transactions, leases, the history that watches need, and compaction.

A model without time and network of its own; ``testing/sim/etcd.py`` puts it behind a bad network.
It passes the same contract as a real etcd (``tests/runtime/cluster/etcd/etcd_contract.py``).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from goqueue.runtime.cluster.etcd.api import (
    DeleteKeys,
    EtcdCompactedError,
    EtcdLeaseLostError,
    EtcdRefusedError,
    GrantedLease,
    KeyEvent,
    KeyOperation,
    KeyValue,
    ModifiedAt,
    PutKey,
    RangeReply,
    ReadKeys,
    TxnReply,
)


class _Lease(NamedTuple):
    seconds: float
    until: float


class MemoryEtcd:
    """All members as one. Times are seconds of whatever clock the caller has."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._keys: dict[bytes, KeyValue] = {}
        self._history: list[KeyEvent] = []
        self._leases: dict[int, _Lease] = {}
        self._lease_number = 1_000

    def __repr__(self) -> str:
        return f"<MemoryEtcd revision={self.revision} keys={len(self._keys)}>"

    # Keys

    def range(self, keys: ReadKeys, *, revision: int = 0) -> RangeReply:
        """Read keys, as they are or as they were."""
        if revision > self.revision:
            raise EtcdRefusedError("required revision is a future revision")
        if revision and revision < self.compacted:
            raise EtcdCompactedError("required revision has been compacted")
        stored = self._keys if revision in (0, self.revision) else self._as_of(revision)
        found = [stored[key] for key in sorted(_chosen(stored, keys.key, keys.end))]
        limit = keys.limit or len(found)
        return RangeReply(self.revision, found[:limit], len(found) > limit)

    def _as_of(self, revision: int) -> dict[bytes, KeyValue]:
        stored: dict[bytes, KeyValue] = {}
        for event in self._history:
            if event.modified_at > revision:
                break
            if event.value is None:
                stored.pop(event.key, None)
            else:
                stored[event.key] = KeyValue(event.key, event.value, event.modified_at, event.lease)
        return stored

    def txn(
        self,
        conditions: Sequence[ModifiedAt],
        then: Sequence[KeyOperation],
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnReply:
        """Do one of two lists of operations."""
        none = KeyValue(b"", b"", 0)
        is_success = all(self._keys.get(key, none).modified_at == at for key, at in conditions)
        operations = then if is_success else otherwise
        for operation in operations:
            if isinstance(operation, PutKey) and operation.lease:
                self._check_lease(operation.lease)
        before = len(self._history)
        found = [items for one in operations if (items := self._do(one)) is not None]
        if len(self._history) > before:
            self.revision += 1
        return TxnReply(self.revision, is_success, found)

    def _do(self, operation: KeyOperation) -> Sequence[KeyValue] | None:
        match operation:
            case ReadKeys():
                return self.range(operation).items
            case PutKey(key, value, lease):
                self._keys[key] = KeyValue(key, value, self.revision + 1, lease)
                self._history.append(KeyEvent(key, value, self.revision + 1, lease))
            case DeleteKeys(key, end):
                self._delete(_chosen(self._keys, key, end))
        return None

    def _delete(self, keys: Iterable[bytes]) -> None:
        for key in sorted(keys):
            del self._keys[key]
            self._history.append(KeyEvent(key, None, self.revision + 1))

    # Leases

    def grant(self, seconds: float, *, now: float) -> GrantedLease:
        """Begin a lease."""
        self._lease_number += 1
        self._leases[self._lease_number] = _Lease(seconds, now + seconds)
        return GrantedLease(self._lease_number, seconds)

    def keep_alive(self, lease: int, *, now: float) -> float:
        """Begin the time of a lease anew."""
        seconds = self._check_lease(lease).seconds
        self._leases[lease] = _Lease(seconds, now + seconds)
        return seconds

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        self._check_lease(lease)
        del self._leases[lease]
        before = len(self._history)
        self._delete([key for key, item in self._keys.items() if item.lease == lease])
        if len(self._history) > before:
            self.revision += 1

    def expire(self, *, now: float) -> None:
        """End the leases whose time is over."""
        for lease in [one for one, (_, until) in self._leases.items() if until <= now]:
            self.revoke(lease)

    def extend_all(self, *, now: float) -> None:
        """Begin the time of every lease anew, as a new leader of etcd does."""
        for lease in self._leases:
            self.keep_alive(lease, now=now)

    @property
    def leases(self) -> list[int]:
        """The leases that are not over."""
        return list(self._leases)

    def _check_lease(self, lease: int) -> _Lease:
        found = self._leases.get(lease)
        if found is None:
            raise EtcdLeaseLostError("requested lease not found")
        return found

    # History

    def compact(self, revision: int) -> None:
        """Keep no history before a revision."""
        assert self.compacted <= revision <= self.revision
        self.compacted = revision

    def changes(self, key: bytes, end: bytes, *, start_revision: int) -> list[KeyEvent]:
        """Return the changes of keys from a revision on."""
        if start_revision < self.compacted:
            raise EtcdCompactedError("required revision has been compacted")
        found: list[KeyEvent] = []
        for event in reversed(self._history):
            if event.modified_at < start_revision:
                break
            if key <= event.key < end:
                found.append(event)
        return found[::-1]


def _chosen(stored: Iterable[bytes], key: bytes, end: bytes) -> list[bytes]:
    return [one for one in stored if (key <= one < end if end else one == key)]
