"""Committed offsets of groups over HTTP: commit, show, reset, and how far behind they are."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import SETTLE_PARTS_MAX
from goqueue.base.units import SECOND_MS
from goqueue.service.service import Service
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
from goqueue.wire.queue_calls import CommitOffsets, GroupCall, OffsetOf, Progress, ResetOffsets
from goqueue.wire.times import parse_time_us

TAG: Final = "groups"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_COMMIT: Final = msgspec.json.Decoder(OffsetCommit)
_RESET: Final = msgspec.json.Decoder(OffsetReset)


class OffsetRoutes:
    """Shows and moves the places groups read on from."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._queue = service.queue

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with offsets."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, foreign = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.FORBIDDEN
        offsets = "/groups/{group}/offsets"
        return (
            Operation(
                method="POST", path=offsets, answer=self.commit_offsets, tag=TAG,
                deed=Deed.COMMIT_OFFSETS, body=OffsetCommit, reply=OffsetsCommitted,
                errors=(bad, foreign, absent, HTTPStatus.CONFLICT, large),
            ),
            Operation(
                method="GET", path=offsets, answer=self.show_offsets, tag=TAG, reply=GroupOffsets,
                deed=Deed.DESCRIBE_PROGRESS,
            ),
            Operation(
                method="POST", path=f"{offsets}/reset", answer=self.reset_offsets, tag=TAG,
                deed=Deed.RESET_OFFSETS,
                body=OffsetReset, reply=OffsetsReset, errors=(bad, absent, large),
            ),
            Operation(
                method="GET", path="/groups/{group}/lag", answer=self.show_lag, tag=TAG,
                deed=Deed.DESCRIBE_PROGRESS, reply=GroupLag, errors=(absent,),
            ),
        )  # fmt: skip

    async def commit_offsets(self, call: Call) -> Response:
        """Settle everything before the given offsets, as the owner of their partitions."""
        body = await call.body(_COMMIT, bytes_max=self._service.config.http_body_bytes_max)
        if not body.member_id:
            raise InvalidRequestError("member_id is required")
        group = call.path["group"]
        offsets = _places(body.offsets)
        commit = CommitOffsets(group, body.member_id, body.generation or None, offsets)
        await self._queue.commit_offsets(call.grant, commit)
        return json_reply(OffsetsCommitted(group=group, offsets=body.offsets))

    async def show_offsets(self, call: Call) -> Response:
        """Return where a group reads on; a group that does not exist has no topics."""
        return json_reply(await self._queue.committed(call.grant, call.path["group"]))

    async def reset_offsets(self, call: Call) -> Response:
        """Let a group begin anew at other offsets of a topic.

        What is leased there is taken back unsettled. A dry run only tells where it would begin.
        """
        body = await call.body(_RESET, bytes_max=self._service.config.http_body_bytes_max)
        reset, dry_run = _reset_of(call.path["group"], body), bool(body.dry_run)
        placed = await self._queue.move_offsets(call.grant, reset, dry_run=dry_run)
        places = {
            str(partition): ResetPlace(new_offset=new, old_offset=old)
            for partition, (new, old) in placed.items()
        }
        return json_reply(
            OffsetsReset(group=reset.group, topic=body.topic, dry_run=dry_run, offsets=places)
        )

    async def show_lag(self, call: Call) -> Response:
        """Return how far a group is behind, in messages and in seconds, by partition."""
        name = call.path["group"]
        found = await self._queue.progress(call.grant, GroupCall(name))
        partitions = [_lag_of(one) for one in found.parts]
        return json_reply(
            GroupLag(
                group_id=name,
                generation=found.generation,
                lag=sum(one.lag for one in partitions),
                lag_seconds=max((one.lag_seconds for one in partitions), default=0.0),
                partitions=partitions,
            )
        )


def _reset_of(group: str, body: OffsetReset) -> ResetOffsets:
    """Return where a group is to begin anew, or raise."""
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
    return ResetOffsets(group, body.topic, str(to), timestamp_us, offset, body.partitions)


def _lag_of(one: Progress) -> PartitionLag:
    return PartitionLag(
        topic=one.topic,
        partition=one.partition,
        committed=one.committed_offset,
        end=one.end_offset,
        lag=one.lag,
        lag_seconds=one.lag_ms / SECOND_MS,
        in_flight=one.in_flight,
        waiting=one.waiting,
        delayed=one.delayed,
        dead=one.dead,
    )


def _places(offsets: Mapping[str, Mapping[str, int]]) -> list[OffsetOf]:
    places: list[OffsetOf] = []
    for topic, partitions in offsets.items():
        for text, offset in partitions.items():
            number = parse_int64(text)
            if number is None or number < 0:
                name = f"{ascii(topic)[1:-1][:249]}.{ascii(text)[1:-1][:20]}"
                raise InvalidRequestError(f"offsets.{name}: not the number of a partition")
            places.append(OffsetOf(topic, number, offset))
    if len(places) > SETTLE_PARTS_MAX:
        raise InvalidRequestError(f"offsets: more than {SETTLE_PARTS_MAX} partitions")
    return places
