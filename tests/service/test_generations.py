"""Only a generation that is not given is not compared; zero is one that is over."""

import msgspec
import pytest

from goqueue.wire import group_calls, queue_calls


@pytest.mark.parametrize(
    ("header", "given"),
    [
        (group_calls.Heartbeat("g", "m", 0), 0),
        (group_calls.Heartbeat("g", "m"), None),
        (queue_calls.CommitOffsets("g", "m", 0, []), 0),
        (queue_calls.CommitOffsets("g", "m", None, []), None),
    ],
)
def test_no_generation_and_generation_zero_differ(
    header: group_calls.Heartbeat | queue_calls.CommitOffsets, given: int | None
) -> None:
    """Zero is a generation that no member has any more."""
    packed = msgspec.msgpack.encode(header)

    assert msgspec.msgpack.decode(packed, type=type(header)).generation == given
