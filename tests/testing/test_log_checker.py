"""The log checker finds each way a log can lie, and nothing in an honest history."""

import pytest

from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.testing.log_checker import LogChecker, Violation

ONE = TopicPartition(TopicName("t"), PartitionId(0))
TWO = TopicPartition(TopicName("t"), PartitionId(1))


def history(*payloads: bytes) -> LogChecker:
    """Return a history in which one producer sent these and all were acknowledged, from 0 on."""
    checker = LogChecker()
    for offset, payload in enumerate(payloads):
        checker.sent(ONE, payload, producer="p")
        checker.acked(ONE, offset, payload)
    return checker


def violations(checker: LogChecker) -> set[Violation]:
    return {finding.violation for finding in checker.findings()}


def test_an_honest_history_is_accepted() -> None:
    """Retries, unacknowledged messages, gaps that were told of and expiry are no lies."""
    checker = history(b"a", b"b", b"c", b"d")
    checker.sent(ONE, b"e", producer="p")
    checker.sent(ONE, b"b", producer="p")
    checker.acked(ONE, 1, b"b")
    checker.may_expire(ONE, 1)
    checker.read(
        ONE, [(1, b"b"), (3, b"d"), (4, b"e")], start_offset=1, end_offset=5, gaps=[(2, 3)]
    )

    checker.check()


def test_a_lost_write_is_found() -> None:
    """An acknowledged message that the last read does not hold."""
    checker = history(b"a", b"b")
    checker.read(ONE, [(0, b"a")], start_offset=0, end_offset=1)

    assert violations(checker) == {Violation.LOST_WRITE}
    with pytest.raises(AssertionError, match="lost write: t/0: b'b' was acknowledged at 1"):
        checker.check()


def test_a_duplicate_is_found() -> None:
    """One message at two offsets, read or acknowledged."""
    read = history(b"a")
    read.read(ONE, [(0, b"a"), (1, b"a")], start_offset=0, end_offset=2)
    acked = history(b"a")
    acked.acked(ONE, 5, b"a")

    assert violations(read) == {Violation.DUPLICATE}
    assert violations(acked) == {Violation.DUPLICATE}


def test_two_values_at_one_offset_are_found() -> None:
    """Also where one was read before a crash and the other after it."""
    checker = history(b"a")
    checker.sent(ONE, b"b")
    checker.sent(ONE, b"c")
    checker.read(ONE, [(0, b"a"), (1, b"b")], start_offset=0, end_offset=2)
    checker.read(ONE, [(0, b"a"), (1, b"c")], start_offset=0, end_offset=2)

    assert violations(checker) == {Violation.TWO_VALUES}


def test_disorder_is_found() -> None:
    """A reader that goes back, and a producer's messages in another order than it sent them."""
    back = history(b"a", b"b")
    back.read(ONE, [(1, b"b"), (0, b"a")], start_offset=0, end_offset=2)
    swapped = LogChecker()
    for payload in (b"a", b"b"):
        swapped.sent(ONE, payload, producer="p")
    swapped.read(ONE, [(0, b"b"), (1, b"a")], start_offset=0, end_offset=2)

    assert violations(back) == {Violation.ORDER}
    assert violations(swapped) == {Violation.ORDER}


def test_a_read_of_something_refused_or_never_sent_is_found() -> None:
    """What the broker refused may not appear, and nothing may come from nowhere."""
    checker = LogChecker()
    checker.sent(ONE, b"a")
    checker.refused(ONE, b"a")
    checker.read(ONE, [(0, b"a"), (1, b"x")], start_offset=0, end_offset=2)

    assert [finding.violation for finding in checker.findings()] == [Violation.NEVER_SENT] * 2


def test_skipped_offsets_are_found() -> None:
    """A hole nobody was told of."""
    checker = history(b"a", b"b", b"c")
    checker.read(ONE, [(0, b"a"), (2, b"c")], start_offset=0, end_offset=3)

    assert violations(checker) == {Violation.SKIPPED, Violation.LOST_WRITE}


def test_partitions_and_topics_are_told_apart() -> None:
    """The same offset holds different messages in two partitions; a deleted topic promises none."""
    checker = history(b"a")
    checker.sent(TWO, b"b")
    checker.acked(TWO, 0, b"b")
    checker.read(TWO, [(0, b"b")], start_offset=0, end_offset=1)
    checker.check()
    checker.read(ONE, [], start_offset=0, end_offset=0)
    assert violations(checker) == {Violation.LOST_WRITE}
    checker.deleted("t")

    checker.check()


def test_a_power_cut_may_take_what_was_not_acknowledged() -> None:
    """Only then may an offset that was read get another message."""
    checker = history(b"a")
    checker.sent(ONE, b"b")
    checker.sent(ONE, b"c")
    checker.read(ONE, [(0, b"a"), (1, b"b")], start_offset=0, end_offset=2)
    checker.lost_power(ONE, 1)
    checker.read(ONE, [(0, b"a"), (1, b"c"), (2, b"b")], start_offset=0, end_offset=3)

    checker.check()
