"""The verbs of a member: ack, nack, reject, extend, release; and what time does to a lease.

Shape: decider. Each reads a ledger and returns the events that ``Ledger.apply`` takes, and which
messages were refused and why.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from pyroaring import BitMap64

from goqueue.base.errors import (
    GoQueueError,
    ReceiptExpiredError,
    StaleReceiptError,
    UnknownReceiptError,
)
from goqueue.base.ids import Offset
from goqueue.base.units import MINUTE_MS, SECOND_MS
from goqueue.core.decision import Decision
from goqueue.core.delivery import events
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.lease import Lease
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.runs import Runs, Written, count_of, runs_of, written_of
from goqueue.core.offset_sets import each

MAX_RETRIES_EXCEEDED: Final = "MAX_RETRIES_EXCEEDED"
REJECTED: Final = "REJECTED"
LEASE_EXPIRED: Final = "the lease expired"
MEMBER_GONE: Final = "the consumer's session expired"
CONNECTION_LOST: Final = "the consumer's connection was lost"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a message is tried again, and after which pauses."""

    max_retries: int = 3
    backoff_ms: int = 1 * SECOND_MS
    backoff_max_ms: int = 1 * MINUTE_MS

    def backoff_after(self, failures: int) -> int:
        """Return the pause after so many failures; it doubles up to its limit."""
        # Doubling keeps a poison message from starving its neighbours.
        return min(self.backoff_ms << min(max(failures - 1, 0), 40), self.backoff_max_ms)


class Claim(NamedTuple):
    """Messages that a caller claims to hold under a lease."""

    nonce: int
    offsets: BitMap64
    written: Written | None = None
    """The same offsets as they were sent."""


class Moment(NamedTuple):
    """One instant on both clocks: the monotonic for deadlines, the wall's for people."""

    now_ms: int
    at_ms: int


class Refused(NamedTuple):
    """A message that was not settled, and why."""

    offset: Offset
    error: GoQueueError


class Settled(NamedTuple):
    """What became of a claim."""

    refused: list[Refused]
    retried: Sequence[int] = ()
    doomed: Sequence[int] = ()
    due_ms: int | None = None


def judge(ledger: Ledger, claim: Claim, *, now_ms: int) -> tuple[BitMap64, list[Refused]]:
    """Return the claimed messages that are really held, and why the others are not."""
    lease = ledger.leases.get(claim.nonce)
    if lease is None:
        return BitMap64(), [Refused(Offset(o), _why(ledger, o)) for o in each(claim.offsets)]
    held = claim.offsets
    if lease.extended or now_ms >= lease.deadline_ms:
        held = held - lease.late(now_ms)
    held = held & lease.offsets
    if len(held) == len(claim.offsets):
        return held, []
    refused = (
        Refused(Offset(offset), _why(ledger, offset, lease))
        for offset in each(claim.offsets - held)
    )
    return held, list(refused)


def _why(ledger: Ledger, offset: int, lease: Lease | None = None) -> GoQueueError:
    if lease is not None and offset in lease.offsets:
        return ReceiptExpiredError(f"the lease of offset {offset} is over")
    if ledger.is_settled(offset) or offset in ledger.dooms or ledger.is_held(offset):
        return StaleReceiptError(f"offset {offset} is already settled")
    if offset in ledger.leases.offsets:
        return StaleReceiptError(f"offset {offset} has been delivered again since")
    if ledger.histories.count(offset):
        return ReceiptExpiredError(f"the lease of offset {offset} is over")
    return UnknownReceiptError(f"offset {offset} is not leased under this receipt")


def ack(ledger: Ledger, claim: Claim, *, now_ms: int) -> Decision[Event, Settled]:
    """Settle messages for good."""
    held, refused = judge(ledger, claim, now_ms=now_ms)
    if not held:
        return Decision((), Settled(refused))
    is_packed = isinstance(claim.written, bytes) and not refused
    written = claim.written if is_packed and claim.written else written_of(held)
    return Decision((events.Acked(offsets=written, nonce=claim.nonce),), Settled(refused))


