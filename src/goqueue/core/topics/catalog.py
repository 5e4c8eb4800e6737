"""The catalogue of topics.

Shape: decider. The verbs only decide, ``apply`` only changes; the journal of the events is what a
restart reads.
"""

from collections.abc import Mapping

import msgspec

from goqueue.base.errors import (
    InvalidNameError,
    InvalidRequestError,
    OverloadedError,
    TopicExistsError,
    TopicNotFoundError,
)
from goqueue.base.ids import TopicName
from goqueue.base.limits import GROWTHS_MAX, PARTITIONS_MAX, TOPICS_MAX
from goqueue.base.names import is_internal, topic_name
from goqueue.core.decision import Decision
from goqueue.core.topics.settings import TopicSettings, change_settings


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which a topic got more partitions, and keys began to go elsewhere."""

    partitions: int
    """How many there were before."""
    at_ms: int
    ends: tuple[int, ...] = ()
    """Where their logs ended: messages before these offsets went by the old number. Empty while
    that is not known."""

    @property
    def is_over(self) -> bool:
        """Return True if it is known where the old partitions ended."""
        return bool(self.ends)


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as the catalogue knows it."""

    name: TopicName
    partitions: int
    settings: TopicSettings
    created_ms: int
    growths: tuple[Growth, ...] = ()
    """When it got more partitions, oldest first."""


class TopicCreated(msgspec.Struct, frozen=True, tag="topic_created", kw_only=True):
    """A topic came to be."""

    topic: Topic


class TopicConfigured(msgspec.Struct, frozen=True, tag="topic_configured", kw_only=True):
    """A topic's settings changed."""

    name: TopicName
    settings: TopicSettings


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted", kw_only=True):
    """A topic is gone, with all its messages."""

    name: TopicName


class TopicScaled(msgspec.Struct, frozen=True, tag="topic_scaled", kw_only=True):
    """A topic has more partitions than before."""

    name: TopicName
    partitions: int
    at_ms: int = 0
    ends: tuple[int, ...] = ()
    """Where the logs of the partitions before ended, if that is known already."""


class EndsNoted(msgspec.Struct, frozen=True, tag="ends_noted", kw_only=True):
    """It is known where the old partitions of a topic ended when it last got more of them."""

    name: TopicName
    ends: tuple[int, ...]


Event = TopicCreated | TopicConfigured | TopicDeleted | TopicScaled | EndsNoted


class FilesRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a deleted topic are gone. Not stored: a start looks for itself."""

    name: TopicName


class Catalog:
    """Decides about topics and remembers them."""

    def __init__(self) -> None:
        self._topics: dict[TopicName, Topic] = {}
        self._deleted: set[TopicName] = set()

    def __len__(self) -> int:
        return len(self._topics)

    def __repr__(self) -> str:
        return f"<Catalog of {len(self)} topics>"

    @property
    def topics(self) -> Mapping[TopicName, Topic]:
        """Every topic by name."""
        return self._topics

    @property
    def deleted(self) -> frozenset[TopicName]:
        """Names that were deleted and not created again: their files may go."""
        return frozenset(self._deleted)

    def get(self, name: str) -> Topic:
        """Return a topic or raise."""
        topic = self._topics.get(TopicName(name))
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        return topic

    def create(
        self,
        name: object,
        *,
        partitions: int,
        settings: Mapping[str, object],
        now_ms: int,
        by_broker: bool = False,
    ) -> Decision[Event, Topic]:
        """Make a new topic; only the broker itself makes internal ones."""
        checked = topic_name(name)
        if is_internal(checked) and not by_broker:
            raise InvalidNameError("topic names beginning with '__' belong to the broker")
        if checked in self._topics:
            raise TopicExistsError("topic already exists")
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidRequestError(
                f"partitions: {partitions} is not between 1 and {PARTITIONS_MAX}"
            )
        if len(self._topics) >= TOPICS_MAX:
            raise OverloadedError(f"there are {TOPICS_MAX} topics; delete one first")
        topic = Topic(
            name=checked,
            partitions=partitions,
            settings=change_settings(TopicSettings(), settings),
            created_ms=now_ms,
        )
        return Decision((TopicCreated(topic=topic),), topic)

    def configure(self, name: str, changes: Mapping[str, object]) -> Decision[Event, Topic]:
        """Change some settings of a topic."""
        topic = self.get(name)
        if is_internal(topic.name):
            raise InvalidNameError(
                "topics whose names begin with '__' are the broker's to configure"
            )
        settings = change_settings(topic.settings, changes)
        changed = msgspec.structs.replace(topic, settings=settings)
        if settings == topic.settings:
            return Decision((), topic)
        return Decision((TopicConfigured(name=topic.name, settings=settings),), changed)

    def delete(self, name: str) -> Decision[Event, Topic]:
        """Remove a topic."""
        topic = self.get(name)
        if is_internal(topic.name):
            raise InvalidNameError("topic names beginning with '__' belong to the broker")
        return Decision((TopicDeleted(name=topic.name),), topic)

    def scale(
        self, name: str, *, partitions: int, now_ms: int, ends: tuple[int, ...] = ()
    ) -> Decision[Event, Topic]:
        """Give a topic more partitions; fewer would lose messages."""
        topic = self.get(name)
        if is_internal(topic.name):
            raise InvalidNameError(
                "topics whose names begin with '__' have a fixed number of partitions"
            )
        if not topic.partitions < partitions <= PARTITIONS_MAX:
            raise InvalidRequestError(
                f"count: {partitions} is not between {topic.partitions + 1} and {PARTITIONS_MAX};"
                " it is the new total and can only grow"
            )
        if len(topic.growths) >= GROWTHS_MAX:
            raise OverloadedError(f"{topic.name} got more partitions {GROWTHS_MAX} times")
        scaled = TopicScaled(name=topic.name, partitions=partitions, at_ms=now_ms, ends=ends)
        return Decision((scaled,), grown(topic, scaled))

    def apply(self, event: Event | FilesRemoved) -> None:
        """Change state by one event."""
        match event:
            case TopicCreated(topic=topic):
                self._topics[topic.name] = topic
                self._deleted.discard(topic.name)
            case TopicConfigured(name=name, settings=settings):
                topic = self._topics[name]
                self._topics[name] = msgspec.structs.replace(topic, settings=settings)
            case TopicScaled(name=name):
                self._topics[name] = grown(self._topics[name], event)
            case EndsNoted(name=name, ends=ends):
                topic = self._topics[name]
                *before, last = topic.growths
                growths = (*before, msgspec.structs.replace(last, ends=ends))
                self._topics[name] = msgspec.structs.replace(topic, growths=growths)
            case TopicDeleted(name=name):
                del self._topics[name]
                self._deleted.add(name)
            case FilesRemoved(name=name):
                self._deleted.discard(name)

    def snapshot(self) -> list[Event]:
        """Return the events that rebuild this state, names already cleaned up left out."""
        return [TopicCreated(topic=topic) for topic in self._topics.values()]


def added_at_ms(topic: Topic, partition: int) -> int | None:
    """Return when a partition was added to a topic; None for one that it began with."""
    moments = [one.at_ms for one in topic.growths if one.partitions <= partition]
    return max(moments, default=None)


def grown(topic: Topic, event: TopicScaled) -> Topic:
    """Return a topic with more partitions."""
    growth = Growth(partitions=topic.partitions, at_ms=event.at_ms, ends=event.ends)
    return msgspec.structs.replace(
        topic, partitions=event.partitions, growths=(*topic.growths, growth)
    )
