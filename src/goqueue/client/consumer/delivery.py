"""A message in the hands of a consumer, and the lease it is held under.

An ack costs one removal from a set: no lock, no object, nothing is sent. What was acked is found
later, many at once, as what is missing from the set (see ``Lease.collect``).
"""

import time
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

from goqueue.base.errors import InvalidRequestError, StaleReceiptError
from goqueue.base.limits import EXTENSION_MS_MAX, RETRY_DELAY_MS_MAX
from goqueue.base.units import SECOND_MS, parse_duration_ms
from goqueue.core.delivery.receipt import Receipt
from goqueue.core.delivery.runs import Written, runs_in
from goqueue.core.record.message import Message
from goqueue.wire.queue_calls import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    RELEASE,
    PolledPart,
    SettlePart,
)

REASON_CHARACTERS_MAX: Final = 1_000

Duration = str | float
"""``"5s"``, ``"1m30s"``, or a number of seconds."""


def duration_ms(value: Duration, *, name: str, most_ms: int, least_ms: int = 0) -> int:
    """Read a duration, or raise naming the argument."""
    try:
        if isinstance(value, str):
            found = parse_duration_ms(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found = int(value * SECOND_MS)
        else:
            raise ValueError('write "5s" or a number of seconds')  # noqa: TRY004, TRY301 - one kind
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"{name}: {error}") from error
    if not least_ms <= found <= most_ms:
        raise InvalidRequestError(f"{name}: {value!r} is not between {least_ms} and {most_ms} ms")
    return found


class Verdict(NamedTuple):
    """What is to become of a message that is not simply acked."""

    verb: str
    reason: str = ""
    delay_ms: int | None = None
    extension_ms: int | None = None


class Order(NamedTuple):
    """A part of a settlement, as it is sent: of which lease, and whether anybody asked for it."""

    lease: "Lease"
    part: SettlePart
    is_repeated: bool = False
    is_own: bool = False
    """Made by the consumer itself, to keep or give back what was not handed out."""
    until_s: float = 0.0
    """Until when an extension lasts, on the monotonic clock."""