def brief(ledger: Ledger, event: Event) -> Event:
    """Return an event, about to happen, as it is stored: what the ledger knows is not repeated."""
    if not isinstance(event, events.Acked) or not isinstance(event.offsets, bytes):
        return event
    lease = ledger.leases.get(event.nonce)
    is_whole = lease is not None and len(lease.offsets) == count_of(event.offsets)
    return events.Acked(offsets=[], nonce=event.nonce) if is_whole else event


def hold(
    ledger: Ledger, claim: Claim, transaction: int, *, now_ms: int
) -> Decision[Event, Settled]:
    """Leave it to a transaction whether messages are settled; their lease is over either way."""
    held, refused = judge(ledger, claim, now_ms=now_ms)
    found = (events.Held(offsets=runs_of(held), nonce=claim.nonce, transaction=transaction),)
    return Decision(found if held else (), Settled(refused))


def nack(
    ledger: Ledger,
    claim: Claim,
    policy: Policy,
    moment: Moment,
    *,
    error: str,
    delay_ms: int | None = None,
) -> Decision[Event, Settled]:
    """Give messages back: each is tried again after a pause, or has failed once too often."""
    held, refused = judge(ledger, claim, now_ms=moment.now_ms)
    found = _fail(ledger, claim.nonce, held, policy, moment, error=error, delay_ms=delay_ms)
    return Decision(tuple(found), _settled(refused, found))


def reject(ledger: Ledger, claim: Claim, moment: Moment, *, error: str) -> Decision[Event, Settled]:
    """Send messages to the dead letters at once."""
    held, refused = judge(ledger, claim, now_ms=moment.now_ms)
    found: list[Event] = []
    if held:
        found.append(_doom(claim.nonce, held, moment, reason=REJECTED, error=error))
    return Decision(tuple(found), _settled(refused, found))


def extend(ledger: Ledger, claim: Claim, *, now_ms: int, lease_ms: int) -> Decision[Event, Settled]:
    """Give messages so much time from now on."""
    held, refused = judge(ledger, claim, now_ms=now_ms)
    deadline_ms = now_ms + lease_ms
    found = (
        events.Extended(
            offsets=runs_of(held), nonce=claim.nonce, deadline_ms=deadline_ms, lease_ms=lease_ms
        ),
    )
    return Decision(found if held else (), Settled(refused, due_ms=deadline_ms))


def release(ledger: Ledger, claim: Claim, moment: Moment) -> Decision[Event, Settled]:
    """Give back messages that were not looked at: it is as if they had not been delivered."""
    held, refused = judge(ledger, claim, now_ms=moment.now_ms)
    found = (_returned(claim.nonce, held, moment, error="", backoff_ms=0, is_counted=False),)
    return Decision(found if held else (), Settled(refused))


def ack_member(ledger: Ledger, member: str, *, now_ms: int) -> Decision[Event, int]:
    """Settle everything a member holds: it says so by asking for more."""
    found: list[Event] = []
    count = 0
    for nonce in ledger.leases.held_by(member):
        lease = ledger.leases.get(nonce)
        held = lease.offsets - lease.late(now_ms) if lease is not None else BitMap64()
        if held:
            found.append(events.Acked(offsets=written_of(held), nonce=nonce))
            count += len(held)
    return Decision(tuple(found), count)


def release_member(ledger: Ledger, member: str, moment: Moment) -> Decision[Event, None]:
    """Take back everything from a member that left in order."""
    found = [
        _returned(nonce, lease.offsets, moment, error="", backoff_ms=0, is_counted=False)
        for nonce, lease in ledger.leases
        if lease.member == member
    ]
    return Decision(tuple(found), None)


def expire(ledger: Ledger, policy: Policy, moment: Moment) -> Decision[Event, int]:
    """End the leases whose time is over; return how many messages they held."""
    found: list[Event] = []
    count = 0
    for nonce, late in ledger.leases.late(moment.now_ms):
        count += len(late)
        found += _fail(ledger, nonce, late, policy, moment, error=LEASE_EXPIRED)
    return Decision(tuple(found), count)


