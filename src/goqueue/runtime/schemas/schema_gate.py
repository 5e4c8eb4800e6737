"""The gate on the road into a log: what does not fit its topic's schema stays out."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from goqueue.base.ids import TopicPartition
from goqueue.core.dlq.names import is_dlq
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.row import Row
from goqueue.core.schemas.judge import Judge
from goqueue.core.topics.settings import TO_DLQ, TopicSettings
from goqueue.observability.schema_metrics import SchemaMetrics
from goqueue.runtime.schemas.rejects import Rejects
from goqueue.runtime.schemas.schemas import Schemas

CHUNK_MESSAGES: Final = 2_000
"""So many messages are judged before others in the loop get their turn."""


class SchemaGate:
    """Judges messages of every topic that asks for it, in batches."""

    def __init__(self, schemas: Schemas, metrics: SchemaMetrics, rejects: Rejects) -> None:
        self._schemas = schemas
        self._metrics = metrics
        self._rejects = rejects

    def __repr__(self) -> str:
        return f"<SchemaGate before {self._schemas!r}>"

    def forget(self, topic: str) -> None:
        """Drop what is counted of a deleted topic."""
        self._metrics.forget(topic)

    async def refuse(
        self,
        partition: TopicPartition,
        settings: TopicSettings,
        frames: Sequence[CheckedFrame],
    ) -> dict[int, str]:
        """Return what may not be published, by its place, and why; keep it if the topic says so."""
        found = await self.misfits(partition.topic, settings, frames)
        if not found or settings.schema_validation != TO_DLQ or is_dlq(partition.topic):
            return found
        kept = await self._rejects.keep(partition, frames, found)
        return {row: f"{reason} (kept in {kept})" for row, reason in found.items()}

    async def misfits(
        self, topic: str, settings: TopicSettings, frames: Sequence[CheckedFrame]
    ) -> dict[int, str]:
        """Return the messages that do not fit, by their place in the request, and why."""
        began = time.perf_counter()
        values = [value for frame in frames for value in _values(frame)]
        found = await self._judge(topic, settings, values)
        if found and self._schemas.history is None and self._schemas.feed is not None:
            # Another node may have taken the schema a moment ago.
            await self._schemas.refresh()
            found = await self._judge(topic, settings, values)
        seconds = time.perf_counter() - began
        fit = len(values) - len(found)
        self._metrics.judged(topic, fit=fit, unfit=len(found), seconds=seconds)
        return found

    async def _judge(
        self, topic: str, settings: TopicSettings, values: Sequence[bytes | None]
    ) -> dict[int, str]:
        judge = Judge(self._schemas.registry, topic=topic, strategy=settings.schema_subject)
        found: dict[int, str] = {}
        for start in range(0, len(values), CHUNK_MESSAGES):
            if start:
                await asyncio.sleep(0)
            for row, reason in judge.misfits(values[start : start + CHUNK_MESSAGES]).items():
                found[start + row] = reason
        return found


def _values(frame: CheckedFrame) -> list[bytes | None]:
    if not frame.header.is_batch:
        return [Row(frame.header, frame.frame).value]
    values: list[bytes | None] = decode_batch(frame.header, frame.frame).column("value").to_pylist()
    return values
