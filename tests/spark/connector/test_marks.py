"""A batch is written once; what is not known to be a repeat is never taken for one."""

import pytest

from goqueue.base.errors import DataLossError, InvalidTransactionStateError
from goqueue.client.protocol.fetching import Fetching, ReadOptions
from goqueue.spark.connector.writer import VERSION, Mark
from goqueue.wire.calls import OffsetsPart


def test_only_the_same_batch_of_the_same_query_is_a_repeat() -> None:
    """A checkpoint begun anew counts from 0 again, and its batches are other ones."""
    token = Mark("query", 7).token

    assert Mark("query", 7).is_repeat(token)
    assert not Mark("query", 8).is_repeat(token)
    assert not Mark("another", 7).is_repeat(token)
    assert not Mark("query", 7).is_repeat("")
    assert not Mark("query", 7).is_repeat("somebody else's")


def test_a_checkpoint_that_was_set_back_is_told() -> None:
    with pytest.raises(InvalidTransactionStateError, match="the checkpoint was set back"):
        Mark("query", 3).is_repeat(Mark("query", 7).token)


def test_versions_only_grow() -> None:
    token = Mark(VERSION, 7).token

    assert Mark(VERSION, 3).is_repeat(token)
    assert Mark(VERSION, 7).is_repeat(token)
    assert not Mark(VERSION, 8).is_repeat(token)


def test_a_range_that_the_log_does_not_reach_is_told() -> None:
    """A task that planned for more than there is must not end without a word."""
    parts = [OffsetsPart(0, 0, 50)]
    strict = Fetching("t", ReadOptions(must_reach_end=True))
    lax = Fetching("t", ReadOptions())

    with pytest.raises(DataLossError, match="the log ends at 50"):
        strict.begin(parts, start={0: 0}, end={0: 100})
    lax.begin(parts, start={0: 0}, end={0: 100})

    assert not lax.is_over
