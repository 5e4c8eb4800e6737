"""The memory that bodies of requests and replies may hold over all HTTP connections.

Who finds no room is refused at once and may come again. Bytes are taken when they are really there,
so a declared size reserves nothing.
"""

from typing import Final

from goqueue.base.errors import OverloadedError
from goqueue.base.limits import REPLY_BYTES_MIN, REQUEST_BUFFER_BYTES_MAX
from goqueue.base.units import KiB

FREE_BYTES: Final = 64 * KiB
"""The first bytes of a body need no room: they bound themselves by the number of connections."""


READ_FRACTION: Final = 8
"""What is read for one reply may take this part of what is free, at most."""


class Room:
    """A number of bytes, shared."""

    def __init__(self, size: int = REQUEST_BUFFER_BYTES_MAX) -> None:
        self._free = size

    def __repr__(self) -> str:
        return f"<Room: {self._free} bytes free>"

    @property
    def free(self) -> int:
        """Return how many bytes are left; negative while one goes beyond."""
        return self._free

    def take(self, size: int) -> None:
        """Take bytes or raise."""
        if size > self._free:
            raise OverloadedError("the broker holds as many request and reply bytes as it may")
        self._free -= size

    def give_back(self, size: int) -> None:
        """Return bytes."""
        self._free += size


class ReadRoom:
    """What the messages read for one reply hold of the room, from the log to the JSON."""

    __slots__ = ("_held", "_room")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._held = 0

    is_free: Final = True

    async def turn(self) -> None:
        """Go on at once: what takes long is not reading but writing JSON."""

    async def take(self, wanted: int) -> int:
        """Return how many bytes may be read: the fuller the room, the fewer."""
        share = min(wanted, max(self._room.free // READ_FRACTION, REPLY_BYTES_MIN))
        self.keep(share)
        return share

    def keep(self, size: int) -> None:
        """Hold just so many bytes: what was really read, even beyond the room."""
        self._room.give_back(self._held - size)
        self._held = size


class Share:
    """What one request holds of the room, beyond the bytes that are free."""

    __slots__ = ("_held", "_room", "_size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0
        self._held = 0

    def for_reading(self) -> ReadRoom:
        """Return a part of the room for messages read from the log; ``keep(0)`` gives it back."""
        return ReadRoom(self._room)

    def grow(self, size: int) -> None:
        """Hold more bytes, or raise and hold as many as before."""
        wanted = max(self._size + size - FREE_BYTES, 0)
        if wanted > self._held:
            self._room.take(wanted - self._held)
            self._held = wanted
        self._size += size

    def release(self) -> None:
        """Hold nothing any more."""
        self._room.give_back(self._held)
        self._held = self._size = 0
