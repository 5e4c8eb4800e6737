"""The orders of a shop, made from a seed: most are fine, some come twice, late or broken.

Shape: calculator. The same seed makes the same orders in the same order; only their times are those
of the caller.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, TypeVar

import msgspec

from examples.demo.times import DAY_US, HOUR_US, write_time_us

Choice = TypeVar("Choice", bound=StrEnum)

CUSTOMERS: Final = 5_000
RECENT: Final = 200
"""Orders among which one that comes again is chosen."""
LATE_MS_MAX: Final = 180_000


class Kind(StrEnum):
    """What is the matter with an order."""

    GOOD = "good"
    LATE = "late"
    """It was made minutes ago; still in time for its window."""
    DUPLICATE = "duplicate"
    """The same message as one before."""
    GARBLED = "garbled"
    """No JSON at all."""
    NAMELESS = "nameless"
    """Without a customer."""
    NEGATIVE = "negative"
    """Of fewer than one piece."""
    OUTDATED = "outdated"
    """It was made a day ago."""
    FUTURE = "future"
    """It says that it was made tomorrow."""


class Card(StrEnum):
    """What becomes of the payment."""

    GOOD = "good"
    FLAKY = "flaky"
    """It fails at the first try."""
    REFUSED = "refused"
    """It fails at every try."""


SHARES: Final = {
    Kind.GOOD: 900,
    Kind.LATE: 40,
    Kind.DUPLICATE: 30,
    Kind.GARBLED: 8,
    Kind.NAMELESS: 6,
    Kind.NEGATIVE: 8,
    Kind.OUTDATED: 4,
    Kind.FUTURE: 4,
}
"""How many of a thousand orders are of each kind."""
CARD_SHARES: Final = {Card.GOOD: 955, Card.FLAKY: 35, Card.REFUSED: 10}

assert sum(SHARES.values()) == sum(CARD_SHARES.values()) == 1_000  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class Product:
    """Something the shop sells."""

    product: str
    name: str
    category: str
    price_cents: int


PRODUCTS: Final[Sequence[Product]] = tuple(
    Product(f"p{number:02d}", name, category, price_cents)
    for number, (name, category, price_cents) in enumerate(
        (
            ("novel", "books", 1_190),
            ("atlas", "books", 3_900),
            ("comic", "books", 690),
            ("espresso cup", "kitchen", 850),
            ("kettle", "kitchen", 4_490),
            ("knife", "kitchen", 5_900),
            ("chess set", "games", 2_990),
            ("dice", "games", 390),
            ("desk lamp", "home", 3_490),
            ("blanket", "home", 2_750),
            ("seeds", "garden", 290),
            ("watering can", "garden", 1_850),
        )
    )
)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order as it is published. ``ordered_at`` is the shop's time, not the broker's."""

    id: int
    customer: str | None
    product: str
    quantity: int
    card: str
    ordered_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message to be published."""

    kind: Kind
    key: bytes
    value: bytes


class Shop:
    """Makes orders, one at a time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - repeatable, not secret
        self._number = 0
        self._recent: deque[Published] = deque(maxlen=RECENT)
        self.tally: Counter[Kind] = Counter()
        """How many of each kind were made."""

    def __repr__(self) -> str:
        return f"<Shop: {self.tally.total()} orders>"

    def next(self, now_us: int) -> Published:
        """Return the next message; times are told from ``now_us``."""
        kind = self._chosen(SHARES)
        if kind is Kind.DUPLICATE and not self._recent:
            kind = Kind.GOOD
        made = self._again() if kind is Kind.DUPLICATE else self._new(kind, now_us)
        if kind in {Kind.GOOD, Kind.LATE}:
            self._recent.append(made)
        self.tally[kind] += 1
        return made

    def _again(self) -> Published:
        before = self._random.choice(self._recent)
        return Published(kind=Kind.DUPLICATE, key=before.key, value=before.value)

    def _new(self, kind: Kind, now_us: int) -> Published:
        self._number += 1
        random = self._random
        customer = f"c{random.randrange(CUSTOMERS):04d}"
        order = Order(
            id=self._number,
            customer=None if kind is Kind.NAMELESS else customer,
            product=random.choice(PRODUCTS).product,
            quantity=-1 if kind is Kind.NEGATIVE else random.randint(1, 4),
            card=self._chosen(CARD_SHARES),
            ordered_at=write_time_us(now_us - self._age_us(kind)),
        )
        value = msgspec.json.encode(order)
        if kind is Kind.GARBLED:
            value = value[: random.randrange(2, len(value) - 2)]
        return Published(kind=kind, key=customer.encode(), value=value)

    def _age_us(self, kind: Kind) -> int:
        late_us = self._random.randint(1_000, LATE_MS_MAX) * 1_000
        ages = {Kind.LATE: late_us, Kind.OUTDATED: DAY_US + HOUR_US, Kind.FUTURE: -DAY_US}
        return ages.get(kind, 0)

    def _chosen(self, shares: Mapping[Choice, int]) -> Choice:
        return self._random.choices(list(shares), list(shares.values()))[0]
