"""Background work: retention, compaction, background syncs, forgetting."""

import asyncio
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import GoQueueError
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.expiry import expire
from goqueue.runtime.log.topic import Topic

if TYPE_CHECKING:
    from goqueue.runtime.broker import Broker

SYNC_TICK_MS: Final = 100
"""How finely the ``interval`` durability of topics is kept."""
SHIFT_MS_MIN: Final = 1_000
"""A wall clock that was set by less is not worth a line in the log."""

log = get_logger("goqueue.maintenance")


class Maintenance:
    """Three slow loops beside the broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._synced_ms: dict[str, int] = {}
        self._shift_ms = broker.clock.shift_ms()

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
            self.forget_strangers()
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
            self.look_at_the_wall()

    def look_at_the_wall(self) -> None:
        """Notice a wall clock that was set, also while nothing waits for a time."""
        shift_ms = self._broker.clock.shift_ms()
        if abs(shift_ms - self._shift_ms) >= SHIFT_MS_MIN:
            log.warning(
                LogEvent.WALL_CLOCK_SET,
                by_ms=shift_ms - self._shift_ms,
                from_start_ms=shift_ms,
            )
            self._shift_ms = shift_ms

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

    def forget_strangers(self) -> None:
        """Forget when topics were synced that are gone."""
        for name in self._synced_ms.keys() - self._broker.topics.keys():
            del self._synced_ms[name]

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
                count = expire(partition, self._broker.clock.expiry_ms(settings.retention_ms))
            except GoQueueError as error:
                log.warning(
                    LogEvent.RETENTION_FAILED, partition=str(partition.name), error=error.message
                )
                continue
            if count:
                log.info(
                    LogEvent.SEGMENTS_DELETED,
                    partition=str(partition.name),
                    segments=count,
                    start_offset=partition.log.start_offset,
                )
