"""Leasing from one ledger: look ahead, pick, read, and lease what is still there to be leased.

Reading may take a while, and everything may change meanwhile: what is leased is checked against the
group and the ledger as they are when the frames are at hand.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from goqueue.base.errors import OffsetOutOfRangeError
from goqueue.base.ids import Offset, TopicPartition
from goqueue.base.limits import (
    FAILING_MESSAGES_MAX,
    LOOK_AHEAD_MESSAGES_MAX,
    RECENT_BYTES_MAX,
)
from goqueue.base.units import US_PER_MS
from goqueue.core.delivery import events
from goqueue.core.delivery.notices import Looked
from goqueue.core.delivery.picking import Pick
from goqueue.core.delivery.runs import (
    Written,
    array_of,
    count_of,
    numbers_in,
    runs_of,
    set_from,
    written_in,
)
from goqueue.core.delivery.terms import LeaseTerms
from goqueue.core.record.frame import Buffer
from goqueue.runtime.clock import Clock
from goqueue.runtime.groups.at_work import GroupAtWork
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.delivery_read import (
    WHOLE_SHARE,
    FoundMessages,
    GatheredRows,
    PickReader,
    nothing_found,
    read_keys,
)
from goqueue.runtime.queue.hosted_ledger import Change, HostedLedger, commit_together
from goqueue.runtime.queue.in_flight_shares import InFlightShares
from goqueue.runtime.queue.ledgers import Ledgers
from goqueue.runtime.queue.recent_pieces import RecentPieces

NONCE_BYTES: Final = 8
NONCES_MADE: Final = 64
NO_NONCE: Final = 0
"""Where cursors moved and nothing is leased."""
TRIES_MAX: Final = 8
"""How often is picked again when everything picked turned out to be no message."""


_NONE: Final = np.empty(0, np.int64)


class Leased(NamedTuple):
    """Messages of one partition under one lease: in frames of the log, and some apart from them."""

    partition: TopicPartition
    nonce: int
    frames: list[Buffer]
    order: Written
    failures: dict[int, int]
    apart: GatheredRows | None = None
    traced: Written = b""
    """Runs of those that are traced and whose sender gave no trace; ``tag`` makes one for them."""
    tag: int = 0

    @property
    def rows(self) -> int:
        """Return how many messages there are."""
        return count_of(self.order)

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last message."""
        if isinstance(self.order, bytes):
            return int(numbers_in(self.order)[-1]) + 1
        return max(self.order[1::2])

    @property
    def size(self) -> int:
        """Return about how many bytes a reply with the messages takes."""
        beside = self.apart.size if self.apart is not None else 0
        return sum(map(len, self.frames)) + beside

    @property
    def gathered(self) -> Written:
        """Return the offsets of the messages that are apart."""
        return b"" if self.apart is None else self.apart.offsets

    def packed(self) -> list[Buffer]:
        """Return everything as frames; what is apart is the last one."""
        return self.frames if self.apart is None else [*self.frames, self.apart.frame()]


class LeaseRequest(NamedTuple):
    """Who wants messages, and how many and how large they may be."""

    group: GroupAtWork
    member: str
    limit: int
    bytes_max: int


class _Chosen(NamedTuple):
    """A lease that was decided: its messages in their order, and the events that make it."""

    nonce: int
    order: Written
    kept: BitMap64
    events: Sequence[events.Event]
    is_over: bool
    """Whether trying again would bring nothing, if nothing is kept."""


class _Nonces:
    """Random numbers, made many at a time: asking the system costs more than a lease."""

    def __init__(self) -> None:
        self._made: list[int] = []

    def __call__(self) -> int:
        """Return a number nobody can guess."""
        if not self._made:
            some = memoryview(secrets.token_bytes(NONCE_BYTES * NONCES_MADE))
            self._made = some.cast("Q").tolist()
        return self._made.pop()


