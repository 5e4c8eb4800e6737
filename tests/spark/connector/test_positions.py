"""Where reading begins and ends, with a log that says what it is told to."""

from collections.abc import Iterator

from goqueue.client.protocol.chunk import Chunk
from goqueue.spark.connector.options import read_options
from goqueue.spark.connector.planning import OffsetRange
from goqueue.spark.connector.reader import plan
from goqueue.wire.calls import OffsetsPart


class Told:
    """One partition from 10 to 50; behind it a transaction is open, in which the time lies."""

    def topics(self) -> list[str]:
        return ["t"]

    def offsets(self, topic: str, *, at_us: int | None = None) -> list[OffsetsPart]:
        del topic
        return [OffsetsPart(0, 10, 50, -1 if at_us is None else 70)]

    def chunks(self, wanted: OffsetRange, *, is_loss_fatal: bool) -> Iterator[Chunk]:
        raise NotImplementedError


def test_a_time_in_an_open_transaction_is_the_end() -> None:
    """Nothing behind the end is read, and nothing before it either."""
    late = read_options({"subscribe": "t", "startingTimestamp": "5"}, is_stream=False)
    early = read_options({"subscribe": "t", "endingTimestamp": "5"}, is_stream=False)

    assert plan(Told(), late) == []
    assert [(one.start_offset, one.end_offset) for one in plan(Told(), early)] == [(10, 50)]
