"""The books of the demonstration: they add up when every row is where it should be, else not."""

from collections.abc import Callable

import pytest

from examples.demo.books import Books, Check, reconcile, where_rows_went
from examples.demo.judgement import fault_of, is_billable, read_order
from examples.demo.orders import PRODUCTS, Shop
from examples.demo.readback import window_of
from examples.demo.times import read_time_us
from examples.demo.trace import Trace, percentile

NOW_US = 1_800_000_000_000_000
PRICES = {one.product: one for one in PRODUCTS}


def honest_books(count: int = 3_000) -> Books:
    """Return the books of a run in which everybody did the right thing."""
    books = Books(acknowledged=count)
    shop = Shop(5)
    billed: set[int] = set()
    for offset in range(count):
        time_us = NOW_US + offset * 1_000
        made = shop.next(time_us)
        books.intake.add(offset % 3, offset, timestamp_us=time_us, value=made.value)
        order = read_order(made.value)
        fault = fault_of(order, published_us=time_us)
        if order is None or not is_billable(order, fault):
            books.dead.add(offset % 3, offset)
        elif order.id not in billed:
            billed.add(order.id)
            books.invoices.add(order.id)
        if fault is not None:
            books.quarantine.add(offset % 3, offset)
        elif order is not None and order.id not in books.clean.ids:
            product = PRICES[order.product]
            cents = order.quantity * product.price_cents
            window = (window_of(read_time_us(order.ordered_at)), product.category)
            books.clean.add(order.id, amount_cents=cents, window=window)
            books.lake.add(order.id, amount_cents=cents)
            orders, sum_cents = books.totals.windows.get(window, (0, 0))
            books.totals.add(window, orders=orders + 1, amount_cents=sum_cents + cents)
    return books


def broken(books: Books) -> list[Check]:
    return [check for check in reconcile(books) if not check.is_ok]


def test_honest_books_add_up() -> None:
    """Every row in is out, put aside or a repeat, for the group and for the pipeline."""
    books = honest_books()
    went = where_rows_went(books)

    assert broken(books) == []
    assert sum(went["group"].values()) == sum(went["pipeline"].values()) == 3_000
    assert all(count > 0 for rows in went.values() for count in rows.values())


def lose_a_clean_order(books: Books) -> None:
    books.clean.rows -= 1
    books.clean.ids.discard(min(books.clean.ids))


def write_an_order_twice(books: Books) -> None:
    books.clean.add(min(books.clean.ids))


def swap_an_order_in_the_lake(books: Books) -> None:
    books.lake.ids.discard(min(books.lake.ids))
    books.lake.ids.add(10_000_000)


def forget_a_cent(books: Books) -> None:
    books.lake.amount_cents -= 1


def invoice_twice(books: Books) -> None:
    books.invoices.add(min(books.invoices.ids))


def bury_another_one(books: Books) -> None:
    books.dead.rows -= 1
    books.dead.add(0, 10_000_000)


def quarantine_one_too_many(books: Books) -> None:
    books.quarantine.add(1, 10_000_000)


def count_in_another_window(books: Books) -> None:
    (first, (orders, cents)), *_ = books.totals.windows.items()
    del books.totals.windows[first]
    books.totals.windows["2000-01-01T00:00:00Z", "games"] = (orders, cents)


def leave_something_unsettled(books: Books) -> None:
    books.unsettled = 1


def lose_an_acknowledged_order(books: Books) -> None:
    books.acknowledged += 1


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_clean_order,
        write_an_order_twice,
        swap_an_order_in_the_lake,
        forget_a_cent,
        invoice_twice,
        bury_another_one,
        quarantine_one_too_many,
        count_in_another_window,
        leave_something_unsettled,
        lose_an_acknowledged_order,
    ],
)
def test_any_damage_is_noticed(damage: Callable[[Books], None]) -> None:
    """A row that is missing, too many or another one breaks a check."""
    books = honest_books(500)

    damage(books)

    assert broken(books)


def test_without_a_pipeline_only_the_group_is_checked() -> None:
    """Where there was no Spark, its empty side is no fault."""
    books = honest_books(500)
    alone = Books(
        acknowledged=500,
        intake=books.intake,
        invoices=books.invoices,
        dead=books.dead,
        has_pipeline=False,
    )

    assert broken(alone) == []
    assert list(where_rows_went(alone)) == ["group"]


def test_latencies_of_the_start_are_left_out() -> None:
    """Percentiles are of what was published while everything ran."""
    trace = Trace(live_us=10_000_000)
    trace.add(published_us=1_000_000, arrived_us=60_000_000)
    for number in range(100):
        trace.add(published_us=10_000_000, arrived_us=10_000_000 + number * 1_000)

    assert trace.percentiles() == {"p50_ms": 49, "p99_ms": 98}
    assert trace.means() == [(1, 59_000.0), (10, 49.5)]
    assert trace.rates([10, 11, 60]) == [100, 0, 1]
    assert percentile(trace.live_ms, 100) == 99
