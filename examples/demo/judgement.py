"""What should become of a message, judged by itself: the pipeline and the group are held to this.

Shape: calculator. It is written apart from the rules of the pipeline on purpose: what two say who
do not know each other is worth comparing.
"""

from enum import StrEnum
from typing import Final

import msgspec

from examples.demo.orders import Card, Order
from examples.demo.times import MINUTE_US, read_time_us

LATE_US_MAX: Final = 10 * MINUTE_US
EARLY_US_MAX: Final = MINUTE_US

_decode: Final = msgspec.json.Decoder(Order).decode


class Fault(StrEnum):
    """Why the pipeline puts an order aside; the names of its rules."""

    UNREADABLE = "readable"
    NAMELESS = "has a customer"
    NEGATIVE = "positive quantity"
    OUTDATED = "in time"
    FUTURE = "not from the future"


UNBILLABLE: Final = frozenset({Fault.UNREADABLE, Fault.NAMELESS, Fault.NEGATIVE})
"""With these nobody can be sent an invoice, either."""


def read_order(value: bytes | None) -> Order | None:
    """Return the order in a message, None if there is none."""
    try:
        return _decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def fault_of(order: Order | None, *, published_us: int) -> Fault | None:
    """Return what is wrong with an order."""
    if order is None:
        return Fault.UNREADABLE
    if order.customer is None:
        return Fault.NAMELESS
    if order.quantity <= 0:
        return Fault.NEGATIVE
    age_us = published_us - read_time_us(order.ordered_at)
    if age_us >= LATE_US_MAX:
        return Fault.OUTDATED
    return Fault.FUTURE if -age_us >= EARLY_US_MAX else None


class Bill(StrEnum):
    """What the billing group does with a message."""

    CHARGE = "charge"
    KNOWN = "known"
    """It was charged before: the order came twice."""
    RETRY = "retry"
    REJECT = "reject"


def bill(order: Order | None, fault: Fault | None, *, delivery_count: int, is_known: bool) -> Bill:
    """Return what to do with a delivery."""
    if order is None or fault in UNBILLABLE:
        return Bill.REJECT
    if order.card == Card.REFUSED:
        return Bill.RETRY
    if is_known:
        return Bill.KNOWN
    return Bill.RETRY if order.card == Card.FLAKY and delivery_count == 1 else Bill.CHARGE


def is_billable(order: Order | None, fault: Fault | None) -> bool:
    """Tell whether an order ends with an invoice, however many tries it takes."""
    return order is not None and fault not in UNBILLABLE and order.card != Card.REFUSED
