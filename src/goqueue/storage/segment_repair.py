"""Finding bad frames in a segment, and writing the segment anew with good ones in their place.

The new segment lies beside the log and is put in place by a swap, as a compacted one is, so a crash
at any point leaves the old segment or the new one. What nothing was found for stays as it lies:
bad frames are never deleted. Nothing here touches the log itself, so any thread may run it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset, Position
from goqueue.base.limits import FRAME_BYTES_MAX
from goqueue.base.units import MiB
from goqueue.core.log.scan import Walk, find_frame
from goqueue.storage.disk import Disk, File
from goqueue.storage.segment import Segment
from goqueue.storage.swap import CLEANED, Swap, remove_cleaned

CHUNK_BYTES: Final = 1 * MiB
LOOK_AHEAD_BYTES: Final = 2 * FRAME_BYTES_MAX
"""Where the next good frame is looked for first; it is mostly right behind the bad one."""


class SegmentPlace(NamedTuple):
    """A segment of a log, and how much of it is looked at."""

    directory: str
    base_offset: Offset
    end_offset: Offset
    size: int
    mark: str = ""


class Damage(NamedTuple):
    """Offsets without a good frame, and the bad bytes in their place; both are half-open."""

    start_offset: Offset
    end_offset: Offset
    position: Position
    end_position: Position


class Patch(NamedTuple):
    """Good frames for some damage, from its first offset up to ``next_offset``."""

    damage: Damage
    frames: bytes
    next_offset: Offset

    @property
    def is_whole(self) -> bool:
        """Return True if the frames are all that is missing."""
        return self.next_offset == self.damage.end_offset


class Inspection:
    """Checks every frame of a segment. Iterate, then read ``damages``."""

    def __init__(self, disk: Disk, place: SegmentPlace) -> None:
        self._disk = disk
        self._place = place
        self._reached = place.base_offset
        self.damages: list[Damage] = []

    def __repr__(self) -> str:
        return f"<Inspection of {self._place}: {self.damages}>"

    def __iter__(self) -> Iterator[int]:
        """Check a piece after the other, yielding how many bytes were read for it."""
        place = self._place
        segment = Segment(self._disk, place.directory, place.base_offset, mark=place.mark)
        file, position, want = segment.file, 0, CHUNK_BYTES
        try:
            while position < place.size:
                chunk = file.read(Position(position), min(want, place.size - position))
                yield len(chunk)
                walk = Walk(chunk)
                self._walk(walk, position)
                position += walk.position
                is_cut = walk.needed > 0 and position + walk.needed > place.size
                want = max(CHUNK_BYTES, walk.needed)
                if walk.fault is not None or is_cut or not chunk:
                    position = self._skip(file, position)
        finally:
            segment.close()
        if self._reached < place.end_offset:
            end = Position(place.size)
            self.damages.append(Damage(self._reached, place.end_offset, end, end))

    def _walk(self, walk: Walk, origin: int) -> None:
        start = 0
        for end, first, behind in walk.outlines():
            if first > self._reached:
                at = Position(origin + start)
                self.damages.append(Damage(self._reached, Offset(first), at, at))
            self._reached = Offset(max(self._reached, behind))
            start = end

    def _skip(self, file: File, position: int) -> int:
        """Note bad bytes from a position on; return where the next good frame begins."""
        place, reached = self._place, self._reached
        left = place.size - position
        following = None
        for size in (min(LOOK_AHEAD_BYTES, left), left):
            following = find_frame(file.read(Position(position), size), offset_min=reached)
            if following is not None or size == left:
                break
        if following is None or following.header.offset >= place.end_offset:
            end = Position(place.size)
            self.damages.append(Damage(reached, place.end_offset, Position(position), end))
            self._reached = place.end_offset
            return place.size
        good = position + following.start
        self._reached = following.header.offset
        self.damages.append(Damage(reached, self._reached, Position(position), Position(good)))
        return good


def inspect(disk: Disk, place: SegmentPlace) -> list[Damage]:
    """Return what is bad in a segment."""
    inspection = Inspection(disk, place)
    for _ in inspection:
        pass
    return inspection.damages


def write_repaired(disk: Disk, place: SegmentPlace, patches: Sequence[Patch]) -> Swap:
    """Write a segment with patches beside its log, durably; return what puts it in place.

    Raises with nothing changed unless everything else is as it was and the patches are good.
    """
    remove_cleaned(disk, place.directory)
    expected = inspect(disk, place)
    for patch in patches:
        assert patch.damage in expected, "found by the same inspection"
        expected.remove(patch.damage)
    repaired = Segment(disk, place.directory, place.base_offset, mark=CLEANED)
    repaired.create()
    old = Segment(disk, place.directory, place.base_offset)
    position = 0
    for patch in patches:
        _copy(old.file, repaired.file, position, patch.damage.position)
        repaired.file.append([patch.frames])
        position = patch.damage.end_position if patch.is_whole else patch.damage.position
    _copy(old.file, repaired.file, position, place.size)
    repaired.sync()
    old.close()
    repaired.close()
    left = [(one.start_offset, one.end_offset) for one in expected]
    left += [(one.next_offset, one.damage.end_offset) for one in patches if not one.is_whole]
    _finish(disk, place, left=left)
    disk.sync_directory(place.directory)
    return Swap(base_offset=place.base_offset, replaced=(place.base_offset,))


def _copy(source: File, target: File, start: int, end: int) -> None:
    while start < end:
        chunk = source.read(Position(start), min(CHUNK_BYTES, end - start))
        if not chunk:
            raise StorageFailedError(f"{source.path} ends before {end}")
        target.append([chunk])
        start += len(chunk)


def _finish(disk: Disk, place: SegmentPlace, *, left: Sequence[tuple[int, int]]) -> None:
    """Check what was written, as it lies there now, and index it durably."""
    written = Segment(disk, place.directory, place.base_offset, mark=CLEANED)
    found = inspect(disk, place._replace(size=written.size, mark=CLEANED))
    if sorted((one.start_offset, one.end_offset) for one in found) != sorted(left):
        raise StorageFailedError(f"{place.directory}: a repaired segment is not as it should be")
    written.rebuild_index()
    written.next_offset = place.end_offset
    written.mark_end()
    written.index.save()
    written.close()