class Leasing:
    """Leases messages to members."""

    def __init__(
        self, ledgers: Ledgers, *, clock: Clock, nonce: Callable[[], int] | None = None
    ) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._nonce = nonce or _Nonces()
        self._recent = RecentPieces(RECENT_BYTES_MAX)
        self.shares: InFlightShares | None = None
        """What members may hold here, in a cluster; None where nothing is led elsewhere."""

    def __repr__(self) -> str:
        return f"<Leasing from {self._ledgers!r}>"

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget what was read of partitions that are gone."""
        for partition in partitions:
            self._recent.forget(partition)

    def note_places(self) -> None:
        """Take note that other partitions are led here than before."""
        if self.shares is not None:
            self.shares.clear()

    def room(self, wish: LeaseRequest) -> int:
        """Return how many more messages a member may hold, what it asked for at most."""
        member, held = wish.member, 0
        for hosted in self._ledgers.of(wish.group.name).values():
            held += hosted.ledger.leases.in_flight(member)
        if self.shares is None:
            return min(wish.limit, wish.group.options.max_in_flight - held)
        return min(wish.limit, self.shares.bound(wish.group, wish.member) - held)

    async def lease(self, hosted: HostedLedger, wish: LeaseRequest) -> Leased | None:
        """Lease what is ready in a partition; None if nothing is."""
        async with hosted.turn:
            for _ in range(TRIES_MAX):
                ready = await self._find(hosted, wish)
                if isinstance(ready, bool):
                    if ready:
                        return None
                    continue
                # Nothing awaits between its last check and the commit.
                pick, found = ready
                chosen = self._choose(hosted, wish, pick, found)
                hosted.commit(chosen.events)
                if chosen.kept:
                    return self._leased(hosted, found, chosen)
                if chosen.is_over:
                    return None
        return None

    def find_one(self, hosted: HostedLedger) -> tuple[Offset, Buffer] | bool:
        """Return the next message where nothing but its offset decides and it is at hand.

        True means that there is none, False that the general way must find out.
        """
        offset = hosted.next_plain()
        if isinstance(offset, bool):
            return offset
        piece = self._recent.find(hosted.partition, offset)
        if piece is None:
            return False
        (stored,) = piece.between(offset, offset + 1)
        if not stored.is_message or offset >= stored.header.offset + stored.rows:
            return False
        frame = stored.frame if stored.rows <= WHOLE_SHARE else stored.row(offset)
        return offset, frame

    def lease_one(
        self,
        hosted: HostedLedger,
        found: tuple[Offset, Buffer],
        wish: LeaseRequest,
        before: Sequence[Change],
    ) -> Leased:
        """Lease what ``find_one`` returned in this step, behind other changes of the group."""
        offset, frame = found
        nonce, order = self._nonce(), [int(offset), offset + 1]
        lease_ms = wish.group.options.visibility_timeout_ms
        leased = hosted.leased_plain(nonce, wish.member, order, lease_ms=lease_ms)
        commit_together([*before, (hosted, (leased,))])
        self._ledgers.remember(nonce, hosted)
        traced, tag = _traces(hosted, nonce)
        return Leased(hosted.partition.name, nonce, [frame], order, {}, None, traced, tag)

    async def _find(
        self, hosted: HostedLedger, wish: LeaseRequest
    ) -> tuple[Pick, FoundMessages] | bool:
        """Return messages that are ready, or whether trying again would bring none either."""
        ledger = hosted.ledger
        if (
            not self._may_lease(hosted, wish)
            or len(ledger.histories.offsets) > FAILING_MESSAGES_MAX
        ):
            return True
        resets = ledger.resets
        try:
            hosted.keep_up()
            if ledger.keys is not None:
                await self._look_ahead(hosted, wish.limit)
            pick = hosted.pick(wish.limit)
            if ledger.keys is not None and not pick.offsets and not pick.cancelled:
                return True
            found = nothing_found()
            if pick.offsets:
                reader = PickReader(self._recent, hosted.partition, pick, bytes_max=wish.bytes_max)
                found = await reader.read(oldest_us=self._oldest_us(hosted))
        except (FileNotFoundError, OffsetOutOfRangeError):
            # Deleted while it was read: with the topic, or by retention.
            return hosted.partition.is_closed
        if not self._may_lease(hosted, wish):
            return True
        return (pick, found) if ledger.resets == resets else False

    def _choose(
        self, hosted: HostedLedger, wish: LeaseRequest, pick: Pick, found: FoundMessages
    ) -> _Chosen:
        """Decide about a lease of what was found and may still be had."""
        ledger = hosted.ledger
        kept = ledger.unsettled(found.offsets) - ledger.leases.offsets
        order = pick.order
        room = max(self.room(wish), 0)
        if len(kept) < len(pick.offsets) or room < len(kept):
            line = numbers_in(order)
            line = line[np.isin(line, array_of(kept))][:room]
            order, kept = written_in(line), set_from(np.sort(line))
        moment = hosted.moment()
        lease_ms = wish.group.options.visibility_timeout_ms
        nonce = self._nonce() if kept else NO_NONCE
        terms = LeaseTerms(nonce, wish.member, moment.now_ms + lease_ms, lease_ms, moment.at_ms)
        decision = ledger.lease(
            pick, kept, terms, hosted.view(), gone=found.gone, expired=found.expired
        )
        is_over = room <= 0 or not decision.events
        return _Chosen(terms.nonce, order, kept, decision.events, is_over)

    def _leased(self, hosted: HostedLedger, found: FoundMessages, chosen: _Chosen) -> Leased:
        nonce = chosen.nonce
        self._ledgers.remember(nonce, hosted)
        failures = hosted.ledger.histories.counts_among(chosen.kept)
        name, frames = hosted.partition.name, found.frames
        traced, tag = _traces(hosted, nonce)
        return Leased(name, nonce, frames, chosen.order, failures, found.apart, traced, tag)

    def _may_lease(self, hosted: HostedLedger, wish: LeaseRequest) -> bool:
        """Tell whether the member is still there and the partition still its own."""
        if hosted.is_closed or wish.member not in wish.group.members:
            return False
        return hosted.partition.name in wish.group.partitions_of(wish.member)

    def _oldest_us(self, hosted: HostedLedger) -> int:
        """Return the time before which messages are expired, 0 where they never are."""
        ttl_ms = hosted.partition.settings.message_ttl_ms
        return (self._clock.expiry_ms(ttl_ms) - ttl_ms) * US_PER_MS if ttl_ms else 0

    async def _look_ahead(self, hosted: HostedLedger, limit: int) -> None:
        """Where keys are in order, look at the log until there is enough to choose from."""
        keys = hosted.ledger.keys
        partition = hosted.partition
        has_looked = False
        while (
            keys is not None
            and keys.looked_offset < partition.visible_offset
            and len(keys) < LOOK_AHEAD_MESSAGES_MAX
            and not hosted.ledger.has_ready_heads(hosted.view(), limit)
        ):
            if has_looked:
                # A long way, on which others have their turn.
                await asyncio.sleep(0)
            has_looked = True
            offset = max(keys.looked_offset, partition.log.start_offset, hosted.ledger.committed)
            if offset >= partition.visible_offset:
                hosted.ledger.apply(Looked(Offset(offset), Offset(offset), _NONE, _NONE))
                return
            found, following = await read_keys(self._recent, partition, Offset(offset))
            if hosted.ledger.keys is not keys or hosted.is_closed:
                return
            nothing = BitMap64()
            nothing.add_range(offset, max(following, offset + 1))
            for place in range(0, len(found.runs), 2):
                nothing.remove_range(found.runs[place], found.runs[place + 1])
            end = Offset(max(following, offset + 1))
            hosted.ledger.apply(Looked(Offset(offset), end, found.offsets(), found.numbers))
            nothing = hosted.ledger.unsettled(nothing)
            if nothing:
                # Marks, holes and what cannot be read: no key will ever settle them.
                hosted.commit([events.Dropped(offsets=runs_of(nothing), outcome=events.GONE)])


def _traces(hosted: HostedLedger, nonce: int) -> tuple[Written, int]:
    """Return which messages of a lease get the header of their trace, and what it is made of."""
    trace = hosted.partition.trace
    made = None if trace is None else trace.made(nonce)
    return (b"", 0) if trace is None or made is None else (made, trace.place.tag)
