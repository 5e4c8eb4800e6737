"""The books of the demonstration: what went in, where it is now, and whether that adds up.

Shape: calculator. Rows are told to the books one by one, as they are read back; no figure comes
from those who did the work. Sets of ids and of offsets tell not only how many, but which.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyroaring import BitMap64

from examples.demo.judgement import Fault, fault_of, is_billable, read_order

Window = tuple[str, str]
"""When a window begins, and a category."""


class Places:
    """A set of places in a topic: partitions and offsets."""

    def __init__(self) -> None:
        self._offsets: defaultdict[int, BitMap64] = defaultdict(BitMap64)

    def __repr__(self) -> str:
        return f"<Places: {len(self)}>"

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and dict(self._offsets) == dict(other._offsets)

    __hash__ = None  # type: ignore[assignment]

    def add(self, partition: int, offset: int) -> None:
        """Put a place in."""
        self._offsets[partition].add(offset)


@dataclass(slots=True)
class Intake:
    """The topic of orders, judged message by message."""

    rows: int = 0
    ids: BitMap64 = field(default_factory=BitMap64)
    """Orders without a fault."""
    sound_rows: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    faulty: Places = field(default_factory=Places)
    bills: BitMap64 = field(default_factory=BitMap64)
    """Orders that end with an invoice."""
    bill_rows: int = 0
    unbillable: Places = field(default_factory=Places)

    def add(self, partition: int, offset: int, *, timestamp_us: int, value: bytes | None) -> None:
        """Take a message into account."""
        self.rows += 1
        order = read_order(value)
        fault = fault_of(order, published_us=timestamp_us)
        if fault is not None:
            self.faults[fault] += 1
            self.faulty.add(partition, offset)
        elif order is not None:
            self.sound_rows += 1
            self.ids.add(order.id)
        if order is not None and is_billable(order, fault):
            self.bill_rows += 1
            self.bills.add(order.id)
        else:
            self.unbillable.add(partition, offset)

    @property
    def duplicates(self) -> int:
        """Rows the pipeline is to drop."""
        return self.sound_rows - len(self.ids)

    @property
    def billed_again(self) -> int:
        """Rows the group is to settle without an invoice."""
        return self.bill_rows - len(self.bills)


@dataclass(slots=True)
class Outlet:
    """Orders somewhere behind: in a topic, in the lake, as invoices."""

    rows: int = 0
    ids: BitMap64 = field(default_factory=BitMap64)
    amount_cents: int = 0
    windows: Counter[Window] = field(default_factory=Counter)

    def add(self, number: int, *, amount_cents: int = 0, window: Window | None = None) -> None:
        """Take a row into account."""
        self.rows += 1
        self.ids.add(number)
        self.amount_cents += amount_cents
        if window is not None:
            self.windows[window] += 1


@dataclass(slots=True)
class Aside:
    """Messages that were put aside: quarantined, or dead letters. Places are where they were."""

    rows: int = 0
    places: Places = field(default_factory=Places)

    def add(self, partition: int, offset: int) -> None:
        """Take a message into account."""
        self.rows += 1
        self.places.add(partition, offset)


@dataclass(slots=True)
class Totals:
    """The last message of each window and category."""

    windows: dict[Window, tuple[int, int]] = field(default_factory=dict)
    """Orders and what they are worth."""

    def add(self, window: Window, *, orders: int, amount_cents: int) -> None:
        """Take a message into account; the next one of its key takes its place."""
        self.windows[window] = (orders, amount_cents)

    @property
    def orders(self) -> int:
        """Orders in all windows."""
        return sum(orders for orders, _ in self.windows.values())

    @property
    def amount_cents(self) -> int:
        """What they are worth."""
        return sum(cents for _, cents in self.windows.values())


@dataclass(slots=True, kw_only=True)
class Books:
    """Everything that was read back. The pipeline's part stays empty where there was none."""

    acknowledged: int
    intake: Intake = field(default_factory=Intake)
    invoices: Outlet = field(default_factory=Outlet)
    dead: Aside = field(default_factory=Aside)
    unsettled: int = 0
    """Messages the group has neither acked nor given up."""
    has_pipeline: bool = True
    clean: Outlet = field(default_factory=Outlet)
    lake: Outlet = field(default_factory=Outlet)
    quarantine: Aside = field(default_factory=Aside)
    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must be so."""

    name: str
    expected: int
    found: int
    is_same: bool
    """Whether they are the same ones, not only as many."""

    @property
    def is_ok(self) -> bool:
        """Tell whether it is so."""
        return self.is_same and self.expected == self.found


def reconcile(books: Books) -> list[Check]:
    """Return everything that must be so, and whether it is."""
    intake = books.intake
    checks = [
        _check("acknowledged orders are in the topic", books.acknowledged, intake.rows),
        _check("every billable order has one invoice", intake.bills, books.invoices.ids),
        _check("no order has two invoices", len(intake.bills), books.invoices.rows),
        _check("what failed for good is a dead letter", intake.unbillable, books.dead.places),
        _check("no dead letter is there twice", len(intake.unbillable), books.dead.rows),
        _check("the group has settled everything", 0, books.unsettled),
        _check(
            "group: in = invoices + repeats + dead letters",
            intake.rows,
            books.invoices.rows + intake.billed_again + books.dead.rows,
        ),
    ]
    return checks + (_pipeline_checks(books) if books.has_pipeline else [])


def _pipeline_checks(books: Books) -> list[Check]:
    intake, clean, lake = books.intake, books.clean, books.lake
    counted = {window: orders for window, (orders, _) in books.totals.windows.items()}
    return [
        _check("every sound order is in the clean topic", intake.ids, clean.ids),
        _check("none is in the clean topic twice", len(intake.ids), clean.rows),
        _check("the lake has the same orders", clean.ids, lake.ids),
        _check("none is in the lake twice", clean.rows, lake.rows),
        _check("the lake is worth as much, in cents", clean.amount_cents, lake.amount_cents),
        _check("what breaks a rule is in quarantine", intake.faulty, books.quarantine.places),
        _check("none is in quarantine twice", len(intake.faulty), books.quarantine.rows),
        Check(
            name="the totals count every clean order",
            expected=clean.rows,
            found=books.totals.orders,
            is_same=counted == clean.windows,
        ),
        _check(
            "the totals are worth as much, in cents", clean.amount_cents, books.totals.amount_cents
        ),
        _check(
            "pipeline: in = clean + repeats + quarantined",
            intake.rows,
            clean.rows + intake.duplicates + books.quarantine.rows,
        ),
    ]


def _check(name: str, expected: BitMap64 | Places | int, found: BitMap64 | Places | int) -> Check:
    if isinstance(expected, int) or isinstance(found, int):
        assert isinstance(expected, int), "numbers are compared with numbers"
        assert isinstance(found, int), "numbers are compared with numbers"
        return Check(name=name, expected=expected, found=found, is_same=expected == found)
    return Check(name=name, expected=len(expected), found=len(found), is_same=expected == found)


def where_rows_went(books: Books) -> Mapping[str, Mapping[str, int]]:
    """Return for each who works on the orders how many ended where."""
    intake = books.intake
    group = {
        "invoices": books.invoices.rows,
        "repeats": intake.billed_again,
        "dead letters": books.dead.rows,
    }
    if not books.has_pipeline:
        return {"group": group}
    pipeline = {
        "clean": books.clean.rows,
        "repeats": intake.duplicates,
        "quarantined": books.quarantine.rows,
    }
    return {"group": group, "pipeline": pipeline}
