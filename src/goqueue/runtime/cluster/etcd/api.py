"""What of etcd's v3 API a cluster uses, as a protocol: the client and the simulated etcd have it.

A revision counts the changes of the whole etcd. ``modified_at`` of a key is the revision of its
last change, 0 if there is no such key, and never comes back once it was another one.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class EtcdError(Exception):
    """Etcd did not do what it was asked for."""


class EtcdUnavailableError(EtcdError):
    """There was no answer. A write may have happened, or may happen yet."""


class EtcdRefusedError(EtcdError):
    """Etcd answered that it does not do this. Nothing was changed."""


class EtcdTooLargeError(EtcdRefusedError):
    """What was read is larger than etcd's or our limit; fewer keys at once may fit."""


class EtcdLeaseLostError(EtcdRefusedError):
    """The lease is over, and the keys that were bound to it are gone."""


class EtcdCompactedError(EtcdRefusedError):
    """The history that was asked for is no longer kept."""


class KeyValue(NamedTuple):
    """A key as it is stored."""

    key: bytes
    value: bytes
    modified_at: int
    lease: int = 0


class ReadKeys(NamedTuple):
    """Read a key, or the keys from ``key`` up to and without ``end``."""

    key: bytes
    end: bytes = b""
    limit: int = 0


class PutKey(NamedTuple):
    """Store a value; it goes when its lease is over."""

    key: bytes
    value: bytes
    lease: int = 0


class DeleteKeys(NamedTuple):
    """Delete a key, or the keys from ``key`` up to and without ``end``."""

    key: bytes
    end: bytes = b""


KeyOperation = ReadKeys | PutKey | DeleteKeys


class ModifiedAt(NamedTuple):
    """A condition of a transaction: a key was last changed at this revision; 0: it is not there."""

    key: bytes
    revision: int


class RangeReply(NamedTuple):
    """Keys as they were at a revision."""

    revision: int
    items: Sequence[KeyValue]
    has_more: bool


class TxnReply(NamedTuple):
    """Which branch was taken, and what its reads found, in their order."""

    revision: int
    is_success: bool
    found: Sequence[Sequence[KeyValue]]


class GrantedLease(NamedTuple):
    """A lease; etcd may give a longer time than was asked for."""

    id: int
    seconds: float


class KeyEvent(NamedTuple):
    """A change of a key; without a value it was deleted."""

    key: bytes
    value: bytes | None
    modified_at: int
    lease: int = 0


class EtcdWatch(Protocol):
    """Changes of keys in the order of their revisions."""

    async def next(self) -> Sequence[KeyEvent]:
        """Return the next changes. After an error there are no more."""
        ...

    def close(self) -> None:
        """End the watch; ``next`` raises EtcdUnavailableError."""
        ...


class Etcd(Protocol):
    """An etcd with all its members. Reads are linearizable."""

    async def range(self, keys: ReadKeys, *, revision: int = 0) -> RangeReply:
        """Read keys in their order, as they are or as they were at a revision."""
        ...

    async def txn(
        self,
        conditions: Sequence[ModifiedAt],
        then: Sequence[KeyOperation],
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnReply:
        """Do one of two lists of operations, all at one revision."""
        ...

    async def grant(self, seconds: int) -> GrantedLease:
        """Begin a lease."""
        ...

    async def keep_alive(self, lease: int) -> float:
        """Begin the time of a lease anew; return how many seconds it lasts from now on."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        ...

    async def watch(self, key: bytes, end: bytes, *, start_revision: int) -> EtcdWatch:
        """Follow the changes of keys from a revision on."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...
