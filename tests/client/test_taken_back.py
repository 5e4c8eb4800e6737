"""What a reader makes of messages that an unclean election has lost."""

import pytest

from goqueue.base.errors import DataLossError
from goqueue.client.protocol.fetching import Fetching, ReadOptions
from goqueue.wire import calls

EMPTY = memoryview(b"")
ENDS = [calls.OffsetsPart(0, 0, 10)]


def begun(on_gap: str = "raise") -> Fetching:
    """Return a reader that has read up to 5, in epoch 3."""
    fetching = Fetching("orders", ReadOptions(follow=True, on_gap=on_gap))
    fetching.begin(ENDS, start={0: 0}, end=None)
    assert fetching.request().parts == [calls.FetchPart(0, 0)]
    fetching.take_part(calls.FetchedPart(0, 0, 5, 0, 10, epoch=3), EMPTY)
    return fetching


def lost() -> calls.FetchedPart:
    return calls.FetchedPart(0, 0, 2, 0, 2, epoch=1, taken_back=(2, 5))


def test_it_carries_the_epoch_of_what_it_read() -> None:
    fetching = begun()
    assert fetching.request().parts == [calls.FetchPart(0, 5, None, 3)]
    assert fetching.request_of([0]).parts == [calls.FetchPart(0, 5, None, 3)]


def test_it_raises_with_the_offsets() -> None:
    fetching = begun()
    with pytest.raises(DataLossError, match=r"orders/0: offsets 2 to 4 were read and are lost"):
        fetching.take_part(lost(), EMPTY)


def test_by_choice_it_goes_on_where_the_logs_part() -> None:
    fetching = begun("skip")
    assert fetching.take_part(lost(), EMPTY) == []
    assert fetching.request().parts == [calls.FetchPart(0, 2, None, 1)]


def test_what_retention_moves_forgets_the_epoch() -> None:
    """The epoch was that of another message."""
    fetching = begun("skip")
    failure = calls.Failure("offset_out_of_range", "gone")
    fetching.take_part(calls.FetchedPart(0, 0, 5, 8, 10, failure=failure), EMPTY)
    assert fetching.request().parts == [calls.FetchPart(0, 8)]
