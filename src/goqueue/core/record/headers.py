"""The headers block of a row frame: the user's headers and the broker's own.

Shape: codec. A count (u16), then per header: key size (u16), key, value size (u16), value.
Names that begin with ``__`` are the broker's; a user's message may not carry them.
"""

import struct
from collections.abc import Mapping
from typing import Final

from goqueue.base.errors import CorruptFrameError, InvalidRequestError, TooLargeError
from goqueue.base.limits import HEADERS_BYTES_MAX, HEADERS_COUNT_MAX

RESERVED_PREFIX: Final = "__"
PRODUCER: Final = "__producer"
DELIVER_AT: Final = "__deliver_at"
DEDUP_ID: Final = "__dedup_id"
ORIGIN: Final = "__origin"
"""Which message this one was before the broker moved it here; strangers may not send it."""
TRACE: Final = "__trace"
"""The trace a message had before the broker moved it here; strangers may not send it."""
OWN_HEADERS_BYTES: Final = 512
"""Room kept for the broker's own headers, so that a user's block never overflows by them."""

_U16: Final = struct.Struct(">H")
U64: Final = struct.Struct(">q")
PRODUCER_FIELDS: Final = struct.Struct(">QHQ")

Headers = Mapping[str, bytes]


def check_headers(headers: Mapping[str, bytes | str]) -> dict[str, bytes]:
    """Return a user's headers as they are stored, or raise naming the one at fault."""
    if len(headers) > HEADERS_COUNT_MAX:
        raise TooLargeError(f"headers: {len(headers)} headers; the limit is {HEADERS_COUNT_MAX}")
    checked: dict[str, bytes] = {}
    size = 2
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes | str):
            raise InvalidRequestError("headers: names are text, values are bytes or text")
        if name.startswith(RESERVED_PREFIX):
            raise InvalidRequestError(f"headers: names beginning with '__' are reserved: {name!r}")
        stored = value if isinstance(value, bytes) else value.encode()
        size += 4 + len(name.encode()) + len(stored)
        checked[name] = stored
    if size > HEADERS_BYTES_MAX - OWN_HEADERS_BYTES:
        raise TooLargeError(
            f"headers: {size} bytes; the limit is {HEADERS_BYTES_MAX - OWN_HEADERS_BYTES}"
        )
    return checked


def encode_headers(headers: Headers) -> bytes:
    """Lay out a headers block; no headers make no block."""
    if not headers:
        return b""
    parts = [_U16.pack(len(headers))]
    for name, value in headers.items():
        key = name.encode()
        parts += (_U16.pack(len(key)), key, _U16.pack(len(value)), value)
    return b"".join(parts)


def decode_headers(block: bytes | memoryview) -> dict[str, bytes]:
    """Read a headers block, refusing one whose lengths lie."""
    if not block:
        return {}
    raw = bytes(block)
    headers: dict[str, bytes] = {}
    try:
        (count,) = _U16.unpack_from(raw)
        position = 2
        for _ in range(count):
            name, position = _take(raw, position)
            value, position = _take(raw, position)
            headers[name.decode()] = value
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptFrameError(f"headers block is malformed: {error}") from error
    if position != len(raw):
        raise CorruptFrameError("headers block has bytes behind its last header")
    return headers


def _take(raw: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _U16.unpack_from(raw, position)
    end = position + 2 + size
    if end > len(raw):
        raise CorruptFrameError("headers block is shorter than its lengths say")
    return raw[position + 2 : end], end
