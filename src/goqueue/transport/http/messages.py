"""Publishing over HTTP."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    TooLargeError,
)
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from goqueue.core.record.message import PRIORITY_NAMES, Draft
from goqueue.runtime.broker import Broker
from goqueue.runtime.plain import publish_plain
from goqueue.runtime.topic import Topic
from goqueue.transport.http.call import Call, decode
from goqueue.transport.http.drafts import check_count, draft_all, read_caller, read_plain
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.transport.http.topics import find_topic
from goqueue.wire.http.errors import status_of
from goqueue.wire.http.messages import (
    Forward,
    Forwarded,
    ForwardRefused,
    Publish,
    Published,
    PublishMessage,
    PublishResult,
)
from goqueue.wire.times import format_time_us

TAG: Final = "messages"
_PUBLISH: Final = msgspec.json.Decoder(Publish)
_FORWARD: Final = msgspec.json.Decoder(Forward)

Place = tuple[PartitionId, Offset]


class MessageRoutes:
    """Takes messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done to publish."""
        errors = (
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.SERVICE_UNAVAILABLE,
        )
        return (
            Operation(
                method="POST", path="/topics/{topic}/messages", answer=self.publish_messages,
                tag=TAG, body=Publish, reply=Published, errors=errors,
            ),
            Operation(
                method="POST", path="/topics/{topic}/messages/forward",
                answer=self.forward_message, tag=TAG, body=Forward, reply=Forwarded, errors=errors,
                failure=ForwardRefused,
            ),
        )  # fmt: skip

    async def publish_messages(self, call: Call) -> Response:
        """Publish messages; each has its own result, in the same order.

        The status is 200 even when some were refused: look for ``error`` in the results.
        ``durability`` says what an offset means: the message is on the disk, or with the system.
        """
        body = await call.raw_body(self._broker.config.http_publish_body_bytes_max)
        caller = read_caller(call)
        columns = read_plain(body) if caller is None else None
        messages = [] if columns else decode(_PUBLISH, body).messages or []
        topic = find_topic(self._broker, call.path["topic"])
        now_us = self._broker.clock.now_us()
        if columns is None:
            results = await self._publish(topic, messages, now_us=now_us, caller=caller)
        else:
            outcomes = await publish_plain(topic, *columns, timestamp_us=now_us)
            results = [
                PublishResult(*outcome) if type(outcome) is tuple else _result(outcome)
                for outcome in outcomes
            ]
        return json_reply(Published(results, topic.settings.ack_durability))

    async def _publish(
        self,
        topic: Topic,
        messages: list[PublishMessage],
        *,
        now_us: int,
        caller: bytes | None = None,
    ) -> list[PublishResult]:
        check_count(len(messages))
        due_now_ms = self._broker.clock.due_ms()
        drafts = draft_all(messages, topic, now_us=now_us, due_now_ms=due_now_ms, caller=caller)
        good = [draft for draft in drafts if not isinstance(draft, GoQueueError)]
        places = iter(await topic.publish_drafts(good) if good else ())
        failed = self._broker.metrics.messages_failed
        results: list[PublishResult] = []
        for draft, message in zip(drafts, messages, strict=True):
            if isinstance(draft, GoQueueError):
                failed.labels(topic.record.name, draft.code).inc()
                results.append(_result(draft))
            else:
                name = PRIORITY_NAMES[draft[0].priority] if message.priority else None
                results.append(_result(next(places), name, draft[0].deliver_at_us))
        return results

    async def forward_message(self, call: Call) -> Response:
        """Publish one message into a given partition, for another node."""
        limit = self._broker.config.http_publish_body_bytes_max
        wanted = -1
        try:
            message = await call.body(_FORWARD, bytes_max=limit)
            wanted = message.partition
            partition, offset = await self._forward(call.path["topic"], message)
        except GoQueueError as error:
            status, text, code = status_of(error), error.message, error.code
            refused = ForwardRefused(partition=wanted, error=text, status=status.value, code=code)
            return json_reply(refused, status)
        return json_reply(Forwarded(partition=partition, offset=offset))

    async def _forward(self, name: str, message: Forward) -> Place:
        topic = find_topic(self._broker, name)
        if len(message.value) > VALUE_BYTES_MAX or len(message.key or b"") > KEY_BYTES_MAX:
            raise TooLargeError(
                f"the limit is {KEY_BYTES_MAX} bytes for a key and {VALUE_BYTES_MAX} for a value"
            )
        now_us = self._broker.clock.now_us()
        draft = Draft(value=message.value, key=message.key or None, timestamp_us=now_us)
        (outcome,) = await topic.publish_drafts([(draft, message.partition)])
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome


def _result(
    outcome: Place | GoQueueError, priority: str | None = None, due_us: int | None = None
) -> PublishResult:
    if isinstance(outcome, GoQueueError):
        return PublishResult(-1, -1, error=outcome.message, code=outcome.code)
    if due_us is None:
        return PublishResult(*outcome, priority)
    return PublishResult(*outcome, priority, delayed=True, deliver_at=format_time_us(due_us))
