"""An etcd behind a bad network, on virtual time: slow, lost, late and repeated-by-the-caller.

A write may be done though its caller heard nothing, or be done after the caller gave up. Watches
break, stall and fall behind a compaction. Leases end, and an etcd that comes back extends them.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from goqueue.runtime.cluster.etcd.api import (
    EtcdError,
    EtcdRefusedError,
    EtcdUnavailableError,
    GrantedLease,
    KeyEvent,
    KeyOperation,
    ModifiedAt,
    PutKey,
    RangeReply,
    ReadKeys,
    TxnReply,
)
from goqueue.testing.etcd import MemoryEtcd

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 0.5
"""How long a client waits for an answer."""
LATE_SECONDS: Final = 4.0
"""How late a request may arrive: after leases and leaders have changed."""
EXPIRY_SECONDS: Final = 0.25
"""How often etcd looks for leases that are over."""


@dataclass(slots=True, kw_only=True)
class EtcdFaults:
    """How bad it is: chances from 0 to 1, and seconds."""

    delay: tuple[float, float] = (0.000_2, 0.003)
    lost: float = 0.0
    """Requests that never arrive."""
    unanswered: float = 0.0
    """Requests that are done, without an answer."""
    late: float = 0.0
    """Requests that are done after their caller gave up."""
    watch_broken: float = 0.0
    """Watches that break, at each batch of changes."""
    is_full: bool = False
    """Nothing can be stored, as when etcd's quota is used up."""
    watch_stalled: float = 0.0
    """Watches that show nothing any more, at each batch of changes."""


class SimEtcd:
    """The members of an etcd as one, which can be down, and reached from nodes or not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.model = MemoryEtcd()
        self.faults = EtcdFaults()
        self.is_up: Callable[[], bool] = lambda: True
        self.can_reach: Callable[[str], bool] = lambda _: True
        self._was_up = True
        self._news = asyncio.Event()
        self._expire()

    def link(self, name: str) -> "SimEtcdLink":
        """Return the connection of a node."""
        return SimEtcdLink(self, name)

    def do(self, work: Callable[[], T]) -> T:
        """Do something, and wake the watches if that changed anything."""
        before = self.model.revision
        try:
            return work()
        finally:
            if self.model.revision != before:
                self.wake_watches()

    def wake_watches(self) -> None:
        """Let watches look for changes."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self) -> None:
        """Wait for a change."""
        await self._news.wait()

    def _expire(self) -> None:
        self.loop.call_later(EXPIRY_SECONDS, self._expire)
        is_up, was_up = self.is_up(), self._was_up
        self._was_up = is_up
        now = self.loop.time()
        if is_up and not was_up:
            self.model.extend_all(now=now)
        if is_up:
            self.do(lambda: self.model.expire(now=now))


class SimEtcdLink:
    """What a node sees of an etcd: an implementation of ``Etcd``."""

    def __init__(self, server: SimEtcd, name: str) -> None:
        self._server = server
        self._name = name
        self.is_dead = False
        """The process of this node was killed; what it sent may still arrive."""

    async def range(self, keys: ReadKeys, *, revision: int = 0) -> RangeReply:
        """Read keys."""
        return await self._call(lambda: self._server.model.range(keys, revision=revision))

    async def txn(
        self,
        conditions: Sequence[ModifiedAt],
        then: Sequence[KeyOperation],
        otherwise: Sequence[KeyOperation] = (),
    ) -> TxnReply:
        """Do one of two lists of operations."""
        stores = any(isinstance(one, PutKey) for one in (*then, *otherwise))

        def work() -> TxnReply:
            if stores and self._server.faults.is_full:
                raise EtcdRefusedError("mvcc: database space exceeded")
            return self._server.model.txn(conditions, then, otherwise)

        return await self._call(work)

    async def grant(self, seconds: int) -> GrantedLease:
        """Begin a lease."""
        now = self._server.loop.time
        return await self._call(lambda: self._server.model.grant(seconds, now=now()))

    async def keep_alive(self, lease: int) -> float:
        """Begin the time of a lease anew."""
        now = self._server.loop.time
        return await self._call(lambda: self._server.model.keep_alive(lease, now=now()))

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._call(lambda: self._server.model.revoke(lease))

    async def watch(self, key: bytes, end: bytes, *, start_revision: int) -> "SimEtcdWatch":
        """Follow changes."""
        await self._call(lambda: None)
        return SimEtcdWatch(self._server, self, key, end, start_revision)

    async def close(self) -> None:
        """Hold nothing."""

    @property
    def is_connected(self) -> bool:
        """Return True if etcd would answer."""
        server = self._server
        return not self.is_dead and server.is_up() and server.can_reach(self._name)

    async def pause(self) -> None:
        """Let a message travel."""
        await asyncio.sleep(self._server.chance.uniform(*self._server.faults.delay))

    async def _call(self, work: Callable[[], T]) -> T:
        server, faults, chance = self._server, self._server.faults, self._server.chance
        await self.pause()
        if not self.is_connected or chance.random() < faults.lost:
            raise await self._nothing()
        if chance.random() < faults.late:
            seconds = TIMEOUT_SECONDS + chance.uniform(0, LATE_SECONDS)
            server.loop.call_later(seconds, self._arrive, work)
            raise await self._nothing()
        result = server.do(work)
        if chance.random() < faults.unanswered:
            raise await self._nothing()
        await self.pause()
        if not self.is_connected:
            raise await self._nothing()
        return result

    def _arrive(self, work: Callable[[], object]) -> None:
        if self._server.is_up():
            with suppress(EtcdError):
                self._server.do(work)

    async def _nothing(self) -> EtcdUnavailableError:
        if not self.is_dead:
            await asyncio.sleep(TIMEOUT_SECONDS)
        return EtcdUnavailableError("no answer")


class SimEtcdWatch:
    """A watch of a node: an implementation of ``EtcdWatch``."""

    def __init__(
        self, server: SimEtcd, link: SimEtcdLink, key: bytes, end: bytes, revision: int
    ) -> None:
        self._server = server
        self._link = link
        self._keys = (key, end)
        self._revision = revision
        self._is_closed = False
        self._is_stalled = False

    async def next(self) -> Sequence[KeyEvent]:
        """Return the next changes."""
        server, chance = self._server, self._server.chance
        while True:
            if self._is_closed or not self._link.is_connected:
                raise EtcdUnavailableError("the watch is over")
            changes = server.model.changes(*self._keys, start_revision=self._revision)
            if changes and not self._is_stalled:
                await self._link.pause()
                self._is_stalled = chance.random() < server.faults.watch_stalled
                if chance.random() < server.faults.watch_broken:
                    raise EtcdUnavailableError("the watch broke")
                if not self._is_stalled:
                    return self._some(changes)
            if not changes:
                # A watch that has seen everything is not hurt by a compaction.
                self._revision = server.model.revision + 1
            await server.news()

    def close(self) -> None:
        """End the watch."""
        self._is_closed = True
        self._server.wake_watches()

    def _some(self, changes: Sequence[KeyEvent]) -> Sequence[KeyEvent]:
        """Return all changes or the first ones, but those of one revision together."""
        last = self._server.chance.choice(changes).modified_at
        taken = [event for event in changes if event.modified_at <= last]
        self._revision = last + 1
        return taken
