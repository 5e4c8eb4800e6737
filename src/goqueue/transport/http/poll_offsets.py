"""Committed offsets of groups over HTTP: commit, show, reset, and how far behind they are."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.errors import GroupNotFoundError, InvalidRequestError
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import SETTLE_PARTS_MAX
from goqueue.base.units import SECOND_MS, US_PER_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.progress import Progress
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.group_offsets import (
    GroupLag,
    GroupOffsets,
    OffsetCommit,
    OffsetReset,
    OffsetsCommitted,
    OffsetsReset,
    PartitionLag,
    ResetPlace,
)
from goqueue.wire.times import format_time_us, parse_time_us

TAG: Final = "groups"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_COMMIT: Final = msgspec.json.Decoder(OffsetCommit)
_RESET: Final = msgspec.json.Decoder(OffsetReset)


class OffsetRoutes:
    """Shows and moves the places groups read on from."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with offsets."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, foreign = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.FORBIDDEN
        offsets = "/groups/{group}/offsets"
        return (
            Operation(
                method="POST", path=offsets, answer=self.commit_offsets, tag=TAG,
                body=OffsetCommit, reply=OffsetsCommitted,
                errors=(bad, foreign, absent, HTTPStatus.CONFLICT, large),
            ),
            Operation(
                method="GET", path=offsets, answer=self.show_offsets, tag=TAG, reply=GroupOffsets
            ),
            Operation(
                method="POST", path=f"{offsets}/reset", answer=self.reset_offsets, tag=TAG,
                body=OffsetReset, reply=OffsetsReset, errors=(bad, absent, large),
            ),
            Operation(
                method="GET", path="/groups/{group}/lag", answer=self.show_lag, tag=TAG,
                reply=GroupLag, errors=(absent,),
            ),
        )  # fmt: skip

    async def commit_offsets(self, call: Call) -> Response:
        """Settle everything before the given offsets, as the owner of their partitions."""
        body = await call.body(_COMMIT, bytes_max=self._broker.config.http_body_bytes_max)
        if not body.member_id:
            raise InvalidRequestError("member_id is required")
        offsets = _places(body.offsets)
        group = call.path["group"]
        generation = body.generation or None
        await self._broker.consume.commit_offsets(group, body.member_id, generation, offsets)
        return json_reply(OffsetsCommitted(group=group, offsets=body.offsets))

    async def show_offsets(self, call: Call) -> Response:
        """Return where a group reads on; a group that does not exist has no topics."""
        name = call.path["group"]
        try:
            group = self._broker.groups.get(name)
        except GroupNotFoundError:
            return json_reply(GroupOffsets(group_id=name, topics={}))
        topics: dict[str, dict[str, int]] = {}
        changed_ms = 0
        for place, hosted in sorted(self._broker.consume.ledgers.of(name).items()):
            topics.setdefault(place.topic, {})[str(place.partition)] = hosted.ledger.committed
            changed_ms = max(changed_ms, hosted.changed_ms)
        return json_reply(
            GroupOffsets(
                group_id=name,
                topics=topics,
                generation=group.generation,
                updated_at=format_time_us(changed_ms * US_PER_MS) if changed_ms else None,
            )
        )

    async def reset_offsets(self, call: Call) -> Response:
        """Let a group begin anew at other offsets of a topic.

        What is leased there is taken back unsettled. A dry run only tells where it would begin.
        """
        body = await call.body(_RESET, bytes_max=self._broker.config.http_body_bytes_max)
        group = self._broker.groups.get(call.path["group"])
        consume = self._broker.consume
        offsets = self._resolve(body)
        known = consume.ledgers.of(group.name)
        places = {
            str(place.partition): ResetPlace(
                new_offset=offset,
                old_offset=known[place].ledger.committed if place in known else None,
            )
            for place, offset in offsets.items()
        }
        if not body.dry_run:
            await consume.reset_offsets(group.name, offsets)
        return json_reply(
            OffsetsReset(
                group=group.name, topic=body.topic, dry_run=bool(body.dry_run), offsets=places
            )
        )

    def _resolve(self, body: OffsetReset) -> dict[TopicPartition, Offset]:
        to, offset = body.to, None
        if isinstance(to, int) or parse_int64(to) is not None:
            offset = int(to)
            if offset < 0:
                raise InvalidRequestError(f"to: {offset} is not an offset")
        timestamp_us = None
        if offset is None and to not in {EARLIEST, LATEST}:
            try:
                timestamp_us = max(parse_time_us(str(to)), 0)
            except ValueError as error:
                raise InvalidRequestError(
                    f'to: write "earliest", "latest", an offset or a time; {error}'
                ) from error
        return self._broker.consume.resolve(
            body.topic,
            to=str(to),
            timestamp_us=timestamp_us,
            offset=offset,
            partitions=body.partitions,
        )

    async def show_lag(self, call: Call) -> Response:
        """Return how far a group is behind, in messages and in seconds, by partition."""
        group = self._broker.groups.get(call.path["group"])
        found = sorted(await self._broker.consume.progress(group.name))
        partitions = [_lag_of(one) for one in found]
        return json_reply(
            GroupLag(
                group_id=group.name,
                generation=group.generation,
                lag=sum(one.lag for one in partitions),
                lag_seconds=max((one.lag_seconds for one in partitions), default=0.0),
                partitions=partitions,
            )
        )


def _lag_of(one: Progress) -> PartitionLag:
    return PartitionLag(
        topic=one.partition.topic,
        partition=one.partition.partition,
        committed=one.committed_offset,
        end=one.end_offset,
        lag=one.lag,
        lag_seconds=one.lag_ms / SECOND_MS,
        in_flight=one.in_flight,
        waiting=one.waiting,
        delayed=one.delayed,
        dead=one.dead,
    )


def _places(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, Offset]:
    places: dict[TopicPartition, Offset] = {}
    for topic, partitions in offsets.items():
        for text, offset in partitions.items():
            number = parse_int64(text)
            if number is None or number < 0:
                name = f"{ascii(topic)[1:-1][:249]}.{ascii(text)[1:-1][:20]}"
                raise InvalidRequestError(f"offsets.{name}: not the number of a partition")
            places[TopicPartition(TopicName(topic), PartitionId(number))] = Offset(offset)
    if len(places) > SETTLE_PARTS_MAX:
        raise InvalidRequestError(f"offsets: more than {SETTLE_PARTS_MAX} partitions")
    return places
