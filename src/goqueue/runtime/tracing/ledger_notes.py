"""What groups do with traced messages, noted from the events of their ledgers."""

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Final

from pyroaring import BitMap64

from goqueue.base.units import NS_PER_MS
from goqueue.core.delivery import events, settle
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.runs import count_of
from goqueue.core.offset_sets import each
from goqueue.core.tracing import kinds
from goqueue.core.tracing.note import NOTHING
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.tracing.partition_trace import PartitionTrace
from goqueue.runtime.tracing.tracer import LeaseMemory, harmless

_TIMED_OUT: Final = frozenset({settle.LEASE_EXPIRED, settle.MEMBER_GONE, settle.CONNECTION_LOST})


@harmless
def trace_events(hosted: HostedLedger, found: Sequence[Event]) -> None:
    """Note events that were just committed to a ledger."""
    trace = hosted.partition.trace
    if trace is None or trace.is_idle:
        return
    for event in found:
        match event:
            case events.Leased():
                _leased(trace, hosted, event)
            case events.Acked() | events.Returned() | events.Doomed() | events.Extended():
                _settled(trace, hosted, event)
            case events.Held():
                _held(trace, hosted, event)
            case events.HoldEnded():
                _hold_ended(trace, hosted, event)
            case events.Dropped():
                _dropped(trace, hosted, event)
            case _:
                # Moves are noted where they are made, and resets are of nobody's message.
                pass


def _leased(trace: PartitionTrace, hosted: HostedLedger, event: events.Leased) -> None:
    chosen = trace.choose_from(event.offsets)
    tracer, histories = trace.tracer, hosted.ledger.histories
    at_ns = tracer.now_ns()
    # Notes outlive their lease, and the name came with a request: all of them share one text.
    member = intern(event.member)
    memory = LeaseMemory(at_ns, member, count_of(event.offsets), chosen)
    tracer.remember_lease(event.nonce, memory)
    if not chosen:
        return
    again = chosen & histories.offsets
    for offset in each(again):
        failed = histories.attempts(offset)
        trace.note(
            kinds.REDELIVERED,
            BitMap64([offset]),
            at_ns=at_ns,
            began_ns=failed[-1].at_ms * NS_PER_MS if failed else 0,
            group=hosted.group,
            member=member,
            nonce=event.nonce,
            attributes={"attempt": histories.count(offset) + 1},
        )
    fresh = chosen - again if again else chosen
    for part, since_ns in tracer.ring.ready(trace.place, fresh) if fresh else ():
        trace.note(
            kinds.FETCHED,
            part,
            at_ns=at_ns,
            began_ns=since_ns,
            group=hosted.group,
            member=member,
            nonce=event.nonce,
        )


def _settled(
    trace: PartitionTrace,
    hosted: HostedLedger,
    event: events.Acked | events.Returned | events.Doomed | events.Extended,
) -> None:
    tracer = trace.tracer
    memory = tracer.lease(event.nonce)
    if hosted.ledger.leases.get(event.nonce) is None:
        tracer.forget_lease(event.nonce)
    # As many as were leased are all of them, and need not be chosen from again.
    is_whole = memory is not None and memory.messages == count_of(event.offsets)
    chosen = memory.chosen if memory is not None and is_whole else trace.choose_from(event.offsets)
    if not chosen:
        return
    kind, error, attributes = _describe(event)
    trace.note(
        kind,
        chosen,
        began_ns=memory.at_ns if memory is not None else 0,
        group=hosted.group,
        member=memory.member if memory is not None else "",
        nonce=event.nonce,
        error=error,
        attributes=attributes,
    )
    if isinstance(event, events.Doomed):
        tracer.remember_doom(trace.place.tag, chosen, event.nonce)


def _describe(
    event: events.Acked | events.Returned | events.Doomed | events.Extended,
) -> tuple[str, str, Mapping[str, object]]:
    """Return the kind of an event, the error in it and what else there is to say."""
    match event:
        case events.Acked():
            return kinds.ACKED, "", NOTHING
        case events.Extended():
            return kinds.EXTENDED, "", {"lease_ms": event.lease_ms}
        case events.Returned():
            if not event.is_counted:
                return kinds.RELEASED, "", NOTHING
            kind = kinds.VISIBILITY_EXPIRED if event.error in _TIMED_OUT else kinds.NACKED
            return kind, event.error, {"backoff_ms": event.backoff_ms}
        case events.Doomed():
            kind = kinds.VISIBILITY_EXPIRED if event.error in _TIMED_OUT else kinds.NACKED
            kind = kinds.REJECTED if event.reason == settle.REJECTED else kind
            return kind, event.error, {"reason": event.reason}


def _held(trace: PartitionTrace, hosted: HostedLedger, event: events.Held) -> None:
    chosen = trace.choose_from(event.offsets)
    if chosen:
        trace.tracer.remember_hold(trace.place.tag, hosted.group, event.transaction, chosen)
        trace.note(
            kinds.HELD,
            chosen,
            group=hosted.group,
            nonce=event.nonce,
            attributes={"transaction": event.transaction},
        )


def _hold_ended(trace: PartitionTrace, hosted: HostedLedger, event: events.HoldEnded) -> None:
    held = trace.tracer.take_hold(trace.place.tag, hosted.group, event.transaction)
    if held:
        kind = kinds.ACKED if event.is_commit else kinds.RELEASED
        said = {"transaction": event.transaction}
        trace.note(kind, held, group=hosted.group, attributes=said)


def _dropped(trace: PartitionTrace, hosted: HostedLedger, event: events.Dropped) -> None:
    kind = _DROPPED.get(event.outcome)
    if kind is not None:
        trace.note(kind, trace.choose_from(event.offsets), group=hosted.group)


_DROPPED: Final = {events.ACKED: kinds.ACKED, events.EXPIRED: kinds.EXPIRED}
"""How messages end that nobody settled one by one: a group committed behind them, or by age."""
