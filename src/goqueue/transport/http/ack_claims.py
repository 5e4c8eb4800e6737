"""From receipts to the leases they belong to: receipts of one lease are settled together."""

from collections.abc import Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import (
    GoQueueError,
    InvalidReceiptError,
    StaleReceiptError,
    UnknownReceiptError,
)
from goqueue.core.delivery.receipt import Receipt, parse_receipt
from goqueue.runtime.consume import Settlement
from goqueue.runtime.hosted_ledger import HostedLedger
from goqueue.runtime.ledgers import Ledgers


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


class Misfit(NamedTuple):
    """A receipt that settles nothing, by its place."""

    place: int
    error: GoQueueError


def parse_all(texts: Sequence[str | None], field: str) -> list[Receipt]:
    """Read receipts; a bad one refuses them all and is named by its place."""
    receipts: list[Receipt] = []
    for place, text in enumerate(texts):
        try:
            receipts.append(parse_receipt(text))
        except InvalidReceiptError as error:
            raise InvalidReceiptError(f"{field}[{place}]: {error.message}") from error
    return receipts


def find_home(ledgers: Ledgers, receipt: Receipt) -> HostedLedger:
    """Return the ledger that gave out a receipt, or raise: no delivery has it."""
    hosted = ledgers.home_of(receipt.nonce)
    if hosted is None or hosted.partition.name != (receipt.topic, receipt.partition):
        raise UnknownReceiptError("no delivery has this receipt")
    if not _is_counted_right(hosted, receipt):
        raise UnknownReceiptError("no delivery has this receipt")
    return hosted


def _is_counted_right(hosted: HostedLedger, receipt: Receipt) -> bool:
    """Tell that a receipt names the delivery under way, if it names one under way at all."""
    ledger = hosted.ledger
    lease = ledger.leases.get(receipt.nonce)
    if lease is None or receipt.offset not in lease.offsets:
        return True
    return receipt.delivery_count == ledger.histories.count(receipt.offset) + 1


def claim_all(
    ledgers: Ledgers, receipts: Sequence[Receipt], terms: Sequence[Terms]
) -> tuple[list[Claim], list[Misfit]]:
    """Return the receipts by lease, and those that belong to none."""
    claims: dict[tuple[int, Terms], Claim] = {}
    misfits: list[Misfit] = []
    for place, (receipt, own) in enumerate(zip(receipts, terms, strict=True)):
        try:
            hosted = find_home(ledgers, receipt)
        except UnknownReceiptError as error:
            misfits.append(Misfit(place, error))
            continue
        key = (receipt.nonce, own)
        claim = claims.get(key)
        if claim is None:
            claim = claims[key] = Claim(hosted, receipt.nonce, own, {})
        if receipt.offset in claim.places:
            twice = StaleReceiptError(f"offset {receipt.offset} is settled by the same request")
            misfits.append(Misfit(place, twice))
            continue
        claim.places[receipt.offset] = place
    return list(claims.values()), misfits
