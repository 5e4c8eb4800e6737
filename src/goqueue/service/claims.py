"""From receipts to the leases they belong to: receipts of one lease are settled together."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import (
    GoQueueError,
    InvalidReceiptError,
    StaleReceiptError,
    UnknownReceiptError,
)
from goqueue.base.ids import TopicPartition
from goqueue.core.delivery.receipt import Receipt, parse_receipt
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.ledgers import Ledgers
from goqueue.runtime.queue.settlements import Settlement

OFFSET_DIGITS: Final = 18
"""So many digits are always an offset; longer ones are looked at more closely."""


class Terms(NamedTuple):
    """What is to become of a message, beside the verb."""

    reason: str = ""
    delay_ms: int | None = None
    extension_ms: int | None = None


class Claim(NamedTuple):
    """Messages of one lease under the same terms, and where each is in the request."""

    hosted: HostedLedger
    nonce: int
    terms: Terms
    places: dict[int, int]

    @property
    def member(self) -> str | None:
        """Return who holds the lease, if it still goes on."""
        lease = self.hosted.ledger.leases.get(self.nonce)
        return None if lease is None else lease.member

    def settlement(self, verb: str) -> Settlement:
        """Return what is asked of the broker."""
        return Settlement(
            partition=self.hosted.partition.name,
            nonce=self.nonce,
            verb=verb,
            offsets=BitMap64(list(self.places)),
            reason=self.terms.reason,
            delay_ms=self.terms.delay_ms,
            extension_ms=self.terms.extension_ms,
        )


class ClaimPart(NamedTuple):
    """Receipts of one lease under the same terms, as they travel between nodes."""

    receipt: Receipt
    """One of them; the others differ in the offset."""
    terms: Terms
    offsets: list[int]
    places: list[int]
    """Where each is in the request."""


class Misfit(NamedTuple):
    """A receipt that settles nothing, by its place."""

    place: int
    error: GoQueueError


def find_home(ledgers: Ledgers, receipt: Receipt) -> HostedLedger:
    """Return the ledger that gave out a receipt, or raise: no delivery has it."""
    hosted = ledgers.home_of(receipt.nonce, TopicPartition(*receipt[:2]))
    if hosted is None:
        raise UnknownReceiptError("no delivery has this receipt")
    if _miscounted(hosted, receipt, [receipt.offset]):
        raise UnknownReceiptError("no delivery has this receipt")
    return hosted


def _miscounted(hosted: HostedLedger, receipt: Receipt, offsets: Sequence[int]) -> list[int]:
    """Return the offsets that are leased, but not for the time the receipt says."""
    ledger = hosted.ledger
    lease = ledger.leases.get(receipt.nonce)
    if lease is None or (receipt.delivery_count == 1 and not ledger.histories.offsets):
        return []
    failures = receipt.delivery_count - 1
    count = ledger.histories.count
    return [one for one in offsets if one in lease.offsets and count(one) != failures]


def _around(receipt: Receipt) -> tuple[str, str]:
    """Return what is before the offset in the receipts of a lease, and what is behind it."""
    return (
        f"{receipt.topic}:{receipt.partition}:",
        f":{receipt.delivery_count}:{receipt.nonce:016x}",
    )


class Claims:
    """Gathers receipts, those of one lease together; a bad one refuses them all."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._bundles: dict[tuple[str, str, Terms], tuple[Receipt, dict[int, int]]] = {}
        self._misfits: list[Misfit] = []

    def gather(self, texts: Sequence[str | None], terms: Sequence[Terms]) -> None:
        """Read receipts. Neighbours mostly differ in nothing but the offset."""
        start = end = ""
        before: Terms | None = None
        places: dict[int, int] = {}
        for place, (text, own) in enumerate(zip(texts, terms, strict=True)):
            digits = ""
            if text and own is before and text.startswith(start) and text.endswith(end):
                digits = text[len(start) : -len(end)]
            if not (digits.isdigit() and digits.isascii() and len(digits) <= OFFSET_DIGITS):
                receipt = self._parse(text, place)
                digits = str(receipt.offset)
                start, end = _around(receipt)
                before = own
                places = self._bundles.setdefault((start, end, own), (receipt, {}))[1]
            offset = int(digits)
            if offset in places:
                twice = StaleReceiptError(f"offset {offset} is settled by the same request")
                self._misfits.append(Misfit(place, twice))
            else:
                places[offset] = place

    def gather_alike(self, texts: Sequence[str], terms: Terms) -> None:
        """Read receipts under the same terms; those of neighbours in one lease in one go."""
        receipt = self._parse(texts[0], 0)
        start, end = _around(receipt)
        line, count = "\n".join(texts), len(texts)
        between = f"{end}\n{start}"
        # Mostly they follow one another, and then it is enough to write down what they must be.
        run = range(receipt.offset, receipt.offset + count)
        if line == f"{start}{between.join(map(str, run))}{end}":
            self._bundles[start, end, terms] = (receipt, dict(zip(run, range(count), strict=True)))
            return
        self.gather(texts, [terms] * len(texts))

    def _parse(self, text: str | None, place: int) -> Receipt:
        try:
            return parse_receipt(text)
        except InvalidReceiptError as error:
            raise InvalidReceiptError(f"{self._field}[{place}]: {error.message}") from error

    def parts(self) -> list[ClaimPart]:
        """Return the receipts by lease, for the nodes they belong to."""
        return [
            ClaimPart(receipt, terms, list(places), list(places.values()))
            for (_, _, terms), (receipt, places) in self._bundles.items()
        ]

    @property
    def misfits(self) -> Sequence[Misfit]:
        """Those that settle nothing, whatever the node says they belong to."""
        return self._misfits

    @classmethod
    def of(cls, field: str, parts: Sequence[ClaimPart]) -> "Claims":
        """Return receipts that were read by another node."""
        claims = cls(field)
        for receipt, terms, offsets, places in parts:
            known = dict(zip(offsets, places, strict=False))
            claims._bundles[*_around(receipt), terms] = (receipt, known)
        return claims

    def sort_out(self, ledgers: Ledgers) -> tuple[list[Claim], list[Misfit]]:
        """Return the receipts by lease, and those that belong to none."""
        claims: list[Claim] = []
        unknown: list[int] = []
        for (_, _, terms), (receipt, places) in self._bundles.items():
            hosted = ledgers.home_of(receipt.nonce, TopicPartition(*receipt[:2]))
            if hosted is None:
                unknown += places.values()
                continue
            unknown += [places.pop(one) for one in _miscounted(hosted, receipt, list(places))]
            if places:
                claims.append(Claim(hosted, receipt.nonce, terms, places))
        error = UnknownReceiptError("no delivery has this receipt")
        return claims, self._misfits + [Misfit(place, error) for place in unknown]
