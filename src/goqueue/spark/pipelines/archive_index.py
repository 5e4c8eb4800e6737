"""Which files of an archive hold which offsets, without Spark.

An archive is a lake of messages with folders by topic first. What a file holds is read from its
footer once: files never change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from goqueue.spark.connector.option_places import Offsets
from goqueue.spark.pipelines.lake import Lake, LakeError

NEEDED: Final = ("partition", "offset", "timestamp", "value")
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The offsets of one partition in one file, both ends included."""

    topic: str
    partition: int
    first: int
    last: int
    path: str


class ArchiveIndex:
    """Knows the spans of all files; looks only at those it has not seen."""

    def __init__(
        self, root: Path, *, since: datetime | None = None, until: datetime | None = None
    ) -> None:
        self._lake = Lake(root)
        self._since = since
        self._until = until
        self._known: dict[Path, tuple[Span, ...]] = {}

    def spans(self) -> list[Span]:
        """Return what is in the archive now, of the hours that are meant."""
        layout = self._lake.layout()
        if layout is None:
            raise LakeError(f"there is no lake at {self._lake.root}")
        names = {field["name"] for field in layout.columns["fields"]}
        if layout.partition_by[:1] != ["topic"] or not set(NEEDED) <= names:
            raise LakeError(
                f"{self._lake.root} is no archive of messages: it needs folders by topic and the"
                f" columns {', '.join(NEEDED)}"
            )
        files = self._lake.files()
        for path in files:
            if path not in self._known:
                self._known[path] = spans_of(path, self._folders(path))
        return [
            span
            for path in files
            if self._is_meant(self._folders(path))
            for span in self._known[path]
        ]

    def _folders(self, path: Path) -> dict[str, str]:
        """Return what the folders of a file say."""
        parts = (part.partition("=") for part in path.relative_to(self._lake.root).parts)
        return {name: value for name, equals, value in parts if equals}

    def _is_meant(self, folders: dict[str, str]) -> bool:
        try:
            start = datetime.fromisoformat(folders["date"]).replace(
                hour=int(folders.get("hour", "0")), tzinfo=UTC
            )
        except (KeyError, ValueError):
            return True
        end = start + (_HOUR if "hour" in folders else 24 * _HOUR)
        if self._since is not None and end <= self._since:
            return False
        return self._until is None or start < self._until


def spans_of(path: Path, folders: dict[str, str]) -> tuple[Span, ...]:
    """Return the offsets of a file by partition, from the statistics of its row groups."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        names = [metadata.schema.column(one).path for one in range(metadata.num_columns)]
        places = {name: names.index(name) for name in ("partition", "offset")}
        found: dict[int, tuple[int, int]] = {}
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            partitions = group.column(places["partition"]).statistics
            offsets = group.column(places["offset"]).statistics
            if partitions is None or offsets is None or partitions.min != partitions.max:
                return _read_spans(file, path, folders)
            first, last = found.get(partitions.min, (offsets.min, offsets.max))
            found[partitions.min] = (min(first, offsets.min), max(last, offsets.max))
    return _spans(found, path, folders)


def _read_spans(file: pq.ParquetFile, path: Path, folders: dict[str, str]) -> tuple[Span, ...]:
    """Return the same where row groups mix partitions, from the two columns themselves."""
    table = file.read(columns=["partition", "offset"])
    grouped = table.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
    found = {
        row["partition"]: (row["offset_min"], row["offset_max"]) for row in grouped.to_pylist()
    }
    return _spans(found, path, folders)


def _spans(
    found: dict[int, tuple[int, int]], path: Path, folders: dict[str, str]
) -> tuple[Span, ...]:
    topic = folders.get("topic", "")
    return tuple(
        Span(topic=topic, partition=partition, first=first, last=last, path=str(path))
        for partition, (first, last) in sorted(found.items())
    )


def starts_of(spans: Iterable[Span]) -> Offsets:
    """Return the first offset of each partition."""
    starts: Offsets = {}
    for span in spans:
        parts = starts.setdefault(span.topic, {})
        parts[span.partition] = min(parts.get(span.partition, span.first), span.first)
    return starts


def ends_of(spans: Iterable[Span]) -> Offsets:
    """Return the offset behind the last of each partition."""
    ends: Offsets = {}
    for span in spans:
        parts = ends.setdefault(span.topic, {})
        parts[span.partition] = max(parts.get(span.partition, 0), span.last + 1)
    return ends
