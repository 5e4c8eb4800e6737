"""Topics over HTTP."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.errors import InvalidNameError, InvalidRequestError, TopicNotFoundError
from goqueue.base.limits import PARTITIONS_MAX, RETENTION_MS_MAX
from goqueue.base.names import is_internal
from goqueue.base.units import HOUR_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.topic import Topic
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.topics import (
    OffsetRange,
    PartitionList,
    PartitionPlace,
    SettingsText,
    TopicConfig,
    TopicCreate,
    TopicCreated,
    TopicDeleted,
    TopicDetail,
    TopicList,
)

TAG: Final = "topics"
PARTITIONS_DEFAULT: Final = 3
RETENTION_HOURS_DEFAULT: Final = 168
RETENTION_HOURS_MAX: Final = RETENTION_MS_MAX // HOUR_MS
NOT_FOUND: Final = "topic not found"

_CREATE: Final = msgspec.json.Decoder(TopicCreate)
_SETTINGS: Final = msgspec.json.Decoder(SettingsText)


def find_topic(broker: Broker, name: str, *, text: str = NOT_FOUND) -> Topic:
    """Return a topic, or raise with the text this route uses."""
    try:
        return broker.topic(name)
    except TopicNotFoundError as error:
        raise TopicNotFoundError(text) from error


class TopicRoutes:
    """Makes, shows, changes and removes topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with topics."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, taken = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.CONFLICT
        one, config = "/topics/{topic}", "/topics/{topic}/config"
        return (
            Operation(
                method="POST", path="/topics", answer=self.create_topic, tag=TAG,
                body=TopicCreate, reply=TopicCreated, status=HTTPStatus.CREATED,
                errors=(bad, taken, large),
            ),
            Operation(
                method="GET", path="/topics", answer=self.list_topics, tag=TAG, reply=TopicList
            ),
            Operation(
                method="GET", path=one, answer=self.show_topic, tag=TAG, reply=TopicDetail,
                errors=(absent,),
            ),
            Operation(
                method="DELETE", path=one, answer=self.delete_topic, tag=TAG, reply=TopicDeleted,
                errors=(absent,),
            ),
            Operation(
                method="GET", path=config, answer=self.show_config, tag=TAG, reply=TopicConfig,
                errors=(absent,),
            ),
            Operation(
                method="PATCH", path=config, answer=self.change_config, tag=TAG,
                body=SettingsText, reply=TopicConfig, errors=(bad, absent, large),
            ),
            Operation(
                method="PUT", path=config, answer=self.put_config, tag=TAG,
                body=SettingsText, reply=TopicConfig, errors=(bad, absent, large),
            ),
            Operation(
                method="GET", path="/topics/{topic}/partitions", answer=self.list_partitions,
                tag=TAG, reply=PartitionList, errors=(absent,),
            ),
        )  # fmt: skip

    async def create_topic(self, call: Call) -> Response:
        """Make a topic."""
        wanted = await call.body(_CREATE, bytes_max=self._broker.config.http_body_bytes_max)
        if not wanted.name:
            raise InvalidNameError("name is required")
        partitions = _positive(wanted.num_partitions, PARTITIONS_DEFAULT)
        hours = _positive(wanted.retention_hours, RETENTION_HOURS_DEFAULT)
        _bound("num_partitions", partitions, PARTITIONS_MAX)
        _bound("retention_hours", hours, RETENTION_HOURS_MAX)
        settings = {"retention_ms": hours * HOUR_MS, **_given(wanted.config or {})}
        topic = await self._broker.make_topic(wanted.name, partitions=partitions, settings=settings)
        created = TopicCreated(name=topic.record.name, partitions=partitions)
        return json_reply(created, HTTPStatus.CREATED)

    async def list_topics(self, _call: Call) -> Response:
        """Return the names of all topics."""
        return json_reply(
            TopicList(topics=sorted(name for name in self._broker.topics if not is_internal(name)))
        )

    async def show_topic(self, call: Call) -> Response:
        """Return one topic: its size, its offsets and its settings."""
        topic = find_topic(self._broker, call.path["topic"])
        offsets = {
            str(partition.name.partition): OffsetRange(
                earliest=partition.log.start_offset, latest=partition.visible_offset - 1
            )
            for partition in topic.partitions
        }
        detail = TopicDetail(
            name=topic.record.name,
            partitions=len(topic.partitions),
            total_messages=sum(part.latest + 1 - part.earliest for part in offsets.values()),
            total_size_bytes=sum(partition.log.size_bytes for partition in topic.partitions),
            partition_offsets=offsets,
            config=topic.settings,
        )
        return json_reply(detail)

    async def delete_topic(self, call: Call) -> Response:
        """Remove a topic with all its messages."""
        topic = find_topic(self._broker, call.path["topic"])
        self._broker.delete_topic(topic.record.name)
        return json_reply(TopicDeleted(name=topic.record.name))

    async def show_config(self, call: Call) -> Response:
        """Return how a topic is kept."""
        return _config_of(find_topic(self._broker, call.path["topic"]))

    async def change_config(self, call: Call) -> Response:
        """Change some settings of a topic; those not named stay."""
        changes = await call.body(_SETTINGS, bytes_max=self._broker.config.http_body_bytes_max)
        topic = find_topic(self._broker, call.path["topic"])
        return _config_of(self._broker.configure_topic(topic.record.name, _given(changes)))

    async def put_config(self, call: Call) -> Response:
        """Change some settings of a topic, the same as PATCH; those not named stay."""
        return await self.change_config(call)

    async def list_partitions(self, call: Call) -> Response:
        """Return where the partitions of a topic are."""
        text = "topic not found or no partition info available"
        topic = find_topic(self._broker, call.path["topic"], text=text)
        node = self._broker.config.node_id
        places = [
            PartitionPlace(partition=number, leader=node, replicas=[node], isr=[node], version=1)
            for number in range(len(topic.partitions))
        ]
        return json_reply(PartitionList(topic=topic.record.name, partitions=places))


def _config_of(topic: Topic) -> Response:
    return json_reply(TopicConfig(name=topic.record.name, config=topic.settings))


def _positive(number: int | None, default: int) -> int:
    return number if number is not None and number > 0 else default


def _bound(field: str, number: int, most: int) -> None:
    if number > most:
        raise InvalidRequestError(f"{field}: {number} is not between 1 and {most}")


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what is null: it is as good as absent."""
    return {name: value for name, value in settings.items() if value is not None}
