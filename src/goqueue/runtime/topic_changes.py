"""Making, changing and removing topics: here, or in a cluster where its metadata is decided."""

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from goqueue.base.errors import TopicExistsError
from goqueue.base.ids import TopicName
from goqueue.base.names import topic_name

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

    async def remove(self, name: str) -> None:
        """Remove a topic with all its messages, durably."""
        if self._broker.topology is None:
            self._broker.delete_topic(name)
        else:
            await self._broker.topology.delete_topic(name)
