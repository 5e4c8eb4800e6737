"""Looking after topics over HTTP."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import REQUEST_PARTS_MAX
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call, decode
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.transport.http.topics import find_topic
from goqueue.wire.http.topics import PartitionCompacted, TopicCompact, TopicCompacted

TAG: Final = "admin"

_COMPACT: Final = msgspec.json.Decoder(TopicCompact)


class AdminRoutes:
    """What an administrator asks for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what an administrator can do."""
        return (
            Operation(
                method="POST",
                path="/admin/topics/{topic}/compact",
                answer=self.compact_topic,
                tag=TAG,
                body=TopicCompact,
                is_body_optional=True,
                reply=TopicCompacted,
                errors=(
                    HTTPStatus.BAD_REQUEST,
                    HTTPStatus.NOT_FOUND,
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                ),
            ),
        )

    async def compact_topic(self, call: Call) -> Response:
        """Keep only the last message of each key of a topic whose ``cleanup_policy`` says so.

        Without a body all partitions are compacted. A dry run, which any topic allows, changes
        nothing and tells what would go.
        """
        body = await call.raw_body(self._broker.config.http_body_bytes_max)
        wanted = decode(_COMPACT, body) if body else TopicCompact()
        topic = find_topic(self._broker, call.path["topic"])
        if wanted.partitions is not None and len(wanted.partitions) > REQUEST_PARTS_MAX:
            raise InvalidRequestError(f"partitions: more than {REQUEST_PARTS_MAX}")
        dry_run = bool(wanted.dry_run)
        # An empty list is as good as none.
        results = await self._broker.compactor.compact(
            topic, wanted.partitions or None, dry_run=dry_run
        )
        reply = TopicCompacted(
            success=all(one.error is None for one in results),
            topic=topic.record.name,
            dry_run=dry_run,
            results=[PartitionCompacted(**msgspec.structs.asdict(one)) for one in results],
        )
        return json_reply(reply)
