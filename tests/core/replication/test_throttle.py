"""A token bucket keeps its rate, whatever is asked of it and whenever."""

from random import Random

from goqueue.core.replication.throttle import TokenBucket


def test_the_rate_is_kept_over_any_steps() -> None:
    """Within one burst, over seconds and over fractions of a millisecond's worth."""
    random = Random(3)
    for rate in (1, 7, 999, 10_000_000):
        bucket = TokenBucket(bytes_per_second=rate, burst_bytes=max(rate // 10, 2), now_ms=0)
        now_ms = granted = 0
        while now_ms < 100_000:
            now_ms += random.randint(0, 60)
            granted += bucket.take(10 * rate, now_ms=now_ms)

        assert abs(granted - rate * now_ms / 1_000) <= max(rate / 10, 2) + 1


def test_an_empty_bucket_says_when_to_come_back() -> None:
    """Not a millisecond early, and not for nothing."""
    bucket = TokenBucket(bytes_per_second=300, burst_bytes=10, now_ms=0)
    assert bucket.take(100, now_ms=0) == 10
    assert bucket.take(100, now_ms=0) == 0
    ready_ms = bucket.ready_ms(now_ms=0)

    assert bucket.take(100, now_ms=ready_ms - 1) == 0
    assert bucket.take(100, now_ms=ready_ms) == 1


def test_what_was_not_used_comes_back_and_what_was_overdrawn_is_paid() -> None:
    """A frame may be larger than its grant."""
    bucket = TokenBucket(bytes_per_second=1_000, burst_bytes=1_000, now_ms=0)
    assert bucket.take(400, now_ms=0) == 400
    bucket.give_back(150)
    assert bucket.take(1_000, now_ms=0) == 750
    bucket.give_back(-500)

    assert bucket.take(1_000, now_ms=400) == 0
    assert bucket.ready_ms(now_ms=400) == 501
    assert bucket.take(1_000, now_ms=1_500) == 1_000


def test_a_rate_may_change_and_a_clock_go_back() -> None:
    """Neither grants anything twice."""
    bucket = TokenBucket(bytes_per_second=1_000, burst_bytes=100, now_ms=1_000)
    assert bucket.take(100, now_ms=1_000) == 100
    assert bucket.take(100, now_ms=500) == 0
    bucket.set_rate(10_000, now_ms=1_001)

    assert bucket.take(100, now_ms=1_001) == 1
    assert bucket.take(100, now_ms=1_006) == 50