class Lease:
    """The messages a consumer got of one partition in one poll."""

    __slots__ = (
        "_guard",
        "_known",
        "_verdicts",
        "asked_s",
        "deadline_s",
        "failures",
        "gathered",
        "group",
        "held",
        "is_over",
        "kept_s",
        "nonce",
        "offsets",
        "open",
        "order",
        "partition",
        "tag",
        "topic",
        "traced",
    )

    def __init__(
        self,
        part: PolledPart,
        offsets: Sequence[int],
        *,
        guard: Lock,
        deadline_s: float,
        group: str = "",
    ) -> None:
        self.group = group
        self.topic = part.topic
        self.partition = part.partition
        self.nonce = part.nonce
        self.order: Written = part.order
        self.offsets = offsets
        """In the order in which they are handed out."""
        self.failures = dict(part.failures)
        self.gathered = part.gathered
        """Offsets of the messages in the last frame, where they are not those it says itself."""
        self.traced = part.traced
        """Runs of the messages that get the header of a trace, made of ``tag``."""
        self.tag = part.tag
        self.deadline_s = deadline_s
        """Until when what was not handed out is ours, on the monotonic clock."""
        self.asked_s = deadline_s
        """When more time was last asked for."""
        self.kept_s = deadline_s
        """Until when somebody may hold a message of it in good faith."""
        self.is_over = False
        """Nothing more of it may be handed out."""
        self.open = set(offsets)
        """Messages that are not settled. Whoever removes one has settled it."""
        self.held: set[int] = set()
        """Messages that an open transaction settles, or does not."""
        self._known: set[int] | None = None
        self._verdicts: list[tuple[int, Verdict]] = []
        # Held by all but acks: a verdict and the removal that goes with it are seen together.
        self._guard = guard

    def __repr__(self) -> str:
        return f"<Lease of {self.topic}/{self.partition}: {len(self.open)} open>"

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from others."""
        return self.topic, self.partition, self.nonce

    def settle(self, offset: int, verdict: Verdict) -> None:
        """Settle a message in another way than by an ack."""
        with self._guard:
            if offset not in self.open:
                raise StaleReceiptError(f"offset {offset} is already settled")
            self._verdicts.append((offset, verdict))
            if verdict.extension_ms is not None:
                self.kept_s = max(self.kept_s, time.monotonic() + verdict.extension_ms / SECOND_MS)
                return
            try:
                self.open.remove(offset)
            except KeyError:
                # Somebody acked it meanwhile.
                self._verdicts.pop()
                raise StaleReceiptError(f"offset {offset} is already settled") from None

    def hold(self, offset: int) -> None:
        """Leave a message to a transaction: it is not collected, and cannot be settled here."""
        with self._guard:
            if self._known is None:
                self._known = set(self.offsets)
            try:
                self.open.remove(offset)
            except KeyError:
                raise StaleReceiptError(f"offset {offset} is already settled") from None
            self._known.discard(offset)
            self.held.add(offset)

    def let_go(self, offsets: Sequence[int]) -> None:
        """Forget messages the broker holds for a transaction."""
        with self._guard:
            self.held.difference_update(offsets)

    def take_back(self, offsets: Sequence[int]) -> None:
        """Have messages in hand again that a transaction did not settle."""
        with self._guard:
            returned = self.held.intersection(offsets)
            self.held -= returned
            if self._known is not None:
                self._known |= returned
            self.open |= returned

    def release(self, offsets: Sequence[int]) -> None:
        """Give back messages that were not handed out. Call with the guard held."""
        for offset in offsets:
            if offset in self.open:
                self.open.discard(offset)
                self._verdicts.append((offset, Verdict(RELEASE)))

    def has_news(self) -> bool:
        """Tell whether something was settled since the last collection."""
        known = self._known
        count = len(self.offsets) if known is None else len(known)
        return len(self.open) != count or bool(self._verdicts)

    @property
    def is_owed(self) -> bool:
        """Return True if somebody settled a message of it since the last collection."""
        known = self._known
        settled = (len(self.offsets) if known is None else len(known)) - len(self.open)
        return settled > sum(verdict.verb == RELEASE for _, verdict in self._verdicts)

    @property
    def is_collected(self) -> bool:
        """Tell whether everything was settled and nothing is left to collect."""
        is_settled = self._known is not None and not self._known and not self.held
        return is_settled and not self._verdicts

    def collect(self) -> list[Order]:
        """Return what was settled since the last time. Call with the guard held."""
        verdicts, self._verdicts = self._verdicts, []
        # Copied in one step: an ack may come at any moment.
        still = self.open.copy()
        known, self._known = self._known, still
        if known is None and not still and not verdicts:
            return [Order(self, self.part(ACK, self.offsets))]
        orders = [
            Order(self, self.part(verdict.verb, offsets, verdict), is_own=verdict.verb == RELEASE)
            for verdict, offsets in _by_verdict(verdicts).items()
        ]
        acked = (set(self.offsets) if known is None else known) - still
        acked.difference_update(offset for offset, verdict in verdicts if verdict.verb != EXTEND)
        if acked:
            orders.append(Order(self, self.part(ACK, sorted(acked))))
        return orders

    def part(self, verb: str, offsets: Sequence[int], verdict: Verdict | None = None) -> SettlePart:
        """Return a part of a settlement."""
        runs: Written
        if isinstance(offsets, range):
            runs = [offsets.start, offsets.stop]
        elif offsets is self.offsets and isinstance(self.order, bytes):
            runs = self.order
        else:
            runs = runs_in(sorted(offsets))
        if verdict is None:
            return SettlePart(self.topic, self.partition, self.nonce, verb, runs)
        return SettlePart(
            self.topic,
            self.partition,
            self.nonce,
            verb,
            runs,
            verdict.reason,
            verdict.delay_ms,
            verdict.extension_ms,
        )


def _by_verdict(verdicts: list[tuple[int, Verdict]]) -> dict[Verdict, list[int]]:
    found: dict[Verdict, list[int]] = {}
    for offset, verdict in verdicts:
        found.setdefault(verdict, []).append(offset)
    return {verdict: sorted(set(offsets)) for verdict, offsets in found.items()}


class Delivery(Message, frozen=True, gc=False):
    """A message that was delivered: settle it with ``ack``, ``nack`` or ``reject``."""

    lease: Lease = None  # type: ignore[assignment]
    """What it is held under; settling goes through the methods."""

    @property
    def delivery_count(self) -> int:
        """How often the message was delivered, this time included."""
        return self.lease.failures.get(self.offset, 0) + 1

    @property
    def receipt(self) -> str:
        """The text that names this delivery, also over HTTP."""
        return str(
            Receipt(self.topic, self.partition, self.offset, self.delivery_count, self.lease.nonce)
        )

    @property
    def is_settled(self) -> bool:
        """Tell whether it was acked, nacked or rejected here."""
        return self.offset not in self.lease.open

    def ack(self) -> None:
        """Settle the message: it is done. Sent soon, with others."""
        try:
            self.lease.open.remove(self.offset)
        except KeyError:
            raise StaleReceiptError(f"offset {self.offset} is already settled") from None

    def nack(self, delay: Duration | None = None, reason: str = "") -> None:
        """Give the message back: it is tried again after a delay, the group's backoff if None."""
        delay_ms = (
            None if delay is None else duration_ms(delay, name="delay", most_ms=RETRY_DELAY_MS_MAX)
        )
        self.lease.settle(self.offset, Verdict(NACK, str(reason)[:REASON_CHARACTERS_MAX], delay_ms))

    def reject(self, reason: str = "") -> None:
        """Send the message to the dead letters: trying again is no use."""
        self.lease.settle(self.offset, Verdict(REJECT, str(reason)[:REASON_CHARACTERS_MAX]))

    def extend(self, seconds: Duration) -> None:
        """Ask for so much time from now on."""
        extension_ms = duration_ms(seconds, name="seconds", most_ms=EXTENSION_MS_MAX, least_ms=1)
        self.lease.settle(self.offset, Verdict(EXTEND, extension_ms=extension_ms))
