"""Having the system begin to write the pages of a file, without waiting for them.

Files that are synced one after the other wait less when all were begun before the first sync: the
device writes them side by side, and on ext4 one commit of its journal has the new lengths of all.
Only the syncs promise anything.
"""

import ctypes
from collections.abc import Callable
from typing import Final

_WRITE: Final = 2
"""SYNC_FILE_RANGE_WRITE of linux/fs.h. It waits for nothing, and leaves errors to the next sync."""


def _find() -> Callable[[int], object]:
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return lambda _: None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    # From the beginning to the end of the file.
    return lambda descriptor: call(descriptor, 0, 0, _WRITE)


begin_writing: Final = _find()
"""Takes a descriptor. Where the system has no such call, nothing is done."""
