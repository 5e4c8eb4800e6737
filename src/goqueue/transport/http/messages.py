"""Publishing over HTTP."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError
from goqueue.service.drafts import TRACEPARENT, read_caller, read_plain
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, decode
from goqueue.transport.http.operation import Done, Operation
from goqueue.transport.http.reply import NO_TOPIC, Response, json_reply
from goqueue.wire.http.errors import status_of
from goqueue.wire.http.messages import (
    Forward,
    Forwarded,
    ForwardRefused,
    Publish,
    Published,
)

TAG: Final = "messages"
_VALUE: Final = b'"value"'
"""The field that each message has; what has it more often is no request for one message."""
_PUBLISH: Final = msgspec.json.Decoder(Publish)
_FORWARD: Final = msgspec.json.Decoder(Forward)


class MessageRoutes:
    """Takes messages."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._publishing = service.publishing

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
                begin=self.begin_message,
                deed=Deed.PUBLISH, tag=TAG, body=Publish, reply=Published, errors=errors,
                absent=NO_TOPIC,
            ),
            Operation(
                method="POST", path="/topics/{topic}/messages/forward",
                answer=self.forward_message, tag=TAG, body=Forward, reply=Forwarded, errors=errors,
                deed=Deed.PUBLISH, failure=ForwardRefused,
            ),
        )  # fmt: skip

    async def publish_messages(self, call: Call) -> Response:
        """Publish messages; each has its own result, in the same order.

        The status is 200 even when some were refused: look for ``error`` in the results.
        ``durability`` says what an offset means: the message is on the disk, or with the system.
        """
        body = await call.raw_body(self._service.config.http_publish_body_bytes_max)
        caller, name = read_caller(call.header(TRACEPARENT)), call.path["topic"]
        columns = read_plain(body) if caller is None else None
        if columns is not None:
            return json_reply(await self._publishing.publish_columns(call.grant, name, columns))
        messages = decode(_PUBLISH, body).messages or []
        return json_reply(await self._publishing.publish(call.grant, name, messages, caller=caller))

    def begin_message(self, call: Call, done: Done) -> Response | bool:
        """Publish one message by itself that is a key and a value and nothing else."""
        body = call.body_here
        if len(body) > self._service.config.http_publish_body_bytes_max:
            return False
        if body.count(_VALUE) != 1 or call.header(TRACEPARENT) is not None:
            return False
        columns = read_plain(body)
        if columns is None or len(columns.values) != 1:
            return False
        begun = self._publishing.begin_message(
            call.grant, call.path["topic"], columns, lambda published: done(json_reply(published))
        )
        return begun if isinstance(begun, bool) else json_reply(begun)

    async def forward_message(self, call: Call) -> Response:
        """Publish one message into a given partition, for another node."""
        limit = self._service.config.http_publish_body_bytes_max
        wanted = -1
        try:
            message = await call.body(_FORWARD, bytes_max=limit)
            wanted = message.partition
            partition, offset = await self._publishing.forward(
                call.grant, call.path["topic"], message
            )
        except GoQueueError as error:
            status, text, code = status_of(error), error.message, error.code
            refused = ForwardRefused(partition=wanted, error=text, status=status.value, code=code)
            return json_reply(refused, status)
        return json_reply(Forwarded(partition=partition, offset=offset))