def expire_member(
    ledger: Ledger, member: str, policy: Policy, moment: Moment
) -> Decision[Event, int]:
    """End the leases of a member whose session expired: an attempt each, tried again later."""
    return _fail_member(ledger, member, policy, moment, error=MEMBER_GONE)


def disconnect_member(
    ledger: Ledger, member: str, policy: Policy, moment: Moment
) -> Decision[Event, int]:
    """End the leases of a member whose connections ended: an attempt each, ready at once.

    It counts, because a message may be what killed its consumer. There is no backoff: the grace of
    the member was the pause.
    """
    return _fail_member(ledger, member, policy, moment, error=CONNECTION_LOST, delay_ms=0)


def _fail_member(
    ledger: Ledger,
    member: str,
    policy: Policy,
    moment: Moment,
    *,
    error: str,
    delay_ms: int | None = None,
) -> Decision[Event, int]:
    found: list[Event] = []
    count = 0
    for nonce, lease in ledger.leases:
        if lease.member == member:
            count += len(lease.offsets)
            found += _fail(
                ledger, nonce, lease.offsets, policy, moment, error=error, delay_ms=delay_ms
            )
    return Decision(tuple(found), count)


def commit(ledger: Ledger, offset: Offset) -> Decision[Event, None]:
    """Settle everything before an offset; an earlier one than committed goes back to it."""
    if offset == ledger.committed:
        return Decision((), None)
    if offset < ledger.committed:
        return Decision((events.Reset(offset=offset),), None)
    runs = [int(ledger.committed), int(offset)]
    return Decision((events.Dropped(offsets=runs, outcome=events.ACKED),), None)


def _fail(
    ledger: Ledger,
    nonce: int,
    held: BitMap64,
    policy: Policy,
    moment: Moment,
    *,
    error: str,
    delay_ms: int | None = None,
) -> list[Event]:
    found: list[Event] = []
    exhausted = BitMap64()
    for failures, offsets in _by_failures(ledger, held):
        if failures >= policy.max_retries:
            exhausted |= offsets
            continue
        backoff_ms = policy.backoff_after(failures + 1) if delay_ms is None else delay_ms
        found.append(_returned(nonce, offsets, moment, error=error, backoff_ms=backoff_ms))
    if exhausted:
        found.append(_doom(nonce, exhausted, moment, reason=MAX_RETRIES_EXCEEDED, error=error))
    return found


def _by_failures(ledger: Ledger, held: BitMap64) -> Iterable[tuple[int, BitMap64]]:
    failed = ledger.histories.counts_among(held)
    groups: dict[int, BitMap64] = {}
    for offset, failures in failed.items():
        groups.setdefault(failures, BitMap64()).add(offset)
    fresh = held - ledger.histories.offsets
    if fresh:
        groups[0] = fresh
    return sorted(groups.items())


def _returned(
    nonce: int,
    offsets: BitMap64,
    moment: Moment,
    *,
    error: str,
    backoff_ms: int,
    is_counted: bool = True,
) -> events.Returned:
    return events.Returned(
        offsets=runs_of(offsets),
        nonce=nonce,
        due_ms=moment.now_ms + backoff_ms,
        backoff_ms=backoff_ms,
        at_ms=moment.at_ms,
        error=error,
        is_counted=is_counted,
    )


def _doom(
    nonce: int, offsets: BitMap64, moment: Moment, *, reason: str, error: str
) -> events.Doomed:
    return events.Doomed(
        offsets=runs_of(offsets), nonce=nonce, reason=reason, error=error, at_ms=moment.at_ms
    )


def _settled(refused: list[Refused], found: Iterable[Event]) -> Settled:
    retried: Runs = []
    doomed: Runs = []
    due_ms: int | None = None
    for event in found:
        if isinstance(event, events.Returned):
            retried += event.offsets
            due_ms = event.due_ms
        elif isinstance(event, events.Doomed):
            doomed += event.offsets
    return Settled(refused, retried, doomed, due_ms)
