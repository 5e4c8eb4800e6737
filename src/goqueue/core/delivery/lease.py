"""The leases of one ledger, by nonce, with the deadlines of each.

Shape: calculator.
"""

import heapq
from collections.abc import Iterator

from pyroaring import BitMap64

from goqueue.core.delivery.runs import put_into, take_from
from goqueue.core.offset_sets import each


class Lease:
    """Messages one member took in one poll."""

    __slots__ = ("deadline_ms", "extended", "lease_ms", "member", "offsets")

    def __init__(self, member: str, offsets: BitMap64, *, deadline_ms: int, lease_ms: int) -> None:
        self.member = member
        self.offsets = offsets
        self.deadline_ms = deadline_ms
        self.lease_ms = lease_ms
        self.extended: dict[int, int] = {}
        """Deadlines of single messages that were given another one than the rest."""

    def late(self, now_ms: int) -> BitMap64:
        """Return the messages whose time is over."""
        if not self.extended:
            return self.offsets.copy() if now_ms >= self.deadline_ms else BitMap64()
        own = BitMap64(offset for offset in self.extended if offset in self.offsets)
        late = BitMap64(offset for offset in each(own) if now_ms >= self.extended[offset])
        return late | (self.offsets - own) if now_ms >= self.deadline_ms else late


class Leases:
    """Every live lease of a ledger."""

    def __init__(self) -> None:
        self._by_nonce: dict[int, Lease] = {}
        self._in_flight: dict[str, int] = {}
        self._deadlines: list[tuple[int, int]] = []
        self.offsets = BitMap64()
        """All messages under lease."""

    def __len__(self) -> int:
        return len(self._by_nonce)

    def __iter__(self) -> Iterator[tuple[int, Lease]]:
        return iter(self._by_nonce.items())

    def get(self, nonce: int) -> Lease | None:
        """Return a live lease."""
        return self._by_nonce.get(nonce)

    def in_flight(self, member: str) -> int:
        """Return how many messages a member holds."""
        return self._in_flight.get(member, 0)

    def held_under(self, nonce: int) -> BitMap64:
        """Return what a live lease holds, as a set of the caller's own."""
        return self._by_nonce[nonce].offsets.copy()

    def held_by(self, member: str) -> list[int]:
        """Return the nonces of a member's leases."""
        return [nonce for nonce, lease in self._by_nonce.items() if lease.member == member]

    def add(self, nonce: int, lease: Lease) -> None:
        """Begin a lease."""
        assert nonce not in self._by_nonce, "a nonce is used once"
        self._by_nonce[nonce] = lease
        put_into(self.offsets, lease.offsets)
        self._in_flight[lease.member] = self.in_flight(lease.member) + len(lease.offsets)
        self._push(lease.deadline_ms, nonce)

    def _push(self, deadline_ms: int, nonce: int) -> None:
        """Note a deadline; when most of those noted are over, keep the live ones only."""
        heapq.heappush(self._deadlines, (deadline_ms, nonce))
        if len(self._deadlines) > 64 + 4 * len(self._by_nonce):
            live = {
                (due, nonce)
                for nonce, lease in self._by_nonce.items()
                for due in (lease.deadline_ms, *lease.extended.values())
            }
            self._deadlines = sorted(live | {(deadline_ms, nonce)})

    def end(self, nonce: int, offsets: BitMap64) -> None:
        """End the lease of some messages."""
        lease = self._by_nonce[nonce]
        take_from(lease.offsets, offsets)
        take_from(self.offsets, offsets)
        left = self._in_flight[lease.member] - len(offsets)
        if left:
            self._in_flight[lease.member] = left
        else:
            del self._in_flight[lease.member]
        if not lease.offsets:
            del self._by_nonce[nonce]

    def drop(self, offsets: BitMap64) -> None:
        """End whatever leases there are of some messages."""
        for nonce, lease in list(self._by_nonce.items()):
            held = lease.offsets & offsets
            if held:
                self.end(nonce, held)

    def extend(self, nonce: int, offsets: BitMap64, *, deadline_ms: int, lease_ms: int) -> None:
        """Give some messages of a lease another deadline."""
        lease = self._by_nonce[nonce]
        self._push(deadline_ms, nonce)
        if len(offsets) == len(lease.offsets):
            lease.deadline_ms, lease.lease_ms = deadline_ms, lease_ms
            lease.extended.clear()
        else:
            lease.extended.update(dict.fromkeys(each(offsets), deadline_ms))

    def renew_all(self, now_ms: int) -> None:
        """Give every lease its whole time again, after a restart."""
        self._deadlines = []
        for nonce, lease in self._by_nonce.items():
            lease.extended.clear()
            lease.deadline_ms = now_ms + lease.lease_ms
            heapq.heappush(self._deadlines, (lease.deadline_ms, nonce))

    def first_deadline_ms(self) -> int | None:
        """Return when the first lease may be over; one that was extended is looked at early."""
        while self._deadlines:
            deadline_ms, nonce = self._deadlines[0]
            if nonce in self._by_nonce:
                return deadline_ms
            heapq.heappop(self._deadlines)
        return None

    def late(self, now_ms: int) -> Iterator[tuple[int, BitMap64]]:
        """Yield the messages whose time is over, by nonce; each lease is looked at once."""
        looked: set[int] = set()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, nonce = heapq.heappop(self._deadlines)
            lease = self._by_nonce.get(nonce)
            if lease is None or nonce in looked:
                continue
            looked.add(nonce)
            late = lease.late(now_ms)
            if late:
                # Should the caller not end it, it comes again.
                heapq.heappush(self._deadlines, (now_ms + 1, nonce))
                yield nonce, late
