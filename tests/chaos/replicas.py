"""Compares the copies of each partition, frame by frame, on the disks of stopped nodes."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from goqueue.base.ids import Offset
from goqueue.base.units import MiB
from goqueue.core.record.frame import read_header
from goqueue.storage.log_view import LogView
from goqueue.storage.read_only import ReadOnlyDisk

READ_BYTES: Final = 4 * MiB


def differences(data_dirs: Mapping[str, Path], *, ends: Mapping[str, int]) -> list[str]:
    """Return where copies differ, or end before ``ends``, the last offset that was relied upon.

    ``ends`` is by ``topic/partition``; partitions that are not in it are compared, too, as far as
    all copies reach.
    """
    found: list[str] = []
    for place in sorted({place for one in data_dirs.values() for place in _places(one)}):
        logs = {
            name: LogView(ReadOnlyDisk(path), f"logs/{place}")
            for name, path in data_dirs.items()
            if (path / "logs" / place).is_dir()
        }
        found += _compare(place, logs, ends.get(place, 0))
    return found


def _places(data_dir: Path) -> Iterator[str]:
    for segment in (data_dir / "logs").glob("*/*/*.log"):
        yield f"{segment.parent.parent.name}/{segment.parent.name}"


def _compare(place: str, logs: Mapping[str, LogView], relied_upon: int) -> list[str]:
    begin = max(log.start_offset for log in logs.values())
    end = min(log.end_offset for log in logs.values())
    if end < relied_upon:
        shown = {name: int(log.end_offset) for name, log in logs.items()}
        return [f"{place}: copies end at {shown}, before {relied_upon}"]
    walks = {name: _frames(log, begin, end) for name, log in logs.items()}
    names = list(walks)
    for frames in zip(*walks.values(), strict=True):
        if len(set(frames)) > 1:
            offsets = [int(read_header(memoryview(frame)).offset) for frame in frames]
            return [f"{place}: {dict(zip(names, offsets, strict=True))} differ"]
    return []


def _frames(log: LogView, begin: Offset, end: Offset) -> Iterator[bytes]:
    offset = begin
    with contextlib.closing(log):
        while offset < end:
            piece = log.read(offset, end_offset=end, bytes_max=READ_BYTES)
            assert not piece.gaps, f"{log!r} is damaged at {piece.gaps}"
            position = 0
            while position < len(piece.frames):
                size = read_header(piece.frames, position).size
                yield bytes(piece.frames[position : position + size])
                position += size
            if piece.next_offset <= offset:
                return
            offset = piece.next_offset
