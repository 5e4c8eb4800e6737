"""Ending replacements of delayed messages that were cut short: by a failure, or by an unload."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.base.ids import TopicName
from goqueue.base.units import SECOND_MS
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.schedule.replacing import DelayReplacements

BACKOFF_MS_MIN: Final = 1_000
BACKOFF_MS_MAX: Final = 30_000
"""How long until a replacement that could not be ended is tried again; doubled each time."""

log = get_logger("goqueue.schedule")


class Resolving:
    """Has one task for each topic with replacements that are to be ended."""

    def __init__(self, topics: Mapping[TopicName, Topic], replacements: DelayReplacements) -> None:
        self._topics = topics
        self._replacements = replacements
        self.tasks: dict[TopicName, asyncio.Task[None]] = {}
        self.sleep: Callable[[int], Awaitable[None]] = _sleep_ms
        replacements.on_unfinished = self.begin

    def __repr__(self) -> str:
        return f"<Resolving: {len(self.tasks)} topics>"

    def begin(self, name: TopicName) -> None:
        """Begin to see to the replacements of a topic, unless that is under way."""
        topic = self._topics.get(name)
        if topic is None or name in self.tasks:
            return
        task = asyncio.get_running_loop().create_task(self._resolve(topic))
        self.tasks[name] = task
        task.add_done_callback(partial(self._done, name))

    def _done(self, name: TopicName, task: asyncio.Task[None]) -> None:
        if self.tasks.get(name) is task:
            del self.tasks[name]

    def stop(self) -> None:
        """Leave everything as it is; the next start sees to it."""
        for task in list(self.tasks.values()):
            task.cancel()

    async def _resolve(self, topic: Topic) -> None:
        """See to the replacements of a topic, behind those under way, until it succeeds."""
        pause_ms = BACKOFF_MS_MIN
        while self._topics.get(topic.record.name) is topic:
            try:
                async with topic.turn:
                    await self._replacements.resolve(topic)
            except ShuttingDownError:
                return
            except GoQueueError as error:
                if pause_ms == BACKOFF_MS_MIN:
                    log.warning(LogEvent.REPLACEMENT_NOT_SETTLED, error=error.message)
            else:
                return
            await self.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, BACKOFF_MS_MAX)


async def _sleep_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / SECOND_MS)
