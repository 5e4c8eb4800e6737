"""What a frame says of its flags where the checksum covers it.

Shape: codec. Flags lie outside the checksum. Those of a batch, a hole and most rows follow from the
rest of the frame; the broker says the others again in headers of its own, at the end of the block:

    __end     the end of a transaction: 1 commit, 0 abort      (flag TX_COMMIT)
    __value   a row without bytes of value: 1 empty, 0 none    (flag TOMBSTONE)

Frames of earlier versions have neither, and their flags are believed.
"""

from typing import Final

from goqueue.base.errors import CorruptFrameError
from goqueue.core.record.frame import CONTROL, TOMBSTONE, TX_COMMIT
from goqueue.core.record.headers import decode_headers, encode_headers

TRANSACTION: Final = "__tx"
END: Final = "__end"
VALUE: Final = "__value"
YES: Final = b"\x01"
NO: Final = b"\x00"

_COUNT_BYTES: Final = 2
_TRANSACTION_NAME: Final = encode_headers({TRANSACTION: b""})[_COUNT_BYTES:-2]
_COMMIT: Final = encode_headers({END: YES})[_COUNT_BYTES:]
_ABORT: Final = encode_headers({END: NO})[_COUNT_BYTES:]
_EMPTY: Final = encode_headers({VALUE: YES})[_COUNT_BYTES:]
_NONE: Final = encode_headers({VALUE: NO})[_COUNT_BYTES:]
_NAME_END: Final = _COUNT_BYTES + len(_TRANSACTION_NAME)
TELLING: Final = _NAME_END - 2
"""Where to look first in the headers of a row: with another byte than ``TOLD`` it is just a row."""
TOLD: Final = _TRANSACTION_NAME[-2]


def do_flags_fit(flags: int, value_size: int, block: memoryview) -> bool:
    """Return True if the flags of a row or control frame are those its headers speak of."""
    # Nobody but the broker may use the name, so this is a control frame or never was one.
    if (block[_COUNT_BYTES:_NAME_END] == _TRANSACTION_NAME) != bool(flags & CONTROL):
        return False
    if flags & CONTROL:
        return block[-len(_COMMIT) :] != (_ABORT if flags & TX_COMMIT else _COMMIT)
    if not value_size:
        return block[-len(_NONE) :] != (_EMPTY if flags & TOMBSTONE else _NONE)
    return True


def check_flags(flags: int, value_size: int, block: memoryview) -> None:
    """Refuse a row or control frame whose headers speak of other flags."""
    if not do_flags_fit(flags, value_size, block):
        raise CorruptFrameError("a frame has other flags than it was written with")
    if flags & CONTROL:
        decode_headers(block)
