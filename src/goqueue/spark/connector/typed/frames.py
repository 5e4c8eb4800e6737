"""Values that name their schema, as the registry's clients write them.

Shape: codec. A zero byte, the id (u32, big-endian), the value.
"""

import struct
from typing import Final

MAGIC: Final = b"\0"
_FRAME: Final = struct.Struct(">xI")
FRAME_BYTES: Final = _FRAME.size


def schema_id(value: bytes) -> int | None:
    """Return the id a value may begin with."""
    if len(value) < FRAME_BYTES or value[:1] != MAGIC:
        return None
    return int(_FRAME.unpack_from(value)[0])
