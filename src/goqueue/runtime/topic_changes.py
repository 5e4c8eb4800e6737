"""Making, changing and removing topics: here, or in a cluster where its metadata is decided."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from goqueue.base.errors import GoQueueError, InvalidRequestError, TopicExistsError
from goqueue.base.ids import TopicName
from goqueue.base.names import topic_name
from goqueue.core.dlq.names import dlq_name

if TYPE_CHECKING:
    from goqueue.runtime.broker import Broker
    from goqueue.runtime.log.topic import Topic


class TopicChanges:
    """One way to change topics for both: a broker by itself and a node of a cluster."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def __repr__(self) -> str:
        return f"<TopicChanges of {self._broker!r}>"

    async def make(
        self, name: object, *, partitions: int, settings: Mapping[str, object] | None = None
    ) -> "Topic":
        """Make a topic, durably; a large one bit by bit, so that others are answered meanwhile."""
        broker, settings = self._broker, settings or {}
        if broker.topology is None:
            return await broker.catalogue.make(name, partitions=partitions, settings=settings)
        named = topic_name(name)
        await broker.topology.create_topic(named, partitions=partitions, settings=settings)
        return broker.topic(named)

    async def ensure(
        self, name: str, *, partitions: int, settings: Mapping[str, object]
    ) -> "Topic":
        """Return a topic, made if there is none. By itself a broker does so without waiting."""
        broker = self._broker
        known = broker.topics.get(TopicName(name))
        if known is not None:
            return known
        if broker.topology is None:
            return broker.create_topic(name, partitions=partitions, settings=settings)
        with contextlib.suppress(TopicExistsError):
            await broker.topology.create_topic(name, partitions=partitions, settings=settings)
        return broker.topic(name)

    async def change(self, name: str, changes: Mapping[str, object]) -> "Topic":
        """Change settings of a topic, durably."""
        broker = self._broker
        if broker.topology is None:
            return broker.configure_topic(name, changes)
        await broker.topology.configure_topic(name, changes)
        return broker.topic(name)

    async def add_partitions(
        self, name: str, count: int, *, assignments: Mapping[int, Sequence[str]] | None = None
    ) -> "Topic":
        """Give a topic more partitions, durably, and its dead letters as many."""
        topic = await self._scale(name, count, assignments or {})
        letters = self._broker.topics.get(TopicName(dlq_name(topic.record.name)))
        if letters is not None and len(letters.partitions) < count:
            # Dead letters have a place without it, in the partitions there are.
            with contextlib.suppress(GoQueueError):
                await self._scale(letters.record.name, count, {})
        return topic

    async def _scale(
        self, name: str, count: int, assignments: Mapping[int, Sequence[str]]
    ) -> "Topic":
        broker = self._broker
        if broker.topology is None:
            if assignments:
                raise InvalidRequestError("replica_assignments: this broker has no other nodes")
            return await broker.catalogue.scale(name, partitions=count)
        await broker.topology.add_partitions(name, count, assignments)
        return broker.topic(name)

    def is_scaling(self, topic: "Topic") -> bool:
        """Return True while partitions are being added to a topic."""
        growths = topic.record.growths
        is_begun = bool(growths) and not growths[-1].is_over
        return is_begun or self._broker.catalogue.is_scaling(topic.record.name)

    async def remove(self, name: str) -> None:
        """Remove a topic with all its messages, durably."""
        if self._broker.topology is None:
            self._broker.delete_topic(name)
        else:
            await self._broker.topology.delete_topic(name)
