"""What stands on the road into a log: it says which messages stay out."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from goqueue.base.ids import TopicPartition
from goqueue.core.record.check import CheckedFrame
from goqueue.core.topics.settings import TopicSettings


class AppendGuard(Protocol):
    """Who judges messages before they may go into a log."""

    async def refuse(
        self, partition: TopicPartition, settings: TopicSettings, frames: Sequence[CheckedFrame]
    ) -> Mapping[int, str]:
        """Return what may not be published, by its place, and why; keep it if the topic says so."""
        ...

    async def misfits(
        self, topic: str, settings: TopicSettings, frames: Sequence[CheckedFrame]
    ) -> Mapping[int, str]:
        """Return the messages that do not fit, by their place in the request, and why."""
        ...
