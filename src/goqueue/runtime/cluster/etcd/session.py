"""A lease of a node in etcd: kept while the node runs, and believed in no longer than it lasts."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.etcd.api import (
    Etcd,
    EtcdError,
    EtcdLeaseLostError,
    EtcdRefusedError,
    PutKey,
)
from goqueue.runtime.cluster.etcd.records import NodeRecord, encode_record

log = get_logger("goqueue.cluster")

KEEPS_PER_LEASE: Final = 4
"""How often the time of a lease is begun anew before it would be over."""
PAUSE_SECONDS: Final = 0.1
"""Before a lease is asked for again."""
STOP_SECONDS: Final = 1.0
"""How long a stop waits for etcd to end the lease; without an answer it ends by itself."""


class EtcdSession:
    """Grants, keeps and loses leases, one after the other. Every one has an id of its own."""

    def __init__(
        self, etcd: Etcd, node_key: bytes, lease_seconds: int, changed: Callable[[], None]
    ) -> None:
        self._etcd = etcd
        self._node_key = node_key
        self._lease_seconds = lease_seconds
        self._changed = changed
        self._lease = 0
        self._until = 0.0
        self._is_reachable = True

    @property
    def lease(self) -> int:
        """The lease that is surely not over; 0 if there is none."""
        return self._lease if time.monotonic() < self._until else 0

    async def run(self) -> None:
        """Have a lease at all times that etcd can be reached."""
        while True:
            try:
                await self._hold()
            except EtcdLeaseLostError:
                pass
            except EtcdError as error:
                self._note_reachable(error)
            self._forget()
            await asyncio.sleep(PAUSE_SECONDS)

    async def stop(self) -> None:
        """End the lease, so that others need not wait for its end."""
        lease, self._lease = self._lease, 0
        if lease:
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._etcd.revoke(lease)
            except (EtcdError, TimeoutError):
                log.debug(LogEvent.ETCD_LEASE_NOT_ENDED, lease=lease)

    async def _hold(self) -> None:
        """Keep one lease until it is lost, or may be."""
        begun = time.monotonic()
        granted = await self._etcd.grant(self._lease_seconds)
        # The key is how another leader knows by which lease this node would lead.
        record = encode_record(NodeRecord(granted.id))
        await self._etcd.txn((), [PutKey(self._node_key, record, granted.id)])
        self._note_reachable(None)
        self._lease, self._until = granted.id, begun + granted.seconds
        self._changed()
        pause = granted.seconds / KEEPS_PER_LEASE
        while True:
            await asyncio.sleep(pause)
            await self._keep()

    async def _keep(self) -> None:
        """Begin the time anew. Without an answer it is tried until the lease may be over."""
        while True:
            begun = time.monotonic()
            if begun >= self._until:
                raise EtcdLeaseLostError("etcd did not answer for as long as the lease lasts")
            try:
                async with asyncio.timeout(self._until - begun):
                    seconds = await self._etcd.keep_alive(self._lease)
            except EtcdRefusedError:
                raise
            except (EtcdError, TimeoutError) as error:
                self._note_reachable(error)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self._note_reachable(None)
                self._until = begun + seconds
                return

    def _forget(self) -> None:
        """Believe in the lease no longer. If it is not over its keys go when it is."""
        if self._lease:
            log.warning(LogEvent.ETCD_LEASE_LOST, lease=self._lease)
        self._lease, self._until = 0, 0.0
        self._changed()

    def _note_reachable(self, error: Exception | None) -> None:
        """Say once that etcd cannot be reached, or can be again."""
        was_reachable, self._is_reachable = self._is_reachable, error is None
        if error is not None and was_reachable:
            log.warning(LogEvent.ETCD_UNREACHABLE, error=str(error) or type(error).__name__)
        if error is None and not was_reachable:
            log.info(LogEvent.ETCD_REACHABLE)
