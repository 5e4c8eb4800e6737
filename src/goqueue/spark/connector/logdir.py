"""A data directory as the connector sees it: the files of topics, read without a broker."""

from collections.abc import Iterator
from pathlib import Path

from goqueue.base.errors import DataLossError, OffsetOutOfRangeError
from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.client.protocol.chunk import Chunk
from goqueue.spark.connector.planning import OffsetRange
from goqueue.storage.data_directory import DataDirectory, PartitionView
from goqueue.wire.calls import OffsetsPart

GO_ON = "; set failOnDataLoss to false to go on"


class LogDirectory:
    """Reads a directory; a partition keeps the end it had when it was first looked at."""

    def __init__(self, path: str) -> None:
        self._directory = DataDirectory(Path(path))
        self._views: dict[str, list[PartitionView]] = {}

    def __repr__(self) -> str:
        return f"<LogDirectory over {self._directory!r}>"

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._directory.topics())

    def offsets(self, topic: str, *, at_us: int | None = None) -> list[OffsetsPart]:
        """Return the range of each partition, and where a time is in it."""
        views = self._views.get(topic)
        if views is None:
            views = self._views[topic] = self._directory.partitions(topic)
            for view in views:
                view.settle()
        parts: list[OffsetsPart] = []
        for partition, view in enumerate(views):
            found = None if at_us is None else view.find_time(at_us)
            parts.append(
                OffsetsPart(
                    partition, view.start_offset, view.end_offset, -1 if found is None else found
                )
            )
        return parts

    def chunks(self, wanted: OffsetRange, *, is_loss_fatal: bool) -> Iterator[Chunk]:
        """Yield the frames of a range; what is gone is told or passed over."""
        view = self._directory.partition(wanted.topic, wanted.partition)
        loss = _Loss(wanted, is_fatal=is_loss_fatal)
        end = Offset(min(wanted.end_offset, view.end_offset))
        if end < wanted.end_offset:
            loss.tell(end, wanted.end_offset, "are not there any more: the topic was made anew")
        offset = Offset(wanted.start_offset)
        while offset < end:
            try:
                piece = view.read(offset, end_offset=end)
            except OffsetOutOfRangeError:
                loss.tell(offset, min(view.start_offset, end), "were deleted by retention")
                offset = view.start_offset
                continue
            for gap in piece.gaps:
                loss.tell(gap.start_offset, gap.end_offset, "cannot be read: bad checksum")
            if piece.frames:
                yield Chunk(
                    TopicName(wanted.topic),
                    PartitionId(wanted.partition),
                    piece.frames,
                    offset,
                    Offset(min(piece.next_offset, end)),
                )
            offset = piece.next_offset


class _Loss:
    """Says what cannot be read, if somebody wants to know."""

    def __init__(self, wanted: OffsetRange, *, is_fatal: bool) -> None:
        self._name = f"{wanted.topic}/{wanted.partition}"
        self._is_fatal = is_fatal

    def tell(self, start: int, end: int, reason: str) -> None:
        if self._is_fatal:
            raise DataLossError(f"{self._name}: offsets {start} to {end - 1} {reason}{GO_ON}")
