"""The delivery state of one partition for one consumer group.

Shape: decider. The verbs only decide; ``apply`` only changes state. The same ``apply`` serves live
traffic and recovery, so a recovered ledger cannot differ from the one that crashed. State is sets
of offsets: what is settled is a prefix and a set behind it, what is leased or waits are sets, and
all else behind the cursors is ready. What follows from time or from the log alone (who is ready
again, the order of keys) is not stored but worked out anew after a restart.
"""

from collections.abc import Iterable
from typing import Final

from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import PRIORITIES
from goqueue.core.decision import Decision
from goqueue.core.delivery import events, notices
from goqueue.core.delivery.doom import Doom
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.history import Histories
from goqueue.core.delivery.key_order import KeyOrder
from goqueue.core.delivery.lease import Lease, Leases
from goqueue.core.delivery.notices import Notice
from goqueue.core.delivery.picking import Pick
from goqueue.core.delivery.runs import peek_at, put_into, runs_of, set_of, take_from, written_of
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.delivery.view import View
from goqueue.core.delivery.waiting import Waiting
from goqueue.core.offset_sets import each

OUTCOME_INDEX: Final = {outcome: place for place, outcome in enumerate(events.OUTCOMES)}
_FRESH: Final = (
    "leases", "waiting", "histories", "dooms", "holds", "keys", "_doomed", "_held", "cursors",
)  # fmt: skip
"""What a reset begins anew."""


