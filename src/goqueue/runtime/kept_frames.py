"""Frames that the client at the other end of a connection keeps (ADR 0024).

Where keys are in order, each poll leases a few messages of the same frames. Such a frame is sent
once, whole; later leases name it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from goqueue.base.limits import SHELF_BYTES_MAX
from goqueue.core.delivery.shelf import Shelf
from goqueue.core.record.frame import Buffer
from goqueue.storage.segment import Segment

KEPT_SHARE: Final = 16
"""A frame is worth keeping if at least one in so many of its messages is leased at once."""


class Spot(NamedTuple):
    """Where a frame lies. A compacted log has other segments."""

    segment: Segment
    offset: int


class KeptFrame(NamedTuple):
    """A frame that is or will be kept by the client."""

    spot: Spot
    frame: Buffer
    room: int
    """What it counts on a shelf."""
    is_new: bool
    """Whether it was still to be sent when it was read."""
    leased_bytes: int = 0
    """About how many bytes the messages take that were leased of it."""


class KeptFrames:
    """Knows which frames the client has. Told of frames in the order in which they are sent."""

    def __init__(self) -> None:
        self._shelf: Shelf[Spot] = Shelf()
        self._numbers: dict[Spot, int] = {}

    def __repr__(self) -> str:
        return f"<KeptFrames: {self._shelf!r}>"

    def __contains__(self, spot: Spot) -> bool:
        return spot in self._numbers

    def send(self, frames: Sequence[KeptFrame]) -> tuple[list[int], list[Buffer]]:
        """Return the numbers of frames, and those the client does not have; they go out now."""
        numbers: list[int] = []
        fresh: list[Buffer] = []
        for one in frames:
            number = self._numbers.get(one.spot)
            if number is None:
                number = self._shelf.next_number
                fresh.append(one.frame)
                self._numbers[one.spot] = number
                for left in self._shelf.put(one.spot, one.room):
                    del self._numbers[left]
            numbers.append(number)
        return numbers, fresh


class Keeping(NamedTuple):
    """What may be left with a client in one lease, and what it has already."""

    frames: KeptFrames
    partitions: int
    """How many partitions share the room."""

    @property
    def bytes_max(self) -> int:
        """Return how much one lease may use: the next must find it still there."""
        return SHELF_BYTES_MAX // (2 * self.partitions)
