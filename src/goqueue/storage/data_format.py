"""Which version of the files a data directory holds, so that an older program refuses a newer one.

One line, with a checksum, so that a flipped bit is not taken for another version::

    goqueue data format 1 5d2c0a1f

A directory without the file was made before there was one, and gets it.
"""

from typing import Final

from crc32c import crc32c

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Position
from goqueue.storage.disk import Disk, write_atomically

FORMAT_PATH: Final = "meta/format"
FORMAT: Final = 1
"""Raised whenever a program of before would misunderstand what is written."""

_BEGIN: Final = "goqueue data format "
_LINE_BYTES_MAX: Final = 100


def check_format(disk: Disk) -> bool:
    """Return True if the directory says its format; refuse one that this program is too old for."""
    try:
        file = disk.open(FORMAT_PATH)
    except FileNotFoundError:
        return False
    raw = file.read(Position(0), min(file.size(), _LINE_BYTES_MAX))
    file.close()
    found = _parse(raw)
    if found is None:
        # Damaged; what it said is written again.
        return False
    if found > FORMAT:
        raise StorageFailedError(
            f"the data directory was written by a newer version of GoQueue: its format is {found},"
            f" and this program knows formats up to {FORMAT}; nothing was changed"
        )
    return found == FORMAT


def write_format(disk: Disk) -> None:
    """Say which format the directory has from now on."""
    write_atomically(disk, FORMAT_PATH, format_line(FORMAT))


def format_line(number: int) -> bytes:
    """Return the content of the file for a format."""
    text = f"{_BEGIN}{number}"
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


def _parse(raw: bytes) -> int | None:
    number = raw.decode(errors="replace").removeprefix(_BEGIN).partition(" ")[0]
    is_ours = number.isascii() and number.isdecimal() and format_line(int(number)) == raw
    return int(number) if is_ours else None
