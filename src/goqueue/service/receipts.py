"""Settling messages by their receipts. A receipt leads to its group."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError, UnknownReceiptError
from goqueue.base.grant import Grant
from goqueue.base.units import US_PER_MS
from goqueue.core.delivery.receipt import Receipt, parse_receipt
from goqueue.core.delivery.runs import count_of
from goqueue.core.delivery.settle import Settled
from goqueue.core.dlq.names import dlq_of
from goqueue.runtime.broker import Broker
from goqueue.runtime.queue.polling import Polled, PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.service.claims import Claim, ClaimPart, Claims, Misfit, Terms, find_home
from goqueue.service.gate import Gate
from goqueue.service.verb import RequestContext, granted_verb
from goqueue.wire.http.settling import BatchError, BatchProgress, BatchSettled
from goqueue.wire.http.taking import NextError
from goqueue.wire.queue_calls import Poll
from goqueue.wire.times import format_time_us


class ReceiptSettled(NamedTuple):
    """What became of the message of a receipt, and how far its group is."""

    receipt: Receipt
    committed_offset: int
    offset_advanced: bool
    in_flight: int
    is_dead: bool
    due_at: str
    """When it is delivered again, or must be settled now."""
    dlq_topic: str


class _Outcome(NamedTuple):
    """A claim and what became of it."""

    claim: Claim
    settled: Settled | GoQueueError


class Receipts:
    """Settles messages by their receipts, those of one lease together."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._gate = gate
        self._consume = broker.consume
        self._clock = broker.clock

    @granted_verb(Deed.SETTLE)
    async def settle(
        self, grant: Grant, text: str | None, verb: str, terms: Terms
    ) -> ReceiptSettled:
        """Settle one message, or raise saying why its receipt settles nothing."""
        receipt = parse_receipt(text)
        hosted = find_home(self._consume.ledgers, receipt)
        grant = self._gate.name(grant, hosted.group)
        is_next = receipt.offset == hosted.ledger.committed
        claim = Claim(hosted, receipt.nonce, terms, {receipt.offset: 0})
        (settled,) = await self._consume.settle(
            grant, hosted.group, claim.member, [claim.settlement(verb)]
        )
        if settled.refused:
            raise settled.refused[0].error
        return ReceiptSettled(
            receipt,
            hosted.ledger.committed,
            is_next,
            len(hosted.ledger.leases.offsets),
            bool(settled.doomed),
            self._wall_time(settled.due_ms),
            dlq_of(receipt.topic),
        )

    @granted_verb(Deed.SETTLE)
    async def settle_all(self, grant: Grant, verb: str, receipts: Claims) -> BatchSettled:
        """Settle many messages; those whose receipt settles nothing are named with the reason."""
        claims, misfits = receipts.sort_out(self._consume.ledgers)
        by_member: dict[tuple[str, str | None], list[Claim]] = {}
        for claim in claims:
            by_member.setdefault((claim.hosted.group, claim.member), []).append(claim)
        settling = [
            self._settle_for(grant, group, member, verb, own)
            for (group, member), own in by_member.items()
        ]
        if len(settling) == 1:
            return self._reply(verb, await settling[0], misfits)
        outcomes = [one for some in await asyncio.gather(*settling) for one in some]
        return self._reply(verb, outcomes, misfits)

    @granted_verb(Deed.SETTLE)
    async def settle_parts(self, grant: Grant, verb: str, parts: list[ClaimPart]) -> BatchSettled:
        """Settle messages whose receipts another node has read."""
        return await self.settle_all(grant, verb, Claims.of(verb, parts))

    @granted_verb(Deed.NEXT)
    async def settle_next(
        self, grant: Grant, group: str, member: str, verb: str, parts: list[ClaimPart]
    ) -> BatchSettled:
        """Settle messages of a group whose receipts another node has read with its next poll."""
        claims, misfits = Claims.of(verb, parts).sort_out(self._consume.ledgers)
        unknown = UnknownReceiptError("no delivery of this group has this receipt")
        failed = [
            *misfits,
            *(
                Misfit(one, unknown)
                for claim in claims
                if claim.hosted.group != group
                for one in claim.places.values()
            ),
        ]
        own = [claim for claim in claims if claim.hosted.group == group]
        grant = self._gate.admit(grant.caller, Deed.SETTLE, (group,))
        settled = await self._consume.settle(
            grant, group, member, [claim.settlement(verb) for claim in own], is_alone=True
        )
        return self._reply(verb, list(map(_Outcome, own, settled)), failed)

    @granted_verb(Deed.NEXT)
    async def take_next(
        self,
        grant: Grant,
        call: Poll,
        receipts: Mapping[str, Claims],
        context: RequestContext,
    ) -> tuple[int, list[NextError], Polled]:
        """Settle messages of a group by verb, and lease those that are ready then.

        Returns how many were settled, the receipts that settled nothing, and what was leased.
        """
        settlements: list[Settlement] = []
        places: list[tuple[str, Claim]] = []
        failed: list[tuple[str, Misfit]] = []
        for verb, gathered in receipts.items():
            claims, misfits = gathered.sort_out(self._consume.ledgers)
            failed += [(verb, misfit) for misfit in misfits]
            for claim in claims:
                if claim.hosted.group != call.group:
                    unknown = UnknownReceiptError("no delivery of this group has this receipt")
                    failed += [(verb, Misfit(one, unknown)) for one in claim.places.values()]
                    continue
                settlements.append(claim.settlement(verb))
                places.append((verb, claim))
        demand = PollLimits(call.limit, call.bytes_max, 0, context.room)
        begun = await self._consume.begin_next(
            grant, call.group, call.member, settlements, demand, call.generation or None
        )
        if begun.ready is not None:
            try:
                await begun.ready
            except BaseException:
                self._consume.give_back(call.group, begun.poll.parts)
                raise
        begun.settling.tell()
        count = 0
        for (verb, claim), outcome in zip(places, begun.settling.outcomes, strict=True):
            refused = [Misfit(claim.places[one.offset], one.error) for one in outcome.refused]
            failed += [(verb, misfit) for misfit in refused]
            count += len(claim.places) - len(refused)
        errors = [
            NextError(verb=verb, index=place, error=error.message, code=error.code)
            for verb, (place, error) in failed
        ]
        return count, errors, self._consume.finish_poll(begun.poll)

    async def _settle_for(
        self, grant: Grant, group: str, member: str | None, verb: str, claims: Sequence[Claim]
    ) -> list[_Outcome]:
        parts = [claim.settlement(verb) for claim in claims]
        try:
            grant = self._gate.name(grant, group)
            settled = await self._consume.settle(grant, group, member, parts, is_alone=True)
        except GoQueueError as error:
            # Another group's messages may be settled all the same: each is told its own fate.
            return [_Outcome(claim, error) for claim in claims]
        return list(map(_Outcome, claims, settled))

    def _reply(
        self, verb: str, outcomes: Sequence[_Outcome], misfits: Sequence[Misfit]
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
            new_deadline=self._wall_time(due_ms) if is_extended else None,
        )

    def _wall_time(self, due_ms: int | None) -> str:
        """Return a moment of the monotonic clock as people write it."""
        ahead_ms = 0 if due_ms is None else due_ms - self._clock.monotonic_ms()
        return format_time_us((self._clock.now_ms() + ahead_ms) * US_PER_MS)


def _progress(outcomes: Sequence[_Outcome]) -> list[BatchProgress]:
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
