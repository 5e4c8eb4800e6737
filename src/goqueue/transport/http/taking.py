"""Settling messages and leasing the next ones over HTTP, for workers that take one at a time."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError, InvalidRequestError
from goqueue.base.limits import FETCH_WAIT_MS_MAX, HTTP_READ_MESSAGES_MAX
from goqueue.base.units import parse_duration_ms
from goqueue.service.claims import Claims, Terms
from goqueue.service.queue import Polled
from goqueue.service.reading import PAGE_BYTES_MAX
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.transport.http.ack_terms import read_delay_ms, read_extension_ms, read_reason
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.poll import NO_PAYLOAD, WAIT_MS_DEFAULT, reply_to
from goqueue.transport.http.poll_wait import PollWait
from goqueue.transport.http.reply import Response
from goqueue.wire.http.messages import BASE64
from goqueue.wire.http.polling import PollReply
from goqueue.wire.http.taking import NextReply, NextRequest
from goqueue.wire.queue_calls import Poll

TAG: Final = "groups"
_NEXT: Final = msgspec.json.Decoder(NextRequest)


class NextRoutes:
    """Settles and leases."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done."""
        errors = (
            HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )  # fmt: skip
        return (
            Operation(
                method="POST", path="/groups/{group}/next", answer=self.take_next, tag=TAG,
                is_started=True,
                deed=Deed.NEXT, body=NextRequest, reply=NextReply, errors=errors,
            ),
        )  # fmt: skip

    async def take_next(self, call: Call) -> Response:
        """Settle messages and lease the next ones, which one sync makes durable.

        A malformed receipt refuses the whole request and nothing is changed. One that is used up,
        superseded, expired or unknown is named in ``errors``, and the rest is settled. Where no
        message is ready then, the request waits for one, ``timeout`` at most, as a poll does.
        """
        limit = self._service.config.http_publish_body_bytes_max
        body = await call.body(_NEXT, bytes_max=limit)
        poll = _poll_of(call.path["group"], body)
        receipts = _receipts_of(body)
        room = call.room_for_reading()
        wait = PollWait(self._service.queue, call, poll)
        try:
            context = RequestContext(NO_PAYLOAD, room)
            settled, errors, polled = await self._service.receipts.take_next(
                call.grant, poll, receipts, context
            )
            if not polled.parts and poll.wait_ms > 0:
                polled = await self._wait(wait, context, polled, has_settled=bool(receipts))

            def more(written: PollReply) -> NextReply:
                return NextReply(
                    messages=written.messages,
                    next_offset=written.next_offset,
                    generation=written.generation,
                    settled=settled,
                    errors=errors,
                )

            return await reply_to(wait, polled, is_base64=body.encoding == BASE64, more=more)
        finally:
            room.keep(0)

    async def _wait(
        self, wait: PollWait, context: RequestContext, nothing: Polled, *, has_settled: bool
    ) -> Polled:
        """Wait for messages; what was settled is answered even if the wait fails."""
        try:
            return await wait.run(context)
        except GoQueueError:
            if not has_settled:
                raise
            return nothing


def _poll_of(group: str, body: NextRequest) -> Poll:
    """Return what is to be leased, or raise naming what is wrong."""
    if not body.member_id:
        raise InvalidRequestError("member_id is required")
    limit = 1 if body.limit is None else body.limit
    if limit < 1:
        raise InvalidRequestError("limit: must be positive")
    if body.generation is not None and body.generation < 0:
        raise InvalidRequestError("generation: must not be negative")
    wait_ms = WAIT_MS_DEFAULT
    if body.timeout is not None:
        try:
            wait_ms = parse_duration_ms(body.timeout)
        except ValueError as error:
            raise InvalidRequestError(f"timeout: {error}") from error
        if wait_ms < 0:
            raise InvalidRequestError("timeout: must not be negative")
    return Poll(
        group,
        body.member_id,
        body.generation or 0,
        min(limit, HTTP_READ_MESSAGES_MAX),
        PAGE_BYTES_MAX,
        min(wait_ms, FETCH_WAIT_MS_MAX),
    )


def _receipts_of(body: NextRequest) -> dict[str, Claims]:
    """Return the receipts by verb, or raise naming the one that is none."""
    reason, found = read_reason(body.reason), dict[str, Claims]()
    terms = {
        "ack": Terms(),
        "nack": Terms(reason, read_delay_ms(body.delay)),
        "reject": Terms(reason),
        "extend": Terms(),
    }
    if body.extend:
        terms["extend"] = Terms(extension_ms=read_extension_ms(body.extension_seconds, None))
    for verb, own in terms.items():
        texts: list[str] | None = getattr(body, verb)
        if texts:
            found[verb] = Claims(verb)
            found[verb].gather_alike(texts, own)
    return found
