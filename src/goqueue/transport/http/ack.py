"""Settling messages over HTTP, one at a time."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.units import US_PER_MS, format_duration_ms
from goqueue.core.delivery.receipt import Receipt, parse_receipt
from goqueue.core.delivery.settle import Settled
from goqueue.core.dlq.names import dlq_of
from goqueue.runtime.broker import Broker
from goqueue.runtime.clock import Clock
from goqueue.transport.http.ack_claims import Claim, Terms, find_home
from goqueue.transport.http.ack_terms import read_delay_ms, read_extension_ms, read_reason
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http import settling
from goqueue.wire.times import format_time_us

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

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ledgers = broker.consume.ledgers

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with a receipt."""
        return (
            Operation(
                method="POST", path="/messages/ack", answer=self.ack_message, tag=TAG,
                body=settling.Ack, reply=settling.Acked, errors=ERRORS,
            ),
            Operation(
                method="POST", path="/messages/nack", answer=self.nack_message, tag=TAG,
                body=settling.Nack, reply=settling.Nacked, errors=ERRORS,
            ),
            Operation(
                method="POST", path="/messages/reject", answer=self.reject_message, tag=TAG,
                body=settling.Reject, reply=settling.Rejected, errors=ERRORS,
            ),
            Operation(
                method="POST", path="/messages/visibility", answer=self.extend_message, tag=TAG,
                body=settling.Extend, reply=settling.Extended, errors=ERRORS,
            ),
        )  # fmt: skip

    async def ack_message(self, call: Call) -> Response:
        """Settle a message for good: it is not delivered to this group again."""
        body = await call.body(_ACK, bytes_max=self._broker.config.http_body_bytes_max)
        receipt = parse_receipt(body.receipt_handle)
        ledger = find_home(self._ledgers, receipt).ledger
        is_next = receipt.offset == ledger.committed
        await self._settle("ack", receipt, Terms())
        return json_reply(
            settling.Acked(
                topic=receipt.topic,
                partition=receipt.partition,
                offset=receipt.offset,
                committed_offset=ledger.committed,
                offset_advanced=is_next,
                in_flight_count=len(ledger.leases.offsets),
            )
        )

    async def nack_message(self, call: Call) -> Response:
        """Give a message back: it is delivered again later, or becomes a dead letter."""
        body = await call.body(_NACK, bytes_max=self._broker.config.http_body_bytes_max)
        receipt = parse_receipt(body.receipt_handle)
        terms = Terms(read_reason(body.reason), read_delay_ms(body.delay))
        settled = await self._settle("nack", receipt, terms)
        is_dead = bool(settled.doomed)
        return json_reply(
            settling.Nacked(
                success=True,
                action="dlq" if is_dead else "requeued",
                topic=receipt.topic,
                partition=receipt.partition,
                offset=receipt.offset,
                delivery_count=receipt.delivery_count,
                next_visible_at=None if is_dead else wall_time(self._broker.clock, settled.due_ms),
                dlq_topic=dlq_of(receipt.topic) if is_dead else None,
            )
        )

    async def reject_message(self, call: Call) -> Response:
        """Make a message a dead letter at once."""
        body = await call.body(_REJECT, bytes_max=self._broker.config.http_body_bytes_max)
        receipt = parse_receipt(body.receipt_handle)
        reason = read_reason(body.reason)
        await self._settle("reject", receipt, Terms(reason))
        return json_reply(
            settling.Rejected(
                topic=receipt.topic,
                partition=receipt.partition,
                offset=receipt.offset,
                dlq_topic=dlq_of(receipt.topic),
                reason=reason,
            )
        )

    async def extend_message(self, call: Call) -> Response:
        """Hold a message for longer: so much time from now on."""
        body = await call.body(_EXTEND, bytes_max=self._broker.config.http_body_bytes_max)
        receipt = parse_receipt(body.receipt_handle)
        extension_ms = read_extension_ms(body.extension_seconds, body.timeout)
        settled = await self._settle("extend", receipt, Terms(extension_ms=extension_ms))
        deadline = wall_time(self._broker.clock, settled.due_ms)
        return json_reply(
            settling.Extended(new_deadline=deadline, extended_by=format_duration_ms(extension_ms))
        )

    async def _settle(self, verb: str, receipt: Receipt, terms: Terms) -> Settled:
        hosted = find_home(self._ledgers, receipt)
        claim = Claim(hosted, receipt.nonce, terms, {receipt.offset: 0})
        (settled,) = await self._broker.consume.settle(
            hosted.group, claim.member, [claim.settlement(verb)]
        )
        if settled.refused:
            raise settled.refused[0].error
        return settled


def wall_time(clock: Clock, due_ms: int | None) -> str:
    """Return a moment of the monotonic clock as people write it."""
    ahead_ms = 0 if due_ms is None else due_ms - clock.monotonic_ms()
    return format_time_us((clock.now_ms() + ahead_ms) * US_PER_MS)
