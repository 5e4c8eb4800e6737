"""Messages that did not fit their schema, kept as dead letters where their topic asks for it."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from goqueue.base.errors import GoQueueError, TopicNotFoundError
from goqueue.base.grant import BROKER_PUBLISHES
from goqueue.base.ids import Offset, TopicPartition
from goqueue.base.limits import DLQ_RETENTION_MS
from goqueue.core.dlq.names import dlq_of
from goqueue.core.dlq.record import Story, bury
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.headers import ORIGIN
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import drafts_of
from goqueue.runtime.clock import Clock
from goqueue.runtime.dlq.dead_letters import Topics
from goqueue.runtime.log.topic import Topic

REASON: Final = "SCHEMA_VIOLATION"


class Rejects:
    """Puts refused messages beside the dead letters of consumers."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Rejects of {self._topics!r}>"

    async def keep(
        self, source: TopicPartition, frames: Sequence[CheckedFrame], misfits: Mapping[int, str]
    ) -> str:
        """Keep the messages that do not fit, durably; return where. A repeat is kept again."""
        dlq = await self._find_dlq(source)
        drafts = [draft for frame in frames for draft in drafts_of(frame.header, frame.frame)]
        letters = [
            (self._letter(source, drafts[row], reason), None) for row, reason in misfits.items()
        ]
        for outcome in await dlq.publish_drafts(BROKER_PUBLISHES, letters):
            if isinstance(outcome, GoQueueError):
                raise outcome
        return dlq.record.name

    def _letter(self, source: TopicPartition, draft: Draft, reason: str) -> Draft:
        now_ms = self._clock.now_ms()
        story = Story(
            original_topic=source.topic,
            original_partition=source.partition,
            original_timestamp_us=draft.timestamp_us,
            reason=REASON,
            last_error=reason,
            dlq_time_ms=now_ms,
        )
        message = Message(
            topic=source.topic,
            partition=source.partition,
            offset=Offset(0),
            timestamp_us=draft.timestamp_us,
            key=draft.key,
            value=draft.value,
            headers=draft.headers,
            priority=draft.priority,
        )
        letter = bury(message, story, origin=b"")
        # It never had an offset, so there is no place it came from.
        headers = {name: value for name, value in (letter.headers or {}).items() if name != ORIGIN}
        return msgspec.structs.replace(letter, headers=headers)

    async def _find_dlq(self, source: TopicPartition) -> Topic:
        name = dlq_of(source.topic)
        try:
            return self._topics.topic(name)
        except TopicNotFoundError:
            partitions = len(self._topics.topic(source.topic).partitions)
            settings: dict[str, object] = {"retention_ms": DLQ_RETENTION_MS}
            return await self._topics.ensure_topic(name, partitions=partitions, settings=settings)
