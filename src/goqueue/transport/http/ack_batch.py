"""Settling messages over HTTP, thousands at a time."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError
from goqueue.core.delivery.runs import count_of
from goqueue.core.delivery.settle import Settled
from goqueue.runtime.broker import Broker
from goqueue.transport.http.ack import ERRORS, TAG, wall_time
from goqueue.transport.http.ack_claims import Claim, Claims, Misfit, Terms
from goqueue.transport.http.ack_terms import read_delay_ms, read_extension_ms, read_reason
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Answer, Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.http.settling import Batch, BatchError, BatchProgress, BatchSettled

_BATCH: Final = msgspec.json.Decoder(Batch)


class Outcome(NamedTuple):
    """A claim and what became of it."""

    claim: Claim
    settled: Settled | GoQueueError


class AckBatchRoutes:
    """Settles many messages by their receipts, those of one lease together."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

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
        limit = self._broker.config.http_publish_body_bytes_max
        batch = await call.body(_BATCH, bytes_max=limit)
        extension_ms = None
        if verb == "extend":
            extension_ms = read_extension_ms(batch.extension_seconds, batch.timeout)
        common = Terms(read_reason(batch.reason), read_delay_ms(batch.delay), extension_ms)
        receipts = _gather(batch, common)
        claims, misfits = receipts.sort_out(self._broker.consume.ledgers)
        outcomes = await self._settle(verb, claims)
        return json_reply(self._reply(verb, outcomes, misfits))

    async def _settle(self, verb: str, claims: Sequence[Claim]) -> list[Outcome]:
        by_member: dict[tuple[str, str | None], list[Claim]] = {}
        for claim in claims:
            by_member.setdefault((claim.hosted.group, claim.member), []).append(claim)
        settling = [
            self._settle_for(group, member, verb, own) for (group, member), own in by_member.items()
        ]
        if len(settling) == 1:
            return await settling[0]
        return [one for outcomes in await asyncio.gather(*settling) for one in outcomes]

    async def _settle_for(
        self, group: str, member: str | None, verb: str, claims: Sequence[Claim]
    ) -> list[Outcome]:
        parts = [claim.settlement(verb) for claim in claims]
        try:
            settled = await self._broker.consume.settle(group, member, parts, is_alone=True)
        except GoQueueError as error:
            # Another group's messages may be settled all the same: each is told its own fate.
            return [Outcome(claim, error) for claim in claims]
        return list(map(Outcome, claims, settled))

    def _reply(
        self, verb: str, outcomes: Sequence[Outcome], misfits: Sequence[Misfit]
    ) -> BatchSettled:
        failed = list(misfits)
        count = retried = doomed = 0
        due_ms: int | None = None
        for claim, settled in outcomes:
            if isinstance(settled, GoQueueError):
                failed += [Misfit(place, settled) for place in claim.places.values()]
                continue
            failed += [Misfit(claim.places[one.offset], one.error) for one in settled.refused]
            count += len(claim.places) - len(settled.refused)
            retried += count_of(settled.retried)
            doomed += count_of(settled.doomed)
            due_ms = settled.due_ms
        errors = [
            BatchError(index=place, error=error.message, code=error.code)
            for place, error in sorted(failed, key=lambda one: one.place)
        ]
        is_extended = verb == "extend" and count > 0
        return BatchSettled(
            success=not errors,
            settled=count,
            errors=errors,
            progress=_progress(outcomes),
            requeued=retried if verb == "nack" else None,
            dlq=doomed if verb in {"nack", "reject"} else None,
            new_deadline=wall_time(self._broker.clock, due_ms) if is_extended else None,
        )


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


def _progress(outcomes: Sequence[Outcome]) -> list[BatchProgress]:
    touched = {(one.hosted.group, one.hosted.partition.name): one.hosted for one, _ in outcomes}
    return [
        BatchProgress(
            group=group,
            topic=name.topic,
            partition=name.partition,
            committed_offset=hosted.ledger.committed,
            in_flight_count=len(hosted.ledger.leases.offsets),
        )
        for (group, name), hosted in touched.items()
    ]


def _post(path: str, answer: Answer) -> Operation:
    errors = tuple(one for one in ERRORS if one is not HTTPStatus.GONE)
    return Operation(
        method="POST", path=path, answer=answer, tag=TAG, body=Batch, reply=BatchSettled,
        errors=errors,
    )  # fmt: skip
