"""Spans as lines of JSON in files of a bounded size, the oldest deleted when there are too many.

``traces-YYYY-MM-DD-NNN.json``: a file for each day, and the next number when one is full.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from goqueue.base.units import MiB
from goqueue.core.tracing.note import TraceSpan

FILE_BYTES_MAX: Final = 10 * MiB
NUMBER_MAX: Final = 999_999
_NAME: Final = re.compile(r"traces-(\d{4}-\d{2}-\d{2})-(\d{3,6})\.json")
_encode: Final = msgspec.json.Encoder().encode


class TraceFiles:
    """Writes files in one directory. One thread uses it."""

    def __init__(
        self, directory: Path, *, files_max: int, file_bytes_max: int = FILE_BYTES_MAX
    ) -> None:
        self._directory = directory
        self._files_max = files_max
        self._file_bytes_max = file_bytes_max
        self._file: BinaryIO | None = None
        self._day = ""
        self._size = 0

    def __repr__(self) -> str:
        return f"<TraceFiles in {self._directory}>"

    def write(self, spans: Sequence[TraceSpan]) -> None:
        """Append spans, in the next file when one is full."""
        for span in spans:
            line = _encode(span) + b"\n"
            file = self._file_for(len(line))
            file.write(line)
            self._size += len(line)
        if self._file is not None:
            self._file.flush()

    def _file_for(self, size: int) -> BinaryIO:
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        is_full = self._size and self._size + size > self._file_bytes_max
        if self._file is None or day != self._day or is_full:
            self.close()
            self._open(day)
        assert self._file is not None, "just opened"
        return self._file

    def _open(self, day: str) -> None:
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        found = self._found()
        number = max((number for known, number, _ in found if known == day), default=0) + 1
        path = self._directory / f"traces-{day}-{min(number, NUMBER_MAX):03d}.json"
        self._file = path.open("ab")
        path.chmod(0o600)
        self._day, self._size = day, self._file.tell()
        for _, _, old in found[: len(found) + 1 - self._files_max]:
            old.unlink(missing_ok=True)

    def _found(self) -> list[tuple[str, int, Path]]:
        """Return our files, oldest first."""
        named = ((_NAME.fullmatch(path.name), path) for path in self._directory.iterdir())
        return sorted((match[1], int(match[2]), path) for match, path in named if match)

    def close(self) -> None:
        """Close the file at hand."""
        if self._file is not None:
            self._file.close()
            self._file = None
