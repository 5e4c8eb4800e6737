"""Settling messages over HTTP, thousands at a time."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.service.claims import Claims, Terms
from goqueue.service.service import Service
from goqueue.transport.http.ack import ERRORS, TAG
from goqueue.transport.http.ack_terms import read_delay_ms, read_extension_ms, read_reason
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Answer, Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.settling import Batch, BatchSettled

_BATCH: Final = msgspec.json.Decoder(Batch)


class AckBatchRoutes:
    """Settles many messages by their receipts, those of one lease together."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with many receipts."""
        return (
            _post("/messages/ack/batch", self.ack_messages),
            _post("/messages/nack/batch", self.nack_messages),
            _post("/messages/reject/batch", self.reject_messages),
            _post("/messages/visibility/batch", self.extend_messages),
        )

    async def ack_messages(self, call: Call) -> Response:
        """Settle messages for good.

        A malformed receipt refuses the whole request and nothing is changed. One that is used up,
        superseded, expired or unknown is named in ``errors``, and the rest is settled.
        """
        return await self._answer(call, "ack")

    async def nack_messages(self, call: Call) -> Response:
        """Give messages back: they are delivered again later, or become dead letters."""
        return await self._answer(call, "nack")

    async def reject_messages(self, call: Call) -> Response:
        """Make messages dead letters at once."""
        return await self._answer(call, "reject")

    async def extend_messages(self, call: Call) -> Response:
        """Hold messages for longer: so much time from now on."""
        return await self._answer(call, "extend")

    async def _answer(self, call: Call, verb: str) -> Response:
        limit = self._service.config.http_publish_body_bytes_max
        batch = await call.body(_BATCH, bytes_max=limit)
        extension_ms = None
        if verb == "extend":
            extension_ms = read_extension_ms(batch.extension_seconds, batch.timeout)
        common = Terms(read_reason(batch.reason), read_delay_ms(batch.delay), extension_ms)
        receipts = _gather(batch, common)
        return json_reply(await self._service.receipts.settle_all(call.grant, verb, receipts))


def _gather(batch: Batch, common: Terms) -> Claims:
    """Return the receipts of a batch with the terms of each, or raise naming what is wrong."""
    if batch.receipts is not None and batch.messages is not None:
        raise InvalidRequestError("give receipts or messages, not both")
    claims = Claims("messages" if batch.receipts is None else "receipts")
    if batch.receipts:
        claims.gather_alike(batch.receipts, common)
        return claims
    if not batch.messages:
        raise InvalidRequestError("at least one receipt is required, in receipts or messages")
    terms = [
        common
        if one.reason is None and one.delay is None
        else Terms(
            common.reason if one.reason is None else read_reason(one.reason),
            common.delay_ms
            if one.delay is None
            else read_delay_ms(one.delay, f"messages[{place}].delay"),
            common.extension_ms,
        )
        for place, one in enumerate(batch.messages)
    ]
    claims.gather([one.receipt_handle for one in batch.messages], terms)
    return claims


def _post(path: str, answer: Answer) -> Operation:
    errors = tuple(one for one in ERRORS if one is not HTTPStatus.GONE)
    return Operation(
        method="POST", path=path, answer=answer, tag=TAG, body=Batch, reply=BatchSettled,
        deed=Deed.SETTLE, errors=errors,
    )  # fmt: skip
