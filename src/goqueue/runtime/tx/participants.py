"""The seam between the coordinator of transactions and the partitions and ledgers they touch.

On one node these are in the same process (``runtime/tx/markers.py``). In a cluster each is at the
leader of its partition, and hears by requests (``runtime/tx/remote_participants.py``).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from goqueue.core.tx.producer import TxProducer
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.markers import End, Sync


class Participants(Protocol):
    """Partitions that transactions write to, and ledgers of groups in which they settle."""

    @property
    def are_here(self) -> bool:
        """Return True if all of them hear in the step in which they are told."""
        ...

    def count(self, producer: TxProducer) -> int | None:
        """Return how many messages of the open transaction there are; None is not known."""
        ...

    def unproven(self, producer: TxProducer) -> list[tuple[str, int, int]]:
        """Return last messages that are not committed yet, which a decision has to wait for."""
        ...

    def syncs(self, ends: Iterable[tuple[str, int, int]]) -> list[Sync]:
        """Return what commits the messages that a decision has to wait for."""
        ...

    async def stored(self, hosted: HostedTxProducer) -> None:
        """Return when all messages of the open transaction that were acknowledged are durable."""
        ...

    def enqueue(self, end: End) -> asyncio.Future[None]:
        """Tell of an end soon, with others; only for those that are here."""
        ...

    async def deliver(
        self, hosted: HostedTxProducer, ends: Sequence[End], told: Callable[[], None]
    ) -> None:
        """Tell of ends, call back when all have heard, and return when all have it durably."""
        ...
