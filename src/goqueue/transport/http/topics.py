"""Topics over HTTP."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.cluster_limits import REPLICAS_MAX
from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidNameError, InvalidRequestError
from goqueue.base.limits import (
    NAME_CHARACTERS_MAX,
    PARTITIONS_MAX,
    REQUEST_PARTS_MAX,
    RETENTION_MS_MAX,
)
from goqueue.base.units import HOUR_MS
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, decode
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import NO_TOPIC, Response, json_reply
from goqueue.wire.calls import (
    AddPartitions,
    CompactTopic,
    ConfigureTopic,
    CreateTopic,
    Nothing,
    TopicCall,
    TopicState,
)
from goqueue.wire.http.topics import (
    OffsetRange,
    PartitionCompacted,
    PartitionList,
    PartitionPlace,
    PartitionsAdd,
    PartitionsAdded,
    ScalingStatus,
    SettingsText,
    TopicCompact,
    TopicCompacted,
    TopicConfig,
    TopicCreate,
    TopicCreated,
    TopicDeleted,
    TopicDetail,
    TopicList,
    settings_of,
)

TAG: Final = "topics"
PARTITIONS_DEFAULT: Final = 3
RETENTION_HOURS_DEFAULT: Final = 168
RETENTION_HOURS_MAX: Final = RETENTION_MS_MAX // HOUR_MS

_CREATE: Final = msgspec.json.Decoder(TopicCreate)
_SETTINGS: Final = msgspec.json.Decoder(SettingsText)
_ADD: Final = msgspec.json.Decoder(PartitionsAdd)
_COMPACT: Final = msgspec.json.Decoder(TopicCompact)


class TopicRoutes:
    """Makes, shows, changes and removes topics."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._topics = service.topics

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with topics."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, taken = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.CONFLICT
        one, config = "/topics/{topic}", "/topics/{topic}/config"
        return (
            Operation(
                method="POST", path="/topics", answer=self.create_topic, tag=TAG,
                deed=Deed.CREATE_TOPIC,
                body=TopicCreate, reply=TopicCreated, status=HTTPStatus.CREATED,
                errors=(bad, taken, large),
            ),
            Operation(
                method="GET", path="/topics", answer=self.list_topics, tag=TAG, reply=TopicList,
                deed=Deed.LIST_TOPICS,
            ),
            Operation(
                method="GET", path=one, answer=self.show_topic, tag=TAG, reply=TopicDetail,
                deed=Deed.DESCRIBE_TOPIC, errors=(absent,), absent=NO_TOPIC,
            ),
            Operation(
                method="DELETE", path=one, answer=self.delete_topic, tag=TAG, reply=TopicDeleted,
                deed=Deed.DELETE_TOPIC, errors=(absent,), absent=NO_TOPIC,
            ),
            Operation(
                method="GET", path=config, answer=self.show_config, tag=TAG, reply=TopicConfig,
                deed=Deed.DESCRIBE_TOPIC, errors=(absent,), absent=NO_TOPIC,
            ),
            Operation(
                method="PATCH", path=config, answer=self.change_config, tag=TAG,
                deed=Deed.CONFIGURE_TOPIC,
                body=SettingsText, reply=TopicConfig, errors=(bad, absent, large), absent=NO_TOPIC,
            ),
            Operation(
                method="PUT", path=config, answer=self.put_config, tag=TAG,
                deed=Deed.CONFIGURE_TOPIC,
                body=SettingsText, reply=TopicConfig, errors=(bad, absent, large), absent=NO_TOPIC,
            ),
            Operation(
                method="GET", path="/topics/{topic}/partitions", answer=self.list_partitions,
                deed=Deed.DESCRIBE_TOPIC, tag=TAG, reply=PartitionList, errors=(absent,),
                absent="topic not found or no partition info available",
            ),
            Operation(
                method="POST", path="/admin/topics/{topic}/partitions", answer=self.add_partitions,
                deed=Deed.ADD_PARTITIONS, tag="admin", body=PartitionsAdd, reply=PartitionsAdded,
                errors=(bad, absent, taken, large), absent=NO_TOPIC,
            ),
            Operation(
                method="GET", path="/admin/topics/{topic}/scaling-status",
                answer=self.show_scaling, deed=Deed.DESCRIBE_TOPIC, tag="admin",
                reply=ScalingStatus, errors=(absent,), absent=NO_TOPIC,
            ),
            Operation(
                method="POST", path="/admin/topics/{topic}/compact", answer=self.compact_topic,
                deed=Deed.COMPACT_TOPIC, tag="admin", body=TopicCompact, is_body_optional=True,
                reply=TopicCompacted, errors=(bad, absent, large), absent=NO_TOPIC,
            ),
        )  # fmt: skip

    async def create_topic(self, call: Call) -> Response:
        """Make a topic."""
        wanted = await call.body(_CREATE, bytes_max=self._service.config.http_body_bytes_max)
        if not wanted.name:
            raise InvalidNameError("name is required")
        partitions = _positive(wanted.num_partitions, PARTITIONS_DEFAULT)
        hours = _positive(wanted.retention_hours, RETENTION_HOURS_DEFAULT)
        _bound("num_partitions", partitions, PARTITIONS_MAX)
        _bound("retention_hours", hours, RETENTION_HOURS_MAX)
        settings = {"retention_ms": hours * HOUR_MS, **_given(wanted.config or {})}
        made = CreateTopic(wanted.name, partitions, settings)
        topic = await self._topics.create(call.grant, made)
        created = TopicCreated(name=topic.name, partitions=partitions)
        return json_reply(created, HTTPStatus.CREATED)

    async def list_topics(self, call: Call) -> Response:
        """Return the names of all topics."""
        listed = await self._topics.list_all(call.grant, Nothing())
        return json_reply(TopicList(topics=sorted(one.name for one in listed.topics)))

    async def show_topic(self, call: Call) -> Response:
        """Return one topic: its size, its offsets and its settings."""
        topic = await self._topics.describe(call.grant, TopicCall(call.path["topic"]))
        offsets = {
            str(one.partition): OffsetRange(earliest=one.start_offset, latest=one.end_offset - 1)
            for one in topic.partitions
        }
        detail = TopicDetail(
            name=topic.name,
            partitions=len(topic.partitions),
            total_messages=sum(one.messages for one in topic.partitions),
            total_size_bytes=sum(one.size_bytes for one in topic.partitions),
            partition_offsets=offsets,
            config=settings_of(topic.settings),
        )
        return json_reply(detail)

    async def delete_topic(self, call: Call) -> Response:
        """Remove a topic with all its messages."""
        name = call.path["topic"]
        await self._topics.delete(call.grant, TopicCall(name))
        return json_reply(TopicDeleted(name=name))

    async def show_config(self, call: Call) -> Response:
        """Return how a topic is kept."""
        return _config_of(await self._topics.describe(call.grant, TopicCall(call.path["topic"])))

    async def change_config(self, call: Call) -> Response:
        """Change some settings of a topic; those not named stay."""
        changes = await call.body(_SETTINGS, bytes_max=self._service.config.http_body_bytes_max)
        wanted = ConfigureTopic(call.path["topic"], _given(changes))
        return _config_of(await self._topics.configure(call.grant, wanted))

    async def put_config(self, call: Call) -> Response:
        """Change some settings of a topic, the same as PATCH; those not named stay."""
        return await self.change_config(call)

    async def list_partitions(self, call: Call) -> Response:
        """Return where the partitions of a topic are."""
        topic = await self._topics.describe(call.grant, TopicCall(call.path["topic"]))
        node = self._service.config.node_id
        places = [
            PartitionPlace(partition=number, leader=node, replicas=[node], isr=[node], version=1)
            for number in range(len(topic.partitions))
        ]
        return json_reply(PartitionList(topic=topic.name, partitions=places))

    async def add_partitions(self, call: Call) -> Response:
        """Give a topic more partitions; ``count`` is the new total, and can only grow.

        Keys may go to other partitions from then on. A group with ``ordering: key`` gets messages
        of the new partitions when it has settled what was in the old ones before.
        """
        wanted = await call.body(_ADD, bytes_max=self._service.config.http_body_bytes_max)
        if not 1 <= wanted.count <= PARTITIONS_MAX:
            raise InvalidRequestError(
                f"count: {wanted.count} is not between 1 and {PARTITIONS_MAX}"
            )
        placed = _assignments(wanted.replica_assignments or {})
        asked = AddPartitions(call.path["topic"], wanted.count, placed)
        added = await self._topics.add_partitions(call.grant, asked)
        reply = PartitionsAdded(
            topic_name=added.name,
            old_partition_count=added.before,
            new_partition_count=added.after,
            partitions_added=list(range(added.before, added.after)),
        )
        return json_reply(reply)

    async def show_scaling(self, call: Call) -> Response:
        """Return whether partitions are being added to a topic."""
        state = await self._topics.scaling(call.grant, TopicCall(call.path["topic"]))
        return json_reply(ScalingStatus(topic=state.name, scaling_in_progress=state.is_scaling))

    async def compact_topic(self, call: Call) -> Response:
        """Keep only the last message of each key of a topic whose ``cleanup_policy`` says so.

        Without a body all partitions are compacted. A dry run, which any topic allows, changes
        nothing and tells what would go.
        """
        body = await call.raw_body(self._service.config.http_body_bytes_max)
        wanted = decode(_COMPACT, body) if body else TopicCompact()
        if wanted.partitions is not None and len(wanted.partitions) > REQUEST_PARTS_MAX:
            raise InvalidRequestError(f"partitions: more than {REQUEST_PARTS_MAX}")
        name, dry_run = call.path["topic"], bool(wanted.dry_run)
        # An empty list is as good as none.
        asked = CompactTopic(name, wanted.partitions or None, dry_run)
        done = await self._topics.compact(call.grant, asked)
        reply = TopicCompacted(
            success=all(one.error is None for one in done.parts),
            topic=name,
            dry_run=dry_run,
            results=[PartitionCompacted(**msgspec.structs.asdict(one)) for one in done.parts],
        )
        return json_reply(reply)


