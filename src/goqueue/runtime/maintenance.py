"""Work that is nobody's request: retention, compaction, background syncs, forgetting."""

import asyncio
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import GoQueueError
from goqueue.observability.logging import get_logger
from goqueue.runtime.topic import Topic

if TYPE_CHECKING:
    from goqueue.runtime.broker import Broker

SYNC_TICK_MS: Final = 100
"""How finely the ``interval`` durability of topics is kept."""

log = get_logger("goqueue.maintenance")


class Maintenance:
    """Three slow loops beside the broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._synced_ms: dict[str, int] = {}

    def start(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._keep()),
            loop.create_task(self._compact()),
            loop.create_task(self._sync()),
        ]

    async def stop(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.maintenance_interval_ms / 1_000)
            for topic in list(self._broker.topics.values()):
                self.keep(topic)
                await asyncio.sleep(0)

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.maintenance_interval_ms / 1_000)
            for topic in list(self._broker.topics.values()):
                await self._broker.compactor.compact_due(topic)
                await asyncio.sleep(0)

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(SYNC_TICK_MS / 1_000)
            self.sync_due()

    def sync_due(self) -> None:
        """Ask for the background syncs that are due."""
        now_ms = self._broker.clock.monotonic_ms()
        for name, topic in self._broker.topics.items():
            interval_ms = topic.settings.sync_interval_ms
            if interval_ms is None or now_ms - self._synced_ms.get(name, 0) < interval_ms:
                continue
            self._synced_ms[name] = now_ms
            for partition in topic.partitions:
                partition.sync_soon()

    def keep(self, topic: Topic) -> None:
        """Delete what retention no longer keeps, and forget what is past its time."""
        topic.forget_dedup_ids()
        settings = topic.settings
        if not settings.is_expired or not (settings.retention_ms or settings.retention_bytes):
            return
        for partition in topic.partitions:
            if partition.is_closed or partition.log.failure is not None:
                continue
            try:
                count = partition.expire(self._broker.clock.now_ms())
            except GoQueueError as error:
                log.warning("retention failed", partition=str(partition.name), error=error.message)
                continue
            if count:
                log.info(
                    "segments deleted by retention",
                    partition=str(partition.name),
                    segments=count,
                    start_offset=partition.log.start_offset,
                )
