"""Polling over HTTP: a member of a group leases messages."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import FETCH_WAIT_MS_MAX, HTTP_READ_MESSAGES_MAX
from goqueue.base.units import SECOND_MS
from goqueue.service.polled import write_polled
from goqueue.service.queue import Polled
from goqueue.service.reading import PAGE_BYTES_MAX
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.poll_wait import PollWait
from goqueue.transport.http.reading import LIMIT_DEFAULT
from goqueue.transport.http.reply import Response, json_reply, refusal
from goqueue.wire.http.errors import METHOD_NOT_ALLOWED
from goqueue.wire.http.messages import BASE64, TEXT
from goqueue.wire.http.polling import PollReply
from goqueue.wire.queue_calls import Poll

TAG: Final = "groups"
WAIT_MS_DEFAULT: Final = 30 * SECOND_MS
NO_PAYLOAD: Final = memoryview(b"")
_PARAMETERS: Final = (
    Parameter(name="member_id", text="Who polls.", is_required=True),
    Parameter(
        name="generation", kind="integer", least=0,
        text="The generation the member knows; without it none is compared.",
    ),
    Parameter(name="timeout", default="30s", text="Longest wait for messages; at most 60s."),
    Parameter(
        name="limit", kind="integer", default=LIMIT_DEFAULT, least=1, most=HTTP_READ_MESSAGES_MAX,
        text=f"Most messages to lease in all; at most {HTTP_READ_MESSAGES_MAX}.",
    ),
    Parameter(
        name="max_messages", kind="integer", least=1, most=HTTP_READ_MESSAGES_MAX,
        text="Another name for `limit`.",
    ),
    Parameter(
        name="encoding", choices=(TEXT, BASE64), text="`base64` returns every value as base64."
    ),
)  # fmt: skip


class PollRoutes:
    """Leases messages."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done to lease."""
        return (
            Operation(
                method="GET", path="/groups/{group}/poll", answer=self.poll_group, tag=TAG,
                is_started=True,
                deed=Deed.POLL, reply=PollReply, changes_state=True, parameters=_PARAMETERS,
                errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
            ),
        )  # fmt: skip

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
        in_base64 = _is_base64(call)
        room = call.room_for_reading()
        poll = Poll(
            call.path["group"],
            member,
            call.number("generation", default=0),
            _limit(call),
            PAGE_BYTES_MAX,
            _wait_ms(call),
        )
        wait = PollWait(self._service.queue, call, poll)
        try:
            polled = await wait.run(RequestContext(NO_PAYLOAD, room))
            return await reply_to(wait, polled, is_base64=in_base64)
        finally:
            room.keep(0)


async def reply_to(
    wait: PollWait,
    polled: Polled,
    *,
    is_base64: bool,
    more: Callable[[PollReply], PollReply] = lambda written: written,
) -> Response:
    """Return what was leased as a reply; if it cannot be sent, the leases end."""
    try:
        size = sum([part.size for part in polled.parts])
        rows = sum([part.rows for part in polled.parts])
        await wait.call.turns.take_for(size=size, messages=rows)
        # Asked now: members that joined meanwhile may read other topics.
        written = write_polled(polled, has_one_topic=wait.has_one_topic, is_base64=is_base64)
        reply = json_reply(more(written))
    except BaseException:
        wait.give_back(polled)
        raise
    reply.undo = lambda: wait.undo(polled)
    return reply


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
