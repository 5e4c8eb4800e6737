"""The queue and its receipts over several nodes: each part of a request where its messages are."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    GoQueueError,
    GroupNotFoundError,
    PartitionNotFoundError,
    TopicNotFoundError,
)
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId
from goqueue.core.delivery.receipt import parse_receipt
from goqueue.runtime.broker import Broker
from goqueue.service.claims import ClaimPart, Claims, Terms
from goqueue.service.queue import Polled, Queue
from goqueue.service.receipts import Receipts, ReceiptSettled
from goqueue.service.routed_polls import RoutedPolls
from goqueue.service.routing import RoutedVerb, Router
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext, granted_verb, verb
from goqueue.wire import calls, queue_calls
from goqueue.wire.http.settling import BatchError, BatchSettled
from goqueue.wire.http.taking import NextError

_GONE = (TopicNotFoundError, PartitionNotFoundError)


class RoutedQueue(Queue):
    """Polls, commits and resets of groups whose partitions are led by several nodes."""

    def __init__(self, broker: Broker, own: Queue, router: Router) -> None:
        super().__init__(broker, own.gate)
        self._own = own
        self._router = router
        self.polls = RoutedPolls(router, own)
        self._commit = RoutedVerb.of("queue.commit_offsets", own.commit_offsets)
        self._move = RoutedVerb.of("queue.move_offsets", own.move_offsets)

    @granted_verb(Deed.POLL)
    async def lease_ready(
        self, grant: Grant, call: queue_calls.Poll, context: RequestContext
    ) -> Polled | None:
        """Return None: what is ready at the leaders is asked for together with the wait."""
        del grant, call, context
        return None

    @granted_verb(Deed.POLL)
    async def lease(self, grant: Grant, call: queue_calls.Poll, context: RequestContext) -> Polled:
        """Lease messages of all leaders, waiting a while for some."""
        return await self.polls.lease(grant, call, context)

    @granted_verb(Deed.POLL, Deed.NEXT)
    def give_back(self, grant: Grant, group: str, polled: Polled) -> None:
        """End leases whose messages were not received; that is no failed attempt."""
        self.polls.give_back(grant, group, polled)

    @verb(Deed.POLL, Deed.NEXT)
    def touch(self, group: str, member: str) -> None:
        """Do nothing: each look at the leaders is a sign of life for the coordinator."""
        del group, member

    @verb(Deed.POLL, Deed.NEXT)
    def begin_wait(self, group: str, member: str) -> int:
        """Let a poll stand for its member where the group is hosted here."""
        try:
            hosted = self._groups.get(group)
            number = self._groups.connect()
            hosted.attach(member, number)
        except GoQueueError as error:
            if isinstance(error, GroupNotFoundError):
                raise
            return 0
        return number

    @verb(Deed.POLL, Deed.NEXT)
    def end_wait(self, number: int, *, is_cut: bool) -> None:
        """Take note that a poll ended; elsewhere the session of its member says so."""
        if number:
            self._groups.disconnect(number, is_lost=is_cut)

    @verb(Deed.POLL, Deed.NEXT)
    def has_one_topic(self, group: str) -> bool:
        """Return True if the members of a group read a single topic, as was last heard."""
        return self.polls.one_topic.get(group, True)

    @verb(Deed.POLL, Deed.NEXT)
    def session_timeout_ms(self, group: str) -> int:
        """Return how often to look for a client that is gone: a poll renews its session itself."""
        del group
        return 30_000

    @granted_verb(Deed.COMMIT_OFFSETS)
    async def commit_offsets(self, grant: Grant, call: queue_calls.CommitOffsets) -> calls.Nothing:
        """Settle everything before some offsets, at the leaders of their partitions."""
        for topic in {one.topic for one in call.offsets}:
            self.gate.admit(grant.caller, Deed.FETCH, (topic,))
        shares: dict[NodeId, list[queue_calls.OffsetOf]] = {}
        for one in call.offsets:
            shares.setdefault(self._router.leader(one.topic, one.partition), []).append(one)
        if not shares:
            shares = {self._router.named(call.group): []}
        await asyncio.gather(
            *(
                self._router.at(
                    grant,
                    self._commit,
                    self._leader_of(node, offsets),
                    msgspec.structs.replace(call, offsets=offsets),
                    is_repeatable=True,
                )
                for node, offsets in shares.items()
            )
        )
        return calls.Nothing()

    def _leader_of(
        self, node: NodeId, offsets: Sequence[queue_calls.OffsetOf]
    ) -> Callable[[], NodeId]:
        if not offsets:
            return lambda: node
        return lambda: self._router.leader(offsets[0].topic, offsets[0].partition)

    @granted_verb(Deed.RESET_OFFSETS)
    async def move_offsets(
        self, grant: Grant, call: queue_calls.ResetOffsets, *, dry_run: bool
    ) -> dict[int, tuple[int, int | None]]:
        """Let a group begin anew, at the leaders of the partitions it is about."""
        self.gate.admit(grant.caller, Deed.FETCH, (call.topic,))
        wanted = None if call.partitions is None else set(call.partitions)
        shares = {
            node: [one for one in numbers if wanted is None or one in wanted]
            for node, numbers in self._router.leaders(call.topic).items()
        }
        answers = await asyncio.gather(
            *(
                self._router.ask(
                    node,
                    grant,
                    self._move,
                    msgspec.structs.replace(call, partitions=numbers),
                    dry_run=dry_run,
                )
                for node, numbers in shares.items()
                if numbers
            )
        )
        return {number: place for answer in answers for number, place in sorted(answer.items())}


class RoutedReceipts(Receipts):
    """Settles messages by their receipts, at the leaders of their partitions."""

    def __init__(self, broker: Broker, own: Service, queue: RoutedQueue, router: Router) -> None:
        super().__init__(broker, own.gate)
        self._router = router
        self._queue = queue
        self._settle = RoutedVerb.of("receipts.settle", own.receipts.settle)
        self._settle_parts = RoutedVerb.of("receipts.settle_parts", own.receipts.settle_parts)
        self._settle_next = RoutedVerb.of("receipts.settle_next", own.receipts.settle_next)

    @granted_verb(Deed.SETTLE)
    async def settle(
        self, grant: Grant, text: str | None, verb: str, terms: Terms
    ) -> ReceiptSettled:
        """Settle one message, or raise saying why its receipt settles nothing."""
        receipt = parse_receipt(text)
        found: ReceiptSettled = await self._router.at(
            grant,
            self._settle,
            lambda: self._holder(receipt.topic, receipt.partition),
            text,
            verb,
            terms,
        )
        return found

    def _holder(self, topic: str, partition: int) -> NodeId:
        try:
            return self._router.leader(topic, partition)
        except _GONE:
            # This node knows of no lease in it either, and says so.
            return self._router.node

    @granted_verb(Deed.SETTLE)
    async def settle_all(self, grant: Grant, verb: str, receipts: Claims) -> BatchSettled:
        """Settle many messages; those whose receipt settles nothing are named with the reason."""
        return await self._split(grant, self._settle_parts, (verb,), receipts)

    @granted_verb(Deed.NEXT)
    async def take_next(
        self,
        grant: Grant,
        call: queue_calls.Poll,
        receipts: Mapping[str, Claims],
        context: RequestContext,
    ) -> tuple[int, list[NextError], Polled]:
        """Settle messages of a group by verb, then lease those that are ready."""
        count = 0
        errors: list[NextError] = []
        for one, claims in receipts.items():
            given = (call.group, call.member, one)
            settled = await self._split(grant, self._settle_next, given, claims)
            count += settled.settled
            errors += [
                NextError(verb=one, index=bad.index, error=bad.error, code=bad.code)
                for bad in settled.errors
            ]
        ready = msgspec.structs.replace(call, wait_ms=0)
        return count, errors, await self._queue.polls.lease(grant, ready, context)

    async def _split(
        self, grant: Grant, asked: RoutedVerb, given: tuple[str, ...], receipts: Claims
    ) -> BatchSettled:
        """Settle receipts at the nodes they belong to; one that fails costs its own receipts."""
        shares: dict[tuple[str, int], list[ClaimPart]] = {}
        for part in receipts.parts():
            place = (part.receipt.topic, part.receipt.partition)
            shares.setdefault(place, []).append(part)
        outcomes = await asyncio.gather(
            *(self._share(grant, asked, given, place, parts) for place, parts in shares.items())
        )
        errors = [
            BatchError(index=place, error=error.message, code=error.code)
            for place, error in receipts.misfits
        ]
        return _together([*outcomes, _refused(errors)])

    async def _share(
        self,
        grant: Grant,
        asked: RoutedVerb,
        given: tuple[str, ...],
        place: tuple[str, int],
        parts: list[ClaimPart],
    ) -> BatchSettled:
        try:
            found: BatchSettled = await self._router.at(
                grant, asked, lambda: self._holder(*place), *given, parts
            )
        except GoQueueError as error:
            return _refused(
                [
                    BatchError(index=one, error=error.message, code=error.code)
                    for part in parts
                    for one in part.places
                ]
            )
        return found


def _refused(errors: list[BatchError]) -> BatchSettled:
    return BatchSettled(success=not errors, settled=0, errors=errors, progress=[])


def _together(outcomes: Sequence[BatchSettled]) -> BatchSettled:
    """Return what became of the shares of a batch as of one."""
    errors = [error for one in outcomes for error in one.errors]
    deadlines = [one.new_deadline for one in outcomes if one.new_deadline is not None]
    return BatchSettled(
        success=not errors,
        settled=sum(one.settled for one in outcomes),
        errors=sorted(errors, key=lambda error: error.index),
        progress=[part for one in outcomes for part in one.progress],
        requeued=_count(one.requeued for one in outcomes),
        dlq=_count(one.dlq for one in outcomes),
        new_deadline=min(deadlines, default=None),
    )


def _count(counts: Any) -> int | None:  # noqa: ANN401 - counts, some of them absent
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
