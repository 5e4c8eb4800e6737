"""A bound is shared out among leaders: all of it, and no more."""

from hypothesis import given
from hypothesis import strategies as st

from goqueue.core.delivery.shares import share_of

LED = st.dictionaries(st.sampled_from("abcdefghi"), st.integers(1, 300), min_size=1)


@given(LED, st.integers(1, 100_000))
def test_shares_add_up_to_the_bound(led: dict[str, int], most: int) -> None:
    """No leader is left without one, and together they exceed the bound only by that."""
    shares = {node: share_of(most, led, node) for node in led}

    assert sum(shares.values()) == max(most, len(led))
    assert min(shares.values()) >= 1


def test_shares_follow_what_is_led() -> None:
    """Twice the partitions have about twice the share; one leader has all of it."""
    assert share_of(30, {"a": 2, "b": 1}, "a") == 19
    assert share_of(30, {"a": 2, "b": 1}, "b") == 11
    assert share_of(30, {"a": 2}, "a") == 30
    assert share_of(30, {"a": 2}, "b") == 30