def _assignments(given: Mapping[str, list[str]]) -> dict[int, list[str]]:
    """Return which nodes hold which partitions, with everything from outside bounded."""
    field = "replica_assignments"
    if len(given) > REQUEST_PARTS_MAX:
        raise InvalidRequestError(f"{field}: more than {REQUEST_PARTS_MAX}")
    placed: dict[int, list[str]] = {}
    for number, nodes in given.items():
        if not (
            number.isascii() and number.isdecimal() and len(number) <= len(str(PARTITIONS_MAX))
        ):
            raise InvalidRequestError(f"{field}: names are numbers of partitions")
        if not 1 <= len(nodes) <= REPLICAS_MAX or max(map(len, nodes)) > NAME_CHARACTERS_MAX:
            raise InvalidRequestError(f"{field}: 1 to {REPLICAS_MAX} nodes for each partition")
        placed[int(number)] = nodes
    return placed


def _config_of(topic: TopicState) -> Response:
    return json_reply(TopicConfig(name=topic.name, config=settings_of(topic.settings)))


def _positive(number: int | None, default: int) -> int:
    return number if number is not None and number > 0 else default


def _bound(field: str, number: int, most: int) -> None:
    if number > most:
        raise InvalidRequestError(f"{field}: {number} is not between 1 and {most}")


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what is null: it is as good as absent."""
    return {name: value for name, value in settings.items() if value is not None}
