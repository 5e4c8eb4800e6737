"""What a message costs in a batch, and which one is too large for any."""

from typing import Final

from goqueue.base.errors import TooLargeError
from goqueue.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX

ROW_OVERHEAD_BYTES: Final = 24
"""What a message costs in a batch beside its key and value."""

OVERSIZE_SUSPECT_BYTES: Final = KEY_BYTES_MAX
"""Below this a message needs no closer look at its sizes."""


def size_of(value: bytes | None, key: bytes | None) -> int:
    """Return what a message costs in a batch, refusing what is not bytes or too large."""
    for field, part in (("value", value), ("key", key)):
        if part is not None and not isinstance(part, bytes):
            raise TypeError(f"{field} must be bytes or None, not {type(part).__name__}")
    size = len(value or b"") + len(key or b"") + ROW_OVERHEAD_BYTES
    if size > OVERSIZE_SUSPECT_BYTES:
        _check_sizes(value, key)
    return size


def _check_sizes(value: bytes | None, key: bytes | None) -> None:
    if value is not None and len(value) > VALUE_BYTES_MAX:
        raise TooLargeError(f"value: {len(value)} bytes; the limit is {VALUE_BYTES_MAX}")
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise TooLargeError(f"key: {len(key)} bytes; the limit is {KEY_BYTES_MAX}")
