"""Polling over HTTP: a member of a group leases messages."""

from functools import partial
from http import HTTPStatus
from typing import Final

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import FETCH_WAIT_MS_MAX, HTTP_READ_MESSAGES_MAX
from goqueue.base.units import SECOND_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.polling import Demand, Polled
from goqueue.transport.http.call import Call
from goqueue.transport.http.drafts import BASE64, TEXT
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.poll_messages import write_part
from goqueue.transport.http.poll_wait import PollWait
from goqueue.transport.http.reading import LIMIT_DEFAULT, READ_BYTES_MAX
from goqueue.transport.http.reply import Response, json_reply, refusal
from goqueue.wire.http.errors import METHOD_NOT_ALLOWED
from goqueue.wire.http.polling import PolledMessage, PollReply

TAG: Final = "groups"
WAIT_MS_DEFAULT: Final = 30 * SECOND_MS


class PollRoutes:
    """Leases messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done to lease."""
        return (
            Operation(
                method="GET",
                path="/groups/{group}/poll",
                answer=self.poll_group,
                tag=TAG,
                reply=PollReply,
                errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
                parameters=(
                    Parameter(name="member_id", text="Who polls.", is_required=True),
                    Parameter(
                        name="generation",
                        kind="integer",
                        text="The generation the member knows; without it none is compared.",
                    ),
                    Parameter(
                        name="timeout",
                        default="30s",
                        text="Longest wait for messages; at most 60s.",
                    ),
                    Parameter(
                        name="limit",
                        kind="integer",
                        default=LIMIT_DEFAULT,
                        text=f"Most messages to lease in all; at most {HTTP_READ_MESSAGES_MAX}."
                        " `max_messages` is another name for it.",
                    ),
                    Parameter(name="encoding", text='"base64" returns every value as base64.'),
                ),
            ),
        )

    async def poll_group(self, call: Call) -> Response:
        """Lease messages that are ready, waiting a while for some to be.

        Each message is to be settled with its receipt before the group's visibility timeout is
        over. Waiting counts as a heartbeat. Without messages in time both objects are empty.
        """
        if call.method != "GET":
            # HEAD would lease messages and show them to nobody.
            text, allow = "a poll is a GET", {"Allow": "GET"}
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return refusal(status, text, code=METHOD_NOT_ALLOWED, headers=allow)
        member = call.text("member_id")
        if member is None:
            raise InvalidRequestError("member_id is required")
        generation = call.number("generation", default=0)
        in_base64 = _is_base64(call)
        room = call.room_for_reading()
        demand = Demand(_limit(call), READ_BYTES_MAX, _wait_ms(call), room)
        group = self._broker.groups.get(call.path["group"])
        wait = PollWait(self._broker, call, group.name, member)
        try:
            polled = await wait.run(generation or None, demand)
            give_back = partial(self._broker.consume.give_back, group.name, polled)
            has_one_topic = len(group.topics) == 1
            try:
                reply = json_reply(_reply(polled, has_one_topic=has_one_topic, in_base64=in_base64))
            except BaseException:
                give_back()
                raise
            reply.undo = give_back
            return reply
        finally:
            room.keep(0)


def _is_base64(call: Call) -> bool:
    encoding = call.text("encoding") or TEXT
    if encoding not in {BASE64, TEXT}:
        raise InvalidRequestError('encoding: must be "base64" or "text"')
    return encoding == BASE64


def _limit(call: Call) -> int:
    default = call.number("max_messages", default=LIMIT_DEFAULT, least=1)
    return min(call.number("limit", default=default, least=1), HTTP_READ_MESSAGES_MAX)


def _wait_ms(call: Call) -> int:
    return call.duration_ms("timeout", default=WAIT_MS_DEFAULT, most=FETCH_WAIT_MS_MAX)


def _reply(polled: Polled, *, has_one_topic: bool, in_base64: bool) -> PollReply:
    messages: dict[str, list[PolledMessage]] = {}
    next_offset: dict[str, int] = {}
    for part in polled.parts:
        topic, partition = part.partition
        key = str(partition) if has_one_topic else f"{topic}:{partition}"
        messages[key] = write_part(part, is_base64=in_base64)
        next_offset[key] = part.end_offset
    return PollReply(messages=messages, next_offset=next_offset, generation=polled.generation)