class Ledger:
    """Knows what became of every message; hands out the next ones."""

    def __init__(self, *, origin: Offset, by_key: bool) -> None:
        self.origin = origin
        """Where the group began; what lies before was never its concern."""
        self.committed = origin
        """Everything before it is settled."""
        self.done = BitMap64()
        """What is settled behind the committed offset."""
        self.leases = Leases()
        self.waiting = Waiting()
        self.histories = Histories()
        self.dooms: dict[int, Doom] = {}
        self.outcomes = [0] * len(events.OUTCOMES)
        """How many messages ended in which way."""
        self.keys = KeyOrder(origin) if by_key else None
        self.holds: dict[int, BitMap64] = {}
        """What open transactions settle if they are committed, by their numbers."""
        self._doomed = BitMap64()
        self._held = BitMap64()
        self.cursors = [int(origin)] * PRIORITIES
        """How far each lane was looked at."""
        self.again = BitMap64()
        """What lies before the cursors and may be delivered."""
        self._missed = BitMap64()
        self.resets = 0
        """Incremented by each reset; a ``Pick`` from before a reset is invalid."""

    def __repr__(self) -> str:
        return (
            f"<Ledger at {self.committed}: {len(self.done)} done behind it,"
            f" {len(self.leases.offsets)} leased, {len(self.waiting.offsets)} waiting>"
        )

    @property
    def reached(self) -> Offset:
        """Return an offset behind every message this ledger knows of."""
        return Offset(max(self.committed, self.done.max() + 1 if self.done else 0, *self.cursors))

    # Leasing.

    def ready_heads(self, keys: KeyOrder, view: View) -> BitMap64:
        """Return the first messages of keys that could be delivered now."""
        ready = view.visible(keys.heads) - self.leases.offsets
        own = (self.waiting.offsets, self._doomed, self._held)
        for left_out in (*own, view.hidden, view.cancelled):
            if left_out:
                ready -= left_out
        return ready

    def lease(
        self,
        pick: Pick,
        kept: BitMap64,
        terms: LeaseTerms,
        view: View,
        *,
        gone: BitMap64,
        expired: BitMap64,
    ) -> Decision[Event, None]:
        """Lease what was picked and could be read; what cannot be read will not be delivered.

        Reading takes time: what was passed over and is due or cancelled by now is no longer missed.
        """
        missed = pick.missed & view.hidden
        cancelled = pick.cancelled | (pick.missed & view.cancelled)
        now_due = pick.missed - missed - cancelled
        found: list[Event] = []
        if gone:
            found.append(events.Dropped(offsets=runs_of(gone), outcome=events.GONE))
        if expired:
            found.append(events.Dropped(offsets=runs_of(expired), outcome=events.EXPIRED))
        if cancelled:
            found.append(events.Dropped(offsets=runs_of(cancelled), outcome=events.CANCELLED))
        has_moved = list(pick.cursors) != self.cursors
        if kept or (has_moved and self.keys is None):
            unread = (pick.offsets - kept - gone - expired) | now_due
            # Packed, an order is ascending: it is that of the set.
            is_all = isinstance(pick.order, bytes) and len(kept) == len(pick.offsets)
            found.append(
                events.Leased(
                    offsets=pick.order if is_all else written_of(kept),
                    nonce=terms.nonce,
                    member=terms.member,
                    deadline_ms=terms.deadline_ms,
                    lease_ms=terms.lease_ms,
                    at_ms=terms.at_ms,
                    cursors=pick.cursors,
                    missed=runs_of(missed),
                    unread=runs_of(unread),
                )
            )
        return Decision(tuple(found), None)

    def cancel(self, offsets: BitMap64) -> Decision[Event, None]:
        """Settle messages that were cancelled after they had been passed over."""
        cancelled = self._missed & offsets
        if not cancelled:
            return Decision((), None)
        dropped = events.Dropped(offsets=runs_of(cancelled), outcome=events.CANCELLED)
        return Decision((dropped,), None)

    # Looking.

    def unsettled(self, offsets: BitMap64) -> BitMap64:
        """Return those of some offsets that are not settled."""
        rest = offsets - self.done
        if rest and rest.min() < self.committed:
            rest.remove_range(rest.min(), self.committed)
        return rest

    def settled_between(self, start: int, end: int) -> BitMap64:
        """Return what is settled in a half-open range."""
        if start >= self.committed:
            return self.done
        settled = BitMap64()
        settled.add_range(start, min(self.committed, end))
        return settled | self.done

    def has_ready_heads(self, view: View, count: int) -> bool:
        """Return True if so many messages known by key could be delivered now."""
        if self.keys is None:
            return count <= 0
        own = (self.leases.offsets, self.waiting.offsets, self._doomed, self._held)
        busy = sum(map(len, (*own, view.hidden, view.cancelled)))
        # Mostly the numbers tell, and nobody needs to look which ones they are.
        return (
            len(self.keys.heads) - busy >= count or len(self.ready_heads(self.keys, view)) >= count
        )

    def is_held(self, offset: int) -> bool:
        """Return True if an open transaction settles a message."""
        return offset in self._held

    def is_settled(self, offset: int) -> bool:
        """Return True if a message is settled."""
        return offset < self.committed or offset in self.done

    def first_due_ms(self) -> int | None:
        """Return when something happens by itself: a lease ends or a wait is over."""
        deadline_ms, due_ms = self.leases.first_deadline_ms(), self.waiting.first_due_ms()
        if deadline_ms is None or due_ms is None:
            return due_ms if deadline_ms is None else deadline_ms
        return min(deadline_ms, due_ms)

    def awaits(self, offsets: BitMap64) -> bool:
        """Return True if messages that are due now, or some of them, are news for who waits."""
        return self.keys is not None or bool(self.unsettled(self._missed & offsets))

    def is_wait_over(self, now_ms: int) -> bool:
        """Return True if a message has waited long enough for its next attempt."""
        first = self.waiting.first_due_ms()
        return first is not None and first <= now_ms

    # Changing.

    def apply(self, event: Event | Notice) -> None:  # noqa: C901, PLR0912 - a case for each event
        """Change state by one event, or by what time and the log bring, which is not stored."""
        match event:
            case events.Leased():
                self._lease(event)
            case events.Acked(offsets=runs, nonce=nonce):
                offsets = peek_at(runs) if runs else self.leases.held_under(nonce)
                self.leases.end(nonce, offsets)
                self._settle(offsets, events.ACKED)
            case events.Returned(offsets=runs, nonce=nonce):
                self._give_back(event, set_of(runs), nonce)
            case events.Extended(offsets=runs, nonce=nonce):
                self.leases.extend(
                    nonce, set_of(runs), deadline_ms=event.deadline_ms, lease_ms=event.lease_ms
                )
            case events.Doomed(offsets=runs, nonce=nonce):
                self._doom(event, set_of(runs), nonce)
            case events.MoveBegun(offsets=runs):
                self._begin_move(event, set_of(runs))
            case events.Moved(offsets=runs):
                self._settle(set_of(runs), events.DEAD)
            case events.Spared(offsets=runs):
                self._spare(event, set_of(runs))
            case events.Dropped(offsets=runs, outcome=outcome):
                self._drop(set_of(runs), outcome)
            case events.Held(offsets=runs, nonce=nonce):
                self._hold(event, set_of(runs), nonce)
            case events.HoldEnded(transaction=number, is_commit=is_commit):
                self._end_hold(number, is_commit=is_commit)
            case events.Reset(offset=offset):
                self._reset(Offset(offset))
            case events.Restored():
                self._restore(event)
            case notices.Woken(now_ms=now_ms):
                self.again |= self.waiting.advance(now_ms)
            case notices.Due(offsets=due):
                woken = self.unsettled(self._missed & due)
                self._missed -= due
                self.again |= woken
            case notices.Looked():
                self._look(event)
            case notices.Revived():
                self._revive(event)

    def _look(self, notice: notices.Looked) -> None:
        assert self.keys is not None, "the order of keys is kept"
        settled = self.settled_between(notice.start, notice.end)
        self.keys.look(notice.offsets, notice.numbers, settled, end_offset=notice.end)

    def _revive(self, notice: notices.Revived) -> None:
        self.leases.renew_all(notice.now_ms)
        self.waiting.renew_all(notice.now_ms)
        is_by_key = self.keys is not None if notice.by_key is None else notice.by_key
        self.keys = KeyOrder(self.committed) if is_by_key else None
        self.again, self._missed = notice.again, notice.missed

    def _lease(self, event: events.Leased) -> None:
        offsets = set_of(event.offsets)
        self.cursors = [max(old, new) for old, new in zip(self.cursors, event.cursors, strict=True)]
        if event.missed:
            self._missed |= self.unsettled(set_of(event.missed))
        if event.unread:
            self.again |= self.unsettled(set_of(event.unread))
        if offsets:
            take_from(self.again, offsets)
            if self.waiting.offsets:
                self.waiting.discard(offsets)
            self.leases.add(
                event.nonce,
                Lease(
                    event.member, offsets, deadline_ms=event.deadline_ms, lease_ms=event.lease_ms
                ),
            )

    def _give_back(self, event: events.Returned, offsets: BitMap64, nonce: int) -> None:
        lease = self.leases.get(nonce)
        assert lease is not None, "what comes back was leased"
        if event.is_counted:
            self.histories.add(offsets, member=lease.member, error=event.error, at_ms=event.at_ms)
        self.leases.end(nonce, offsets)
        if event.backoff_ms:
            self.waiting.add(each(offsets), due_ms=event.due_ms, backoff_ms=event.backoff_ms)
        else:
            self.again |= offsets

    def _doom(self, event: events.Doomed, offsets: BitMap64, nonce: int) -> None:
        lease = self.leases.get(nonce)
        if lease is not None:
            self.histories.add(offsets, member=lease.member, error=event.error, at_ms=event.at_ms)
            self.leases.end(nonce, offsets)
        self._doomed |= offsets
        for offset in each(offsets):
            self.dooms[offset] = Doom(reason=event.reason)

    def _begin_move(self, event: events.MoveBegun, offsets: BitMap64) -> None:
        self.again -= offsets
        self.waiting.discard(offsets)
        self._doomed |= offsets
        for offset in each(offsets):
            known = self.dooms.get(offset)
            self.dooms[offset] = Doom(
                reason=known.reason if known else event.reason,
                topic=event.topic,
                partition=event.partition,
                from_offset=Offset(event.from_offset),
            )

    def _spare(self, event: events.Spared, offsets: BitMap64) -> None:
        for offset in each(offsets & self._doomed):
            del self.dooms[offset]
        doomed = each(offsets & self._doomed)
        self.waiting.add(doomed, due_ms=event.due_ms, backoff_ms=event.backoff_ms)
        self._doomed -= offsets

    def _hold(self, event: events.Held, offsets: BitMap64, nonce: int) -> None:
        self.leases.end(nonce, offsets)
        put_into(self._held, offsets)
        put_into(self.holds.setdefault(event.transaction, BitMap64()), offsets)

    def _end_hold(self, number: int, *, is_commit: bool) -> None:
        offsets = self.holds.pop(number, BitMap64()) & self._held
        self._held -= offsets
        if is_commit:
            self._settle(offsets, events.ACKED)
        else:
            self.again |= offsets

    def _drop(self, offsets: BitMap64, outcome: str) -> None:
        offsets = self.unsettled(offsets)
        leased = offsets & self.leases.offsets
        if leased:
            self.leases.drop(leased)
        self._settle(offsets, outcome)

    def _settle(self, offsets: BitMap64, outcome: str) -> None:
        self.outcomes[OUTCOME_INDEX[outcome]] += len(offsets)
        put_into(self.done, offsets)
        take_from(self.again, offsets)
        take_from(self._missed, offsets)
        if self.waiting.offsets:
            self.waiting.discard(offsets)
        self.histories.forget(offsets)
        if self._doomed:
            for offset in each(self._doomed & offsets):
                del self.dooms[offset]
            self._doomed -= offsets
        take_from(self._held, offsets)
        if self.keys is not None:
            self.keys.settle(offsets)
        self._advance()

    def _advance(self) -> None:
        """Move the committed offset over what is settled without a gap."""
        start = self.committed
        if start not in self.done:
            return
        low, high = int(start), self.done.max() + 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.done.contains_range(start, middle):
                low = middle
            else:
                high = middle - 1
        self.done.remove_range(start, low)
        self.committed = Offset(low)

    def _reset(self, offset: Offset) -> None:
        fresh = Ledger(origin=offset, by_key=self.keys is not None)
        for name in _FRESH:
            setattr(self, name, getattr(fresh, name))
        self.origin = self.committed = offset
        self.resets += 1
        self.done, self.again, self._missed = BitMap64(), BitMap64(), BitMap64()
        self.outcomes = [0] * len(events.OUTCOMES)

    # Recovery.

    def revive(
        self, view: View, *, now_ms: int, by_key: bool | None = None
    ) -> Decision[Event, notices.Revived]:
        """Work out, after a replay, what is not stored, and what must be settled now."""
        behind = BitMap64()
        for lane, cursor in enumerate(self.cursors):
            behind |= view.lane_between(lane, self.committed, cursor)
        behind -= self.done
        behind -= self.leases.offsets
        behind -= self.waiting.offsets
        behind -= self._doomed
        behind -= self._held
        missed = behind & view.hidden
        cancelled = behind & view.cancelled
        revived = notices.Revived(behind - missed - cancelled, missed, now_ms, by_key)
        if not cancelled:
            return Decision((), revived)
        dropped = events.Dropped(offsets=runs_of(cancelled), outcome=events.CANCELLED)
        return Decision((dropped,), revived)

    def snapshot(self) -> Iterable[Event]:
        """Return the event that rebuilds this state."""
        done = self.done.copy()
        done.run_optimize()
        history, texts = self.histories.kept()
        yield events.Restored(
            origin=self.origin,
            committed=self.committed,
            done=done.serialize(),
            cursors=tuple(self.cursors),
            outcomes=list(self.outcomes),
            leases=[
                events.LeaseKept(
                    nonce=nonce,
                    member=lease.member,
                    offsets=written_of(lease.offsets),
                    deadline_ms=lease.deadline_ms,
                    lease_ms=lease.lease_ms,
                )
                for nonce, lease in self.leases
            ],
            waits=[
                events.WaitKept(offset=offset, due_ms=due, backoff_ms=backoff)
                for offset, due, backoff in self.waiting
            ],
            history=history,
            texts=texts,
            dooms=[doom.kept(offset) for offset, doom in self.dooms.items()],
            holds=[
                events.HoldKept(transaction=number, offsets=runs_of(offsets & self._held))
                for number, offsets in self.holds.items()
            ],
        )

    def _restore(self, event: events.Restored) -> None:
        self._reset(Offset(event.committed))
        self.origin = Offset(event.origin)
        self.done = BitMap64.deserialize(event.done)
        self.outcomes = list(event.outcomes)
        self.cursors = list(event.cursors)
        for kept in event.leases:
            lease = Lease(
                kept.member,
                set_of(kept.offsets),
                deadline_ms=kept.deadline_ms,
                lease_ms=kept.lease_ms,
            )
            self.leases.add(kept.nonce, lease)
        for wait in event.waits:
            self.waiting.add([wait.offset], due_ms=wait.due_ms, backoff_ms=wait.backoff_ms)
        self.histories.restore(event.history, event.texts)
        for doom in event.dooms:
            self.dooms[doom.offset] = Doom.restore(doom)
            self._doomed.add(doom.offset)
        for hold in event.holds:
            self.holds[hold.transaction] = set_of(hold.offsets)
            self._held |= self.holds[hold.transaction]
