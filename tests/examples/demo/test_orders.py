"""The shop of the demonstration: the same orders from a seed, and what is wrong with some."""

import msgspec

from examples.demo.judgement import Bill, Fault, bill, fault_of, is_billable, read_order
from examples.demo.orders import SHARES, Kind, Published, Shop

NOW_US = 1_800_000_000_000_000
FAULTS = {
    Kind.GARBLED: Fault.UNREADABLE,
    Kind.NAMELESS: Fault.NAMELESS,
    Kind.NEGATIVE: Fault.NEGATIVE,
    Kind.OUTDATED: Fault.OUTDATED,
    Kind.FUTURE: Fault.FUTURE,
}
COUNTS = {
    Kind.GOOD: 9_004,
    Kind.LATE: 388,
    Kind.DUPLICATE: 304,
    Kind.GARBLED: 74,
    Kind.NAMELESS: 64,
    Kind.NEGATIVE: 79,
    Kind.OUTDATED: 43,
    Kind.FUTURE: 44,
}


def sold(seed: int, count: int) -> list[Published]:
    shop = Shop(seed)
    return [shop.next(NOW_US + number * 1_000) for number in range(count)]


def test_a_seed_makes_the_same_orders() -> None:
    """Two shops with one seed publish the same bytes, two seeds do not."""
    assert sold(7, 500) == sold(7, 500)
    assert sold(7, 500) != sold(8, 500)


def test_the_counts_of_a_seed_are_known() -> None:
    """Ten thousand orders of a seed are of these kinds, whatever the time."""
    shop = Shop(7)
    for number in range(10_000):
        shop.next(NOW_US + number)

    assert dict(shop.tally) == COUNTS
    assert shop.tally.total() == 10_000
    assert set(shop.tally) == set(SHARES)


def test_an_order_that_comes_twice_is_the_same_message() -> None:
    """A duplicate has the bytes of an order that was published before and was in order."""
    before: set[tuple[bytes, bytes]] = set()
    for made in sold(3, 5_000):
        if made.kind is Kind.DUPLICATE:
            assert (made.key, made.value) in before
        elif made.kind in {Kind.GOOD, Kind.LATE}:
            before.add((made.key, made.value))


def test_numbers_are_used_once() -> None:
    """Only a duplicate has the number of another order."""
    fresh = [read_order(one.value) for one in sold(3, 5_000) if one.kind is not Kind.DUPLICATE]
    numbers = [order.id for order in fresh if order is not None]

    assert len(numbers) == len(set(numbers))


def test_every_kind_is_judged_as_it_was_meant() -> None:
    """The judgement finds the fault that was put in, and none where there is none."""
    for number, made in enumerate(sold(11, 5_000)):
        fault = fault_of(read_order(made.value), published_us=NOW_US + number * 1_000)

        assert fault == FAULTS.get(made.kind)


def test_a_card_decides_what_becomes_of_a_bill() -> None:
    """A flaky card works at the second try, a refused one never, a known order is not billed."""
    made = next(one for one in sold(1, 100) if one.kind is Kind.GOOD)
    order = read_order(made.value)
    assert order is not None
    good, flaky, refused = (
        msgspec.structs.replace(order, card=card) for card in ("good", "flaky", "refused")
    )

    assert bill(good, None, delivery_count=1, is_known=False) is Bill.CHARGE
    assert bill(good, None, delivery_count=1, is_known=True) is Bill.KNOWN
    assert bill(flaky, None, delivery_count=1, is_known=False) is Bill.RETRY
    assert bill(flaky, None, delivery_count=2, is_known=False) is Bill.CHARGE
    assert bill(refused, None, delivery_count=9, is_known=False) is Bill.RETRY
    assert bill(None, Fault.UNREADABLE, delivery_count=1, is_known=False) is Bill.REJECT
    assert bill(good, Fault.OUTDATED, delivery_count=1, is_known=False) is Bill.CHARGE
    assert is_billable(flaky, None)
    assert not is_billable(refused, None)
    assert not is_billable(good, Fault.NEGATIVE)
