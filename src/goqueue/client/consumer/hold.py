"""What a consumer holds: leases, messages waiting to be handed out, settlements under way.

Does no I/O and serves the synchronous and the asynchronous consumer alike. All but acks happens
under one lock, because the consuming thread and the client's loop both look after it.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from logging import getLogger
from threading import Lock
from typing import Final

from goqueue.base.errors import CorruptFrameError, GoQueueError, from_code
from goqueue.base.limits import POLL_MESSAGES_MAX
from goqueue.base.units import SECOND_MS
from goqueue.client.consumer.decode import Portion, offsets_of
from goqueue.client.consumer.delivery import Delivery, Lease, Order, Verdict
from goqueue.client.consumer.options import POLLS_MAX, ConsumerOptions, Refusal
from goqueue.client.protocol.cluster_view import MOVED
from goqueue.client.protocol.exchange import Answer, decode
from goqueue.client.protocol.fetching import FETCH_BYTES
from goqueue.wire.queue_calls import EXTEND, Polled, Settle, SettledPart

PARTS_MAX: Final = 500
"""Parts of one settlement: what is more goes in the next, so that a header stays small."""
SIZE_MAX: Final = 200_000
FORGOTTEN_AFTER_LEASES: Final = 10
"""A message nobody settled is forgotten when its lease has been over for so many times itself."""

Place = tuple[str, int]
"""A topic and a partition."""

log = getLogger("goqueue.consumer")


class Holdings:
    """Everything a consumer got and has not settled."""

    def __init__(
        self, on_refused: Callable[[Refusal], None] | None = None, *, group: str = ""
    ) -> None:
        self._group = group
        self.lease_ms = 30 * SECOND_MS
        self._is_flowing = False
        """Whether the last poll brought enough for the next to be sent before it is worked on."""
        self.polls = 0
        """Replies taken; a consumer that takes them sends its settlements with the next poll."""
        self.is_auto_commit = False
        """Whether a poll settles what earlier ones brought: nothing is then fetched ahead."""
        self.is_doubtful = False
        """Whether a reply made no sense: its connection is not to be used any more."""
        self.is_by_key = False
        """Whether the next message of a key waits for the settlement of the one before."""
        self.polls_max = POLLS_MAX
        """Polls under way at once while messages flow."""
        self.nodes = 1
        """How many nodes are polled."""
        self.extends_handed = False
        """Whether messages that were handed out are kept, too (by ``run``)."""
        # Guards everything here but the sets of open messages, which acks change without it.
        self._guard = Lock()
        self._leases: dict[tuple[str, int, int], Lease] = {}
        self._portions: deque[Portion] = deque()
        self._current: Portion | None = None
        self._again: list[Order] = []
        self._under_way: Counter[Place] = Counter()
        self._closed: dict[Place, float] = {}
        self._on_refused = on_refused
        self._refused: list[Refusal] = []
        self._refused_count = 0

    def __repr__(self) -> str:
        return f"<Holdings: {self.buffered} buffered, {len(self._leases)} leases>"

    # What comes in, and is handed out.

    def take(self, answer: Answer, *, asked_s: float, limit: int = 1) -> Polled:
        """Take the reply to a poll that was sent at a time and asked for so many messages."""
        polled = decode(answer.header, Polled)
        position = 0
        with self._guard:
            self.polls += 1
            self.lease_ms = polled.lease_ms
            deadline_s = asked_s + polled.lease_ms / SECOND_MS
            rows = 0
            for part in polled.parts:
                frames = answer.payload[position : position + part.size]
                position += part.size
                offsets = offsets_of(part.order)
                rows += len(offsets)
                lease = Lease(
                    part, offsets, guard=self._guard, deadline_s=deadline_s, group=self._group
                )
                self._leases[lease.key] = lease
                if asked_s <= self._closed.get((part.topic, part.partition), -math.inf):
                    # Asked for before the partition was given up.
                    lease.is_over = True
                    lease.release(offsets)
                else:
                    self._portions.append(Portion(lease, frames))
            enough = limit // 2 if self.is_by_key else 1
            # Large messages fill a reply long before there are many of them.
            is_full = len(answer.payload) >= FETCH_BYTES // 2
            self._is_flowing = is_full or rows >= max(enough, 1)
        return polled

    @property
    def buffered(self) -> int:
        """Return how many messages wait to be handed out."""
        current = self._current
        waiting = sum([portion.count for portion in self._portions])
        return waiting + (current.count if current is not None else 0)

    def has_room(self, options: ConsumerOptions, *, polls: int) -> bool:
        """Tell whether to ask for more while so many polls are under way."""
        if self.is_auto_commit or (self.is_by_key and not self._is_flowing):
            # Where few keys are free, what comes next waits for the settlement of what is in hand:
            # a poll that goes ahead of it finds little.
            return not polls and not self.buffered
        limit = self.poll_limit(options)
        wanted = self.buffered + (polls + 1) * limit
        is_wanted = wanted <= max(options.prefetch, limit)
        most = (self.polls_max if self._is_flowing else 1) * self.nodes
        return polls < most and is_wanted

    def poll_limit(self, options: ConsumerOptions) -> int:
        """Return how many messages to ask for: a share, while the others are on their way."""
        share = options.prefetch // (self.polls_max * self.nodes)
        return min(max(share, 1), POLL_MESSAGES_MAX)

    def next_portion(self, now_s: float) -> Portion | None:
        """Return messages to hand out: what is left of the current ones, or the next."""
        with self._guard:
            current = self._current
            if current is not None and current.count:
                if not current.lease.is_over:
                    return current
                current.lease.release(current.left())
            self._current = None
            while self._portions:
                portion = self._portions.popleft()
                if now_s < portion.lease.deadline_s and not portion.lease.is_over:
                    self._current = portion
                    return portion
                self._drop(portion)
        return None

    def open(self, portion: Portion) -> Iterator[Delivery]:
        """Return messages to hand out, or raise; what cannot be read is given back."""
        try:
            return portion.messages()
        except CorruptFrameError:
            with self._guard:
                self.is_doubtful = True
                self._current = None
                portion.lease.is_over = True
                portion.lease.release(portion.left())
            raise

    def give_up(self, portion: Portion, offset: int) -> None:
        """Give back a message that was about to be handed out."""
        with self._guard:
            portion.lease.release([offset])

    def end_current(self) -> None:
        """Hand out no more of the current messages; takes no lock."""
        current = self._current
        if current is not None:
            current.lease.is_over = True

    def release_all(self) -> None:
        """Give back everything that was not handed out."""
        with self._guard:
            for portion in self._all_portions():
                portion.lease.is_over = True
                portion.lease.release(portion.left())
            self._portions.clear()

    # Settlements.

    @property
    def has_open(self) -> bool:
        """Tell whether anything is not settled, or its settlement not answered."""
        return bool(self._leases) or bool(self._under_way) or bool(self._again)

    @property
    def is_answered(self) -> bool:
        """Tell whether every settlement that was sent has been answered."""
        return not self._under_way and not self._again

    @property
    def settled_count(self) -> int:
        """Return how many messages are settled and not sent, of leases that are all settled."""
        with self._guard:
            return sum([len(one.offsets) for one in self._leases.values() if not one.open])

    @property
    def has_news(self) -> bool:
        """Tell whether something was settled that was never sent."""
        with self._guard:
            return any(lease.has_news() for lease in self._leases.values())

    @property
    def has_unsent(self) -> bool:
        """Return True if somebody settled a message and nothing on its way says so."""
        with self._guard:
            is_failed = any(not order.is_own for order in self._again)
            return is_failed or any(lease.is_owed for lease in self._leases.values())

    def collect(self) -> list[Order]:
        """Return what is to be sent now; ``answered`` or ``failed`` must be told of it."""
        with self._guard:
            orders, self._again = self._again, []
            finished: list[Lease] = []
            for lease in self._leases.values():
                if lease.has_news():
                    orders += lease.collect()
                if lease.is_collected:
                    finished.append(lease)
            for lease in finished:
                del self._leases[lease.key]
            for order in orders:
                self._under_way[order.lease.topic, order.lease.partition] += 1
        return orders

    def answered(self, orders: Sequence[Order], settled: Sequence[SettledPart]) -> None:
        """Take what became of orders."""
        refusals: list[Refusal] = []
        with self._guard:
            self._landed(orders)
            for order, part in zip(orders, settled, strict=True):
                if part.refused and _has_moved(part):
                    if not order.until_s:
                        self._again.append(order._replace(is_repeated=True))
                elif part.refused:
                    refusals += self._refusals(
                        order,
                        [
                            (one.offset, from_code(one.failure.code, one.failure.message))
                            for one in part.refused
                        ],
                    )
                elif order.until_s:
                    order.lease.deadline_s = order.until_s
        self._report(refusals)

    def failed(self, orders: Sequence[Order], error: GoQueueError | None = None) -> None:
        """Take note that nobody knows what became of orders; without an error, send them again."""
        refusals: list[Refusal] = []
        with self._guard:
            self._landed(orders)
            for order in orders:
                if error is not None:
                    offsets = offsets_of(order.part.offsets)
                    refusals += self._refusals(order, [(offset, error) for offset in offsets])
                elif not order.until_s:
                    self._again.append(order._replace(is_repeated=True))
        self._report(refusals)

    def take_refused(self) -> tuple[int, list[Refusal]]:
        """Return how many settlements were refused since the last time, and some of them."""
        with self._guard:
            found = self._refused_count, self._refused
            self._refused_count, self._refused = 0, []
        return found

    def _landed(self, orders: Iterable[Order]) -> None:
        for order in orders:
            place = order.lease.topic, order.lease.partition
            count = self._under_way.pop(place, 0) - 1
            if count > 0:
                self._under_way[place] = count

    def _refusals(self, order: Order, refused: Sequence[tuple[int, GoQueueError]]) -> list[Refusal]:
        if order.until_s:
            # Not ours any more: what was not handed out must not be.
            order.lease.is_over = True
        if order.is_own:
            return []
        return [
            Refusal(order.part.topic, order.part.partition, offset, order.part.verb, error)
            for offset, error in refused
            # The first time it was accepted, and only its answer got lost.
            if not (order.is_repeated and error.code == "stale_receipt")
        ]

    def _report(self, refusals: list[Refusal]) -> None:
        if not refusals:
            return
        if self._on_refused is not None:
            for refusal in refusals:
                try:
                    self._on_refused(refusal)
                except Exception:
                    log.exception("on_refused failed")
            return
        with self._guard:
            self._refused_count += len(refusals)
            self._refused = (self._refused + refusals)[:PARTS_MAX]
        first = refusals[0]
        log.warning(
            "%d settlements were refused; the first: %s of %s/%d offset %d: %s",
            len(refusals),
            first.verb,
            first.topic,
            first.partition,
            first.offset,
            first.error.message,
        )

    # Time, and changes of owner.

    def keep(self, now_s: float) -> list[Order]:
        """Return extensions of what would be over soon; drop what is over."""
        lease_s = self.lease_ms / SECOND_MS
        orders: list[Order] = []
        with self._guard:
            left = {portion.lease.key: portion for portion in self._all_portions()}
            for key, lease in list(self._leases.items()):
                portion = left.get(key)
                if now_s > lease.kept_s + FORGOTTEN_AFTER_LEASES * lease_s:
                    lease.open.clear()
                    del self._leases[key]
                elif portion is not None or self.extends_handed:
                    orders += self._keep(lease, portion, now_s, lease_s)
        return orders

    def _keep(
        self, lease: Lease, portion: Portion | None, now_s: float, lease_s: float
    ) -> list[Order]:
        if now_s >= lease.deadline_s:
            if portion is not None:
                lease.is_over = True
            return []
        is_due = lease.deadline_s - now_s < lease_s / 2 and abs(now_s - lease.asked_s) > lease_s / 8
        offsets: Iterable[int] = lease.open | lease.held
        if not self.extends_handed:
            offsets = lease.open.intersection(portion.left() if portion is not None else ())
        if lease.is_over or not is_due or not offsets:
            return []
        lease.asked_s = now_s
        until_s = now_s + lease_s
        lease.kept_s = max(lease.kept_s, until_s)
        part = lease.part(EXTEND, sorted(offsets), Verdict(EXTEND, extension_ms=self.lease_ms))
        self._under_way[lease.topic, lease.partition] += 1
        return [Order(lease, part, is_own=True, until_s=until_s)]

    def revoke(self, places: Iterable[Place]) -> None:
        """Hand out nothing more of partitions; give back what was not handed out."""
        with self._guard:
            self._closed.update(dict.fromkeys(places, math.inf))
            for portion in self._all_portions():
                lease = portion.lease
                if (lease.topic, lease.partition) in self._closed:
                    # In this order: what is taken from now on is given back by who takes it.
                    lease.is_over = True
                    lease.release(portion.left())
            self._portions = deque(one for one in self._portions if not one.lease.is_over)

    def is_clear(self, places: Iterable[Place]) -> bool:
        """Tell whether nothing of partitions is in anybody's hands, and the broker knows it."""
        wanted = set(places)
        with self._guard:
            return not any(place in wanted for place in self._under_way) and not any(
                (lease.topic, lease.partition) in wanted for lease in self._leases.values()
            )

    def reopen(self, places: Iterable[Place], now_s: float) -> None:
        """Let partitions in again; replies to polls from before stay out."""
        with self._guard:
            self._closed.update(dict.fromkeys(places, now_s))

    def places(self) -> set[Place]:
        """Return the partitions of which anything is held."""
        with self._guard:
            return {(lease.topic, lease.partition) for lease in self._leases.values()}

    def _all_portions(self) -> list[Portion]:
        current = self._current
        return [*self._portions] if current is None else [current, *self._portions]

    def _drop(self, portion: Portion) -> None:
        """Forget messages whose lease is over; none of them was handed out."""
        portion.lease.is_over = True
        portion.lease.open.clear()
        self._leases.pop(portion.lease.key, None)


def _has_moved(part: SettledPart) -> bool:
    """Return True if messages were refused by a node that does not lead their partition."""
    failure = part.refused[0].failure
    return isinstance(from_code(failure.code, failure.message), MOVED)


def settlements(group: str, member: str, orders: list[Order]) -> list[tuple[Settle, list[Order]]]:
    """Return orders as requests of a bearable size."""
    found: list[tuple[Settle, list[Order]]] = []
    batch: list[Order] = []
    size = 0
    for order in orders:
        batch.append(order)
        size += 100 + 4 * len(order.part.reason) + 9 * len(order.part.offsets)
        if len(batch) >= PARTS_MAX or size >= SIZE_MAX:
            found.append((Settle(group, member, [one.part for one in batch]), batch))
            batch, size = [], 0
    if batch:
        found.append((Settle(group, member, [one.part for one in batch]), batch))
    return found
