"""Messages that wait for their next attempt: due in order, and nothing kept of those that left."""

from pyroaring import BitMap64

from goqueue.core.delivery.waiting import HEAP_MIN, Waiting

WEEK_MS = 7 * 86_400_000


def test_those_that_leave_early_are_not_kept() -> None:
    """A pause of a week that ends with its message takes no memory for a week."""
    waiting = Waiting()
    waiting.add([1], due_ms=WEEK_MS, backoff_ms=1)
    for offset in range(10, 5_000):
        waiting.add([offset], due_ms=WEEK_MS + offset, backoff_ms=1)
        waiting.discard(BitMap64([offset]))

    assert len(waiting._heap) <= HEAP_MIN + 4  # noqa: SLF001
    assert waiting.first_due_ms() == WEEK_MS
    assert list(waiting.advance(WEEK_MS)) == [1]
    assert waiting.first_due_ms() is None
