"""Settling messages over HTTP, one at a time."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.units import format_duration_ms
from goqueue.service.claims import Terms
from goqueue.service.service import Service
from goqueue.transport.http.ack_terms import read_delay_ms, read_extension_ms, read_reason
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http import settling

TAG: Final = "groups"
_ACK: Final = msgspec.json.Decoder(settling.Ack)
_NACK: Final = msgspec.json.Decoder(settling.Nack)
_REJECT: Final = msgspec.json.Decoder(settling.Reject)
_EXTEND: Final = msgspec.json.Decoder(settling.Extend)

ERRORS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.GONE,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
)


class AckRoutes:
    """Settles messages by their receipts. The group is known from the receipt."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._receipts = service.receipts

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with a receipt."""
        return (
            Operation(
                method="POST", path="/messages/ack", answer=self.ack_message, tag=TAG,
                is_started=True,
                deed=Deed.SETTLE, body=settling.Ack, reply=settling.Acked, errors=ERRORS,
            ),
            Operation(
                method="POST", path="/messages/nack", answer=self.nack_message, tag=TAG,
                deed=Deed.SETTLE, body=settling.Nack, reply=settling.Nacked, errors=ERRORS,
            ),
            Operation(
                method="POST", path="/messages/reject", answer=self.reject_message, tag=TAG,
                deed=Deed.SETTLE, body=settling.Reject, reply=settling.Rejected, errors=ERRORS,
            ),
            Operation(
                method="POST", path="/messages/visibility", answer=self.extend_message, tag=TAG,
                deed=Deed.SETTLE, body=settling.Extend, reply=settling.Extended, errors=ERRORS,
            ),
        )  # fmt: skip

    async def ack_message(self, call: Call) -> Response:
        """Settle a message for good: it is not delivered to this group again."""
        body = await call.body(_ACK, bytes_max=self._service.config.http_body_bytes_max)
        done = await self._receipts.settle(call.grant, body.receipt_handle, "ack", Terms())
        return json_reply(
            settling.Acked(
                topic=done.receipt.topic,
                partition=done.receipt.partition,
                offset=done.receipt.offset,
                committed_offset=done.committed_offset,
                offset_advanced=done.offset_advanced,
                in_flight_count=done.in_flight,
            )
        )

    async def nack_message(self, call: Call) -> Response:
        """Give a message back: it is delivered again later, or becomes a dead letter."""
        body = await call.body(_NACK, bytes_max=self._service.config.http_body_bytes_max)
        terms = Terms(read_reason(body.reason), read_delay_ms(body.delay))
        done = await self._receipts.settle(call.grant, body.receipt_handle, "nack", terms)
        return json_reply(
            settling.Nacked(
                success=True,
                action="dlq" if done.is_dead else "requeued",
                topic=done.receipt.topic,
                partition=done.receipt.partition,
                offset=done.receipt.offset,
                delivery_count=done.receipt.delivery_count,
                next_visible_at=None if done.is_dead else done.due_at,
                dlq_topic=done.dlq_topic if done.is_dead else None,
            )
        )

    async def reject_message(self, call: Call) -> Response:
        """Make a message a dead letter at once."""
        body = await call.body(_REJECT, bytes_max=self._service.config.http_body_bytes_max)
        reason = read_reason(body.reason)
        done = await self._receipts.settle(call.grant, body.receipt_handle, "reject", Terms(reason))
        return json_reply(
            settling.Rejected(
                topic=done.receipt.topic,
                partition=done.receipt.partition,
                offset=done.receipt.offset,
                dlq_topic=done.dlq_topic,
                reason=reason,
            )
        )

    async def extend_message(self, call: Call) -> Response:
        """Hold a message for longer: so much time from now on."""
        body = await call.body(_EXTEND, bytes_max=self._service.config.http_body_bytes_max)
        extension_ms = read_extension_ms(body.extension_seconds, body.timeout)
        terms = Terms(extension_ms=extension_ms)
        done = await self._receipts.settle(call.grant, body.receipt_handle, "extend", terms)
        return json_reply(
            settling.Extended(
                new_deadline=done.due_at, extended_by=format_duration_ms(extension_ms)
            )
        )
