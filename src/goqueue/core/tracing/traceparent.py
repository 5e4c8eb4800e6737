"""The W3C header ``traceparent``: who called, and whether the caller's trace is recorded.

Shape: codec. ``00-`` trace id (32 hex digits) ``-`` span id (16) ``-`` flags (2), lower case. What
does not read like this is no traceparent, and is treated as if it were not there.
"""

import re
from typing import Final, NamedTuple

from goqueue.core.tracing.ids import Numbers, ids_of

HEADER: Final = "traceparent"
SAMPLED: Final = 0x01
TEXT_BYTES: Final = 55
PACKED_BYTES: Final = 24
TEXT_BYTES_MAX: Final = 512
"""A later version may add fields; more bytes than this are not looked at."""

_FORM: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
    re.DOTALL,
)


class TraceParent(NamedTuple):
    """The caller's span."""

    trace_id: int
    span_id: int
    is_sampled: bool


def parse_traceparent(text: bytes) -> TraceParent | None:
    """Read a header; None if it is malformed."""
    if len(text) > TEXT_BYTES_MAX:
        return None
    match = _FORM.fullmatch(text)
    if match is None or (match[5] is not None and match[1] == b"00"):
        return None
    return TraceParent(int(match[2], 16), int(match[3], 16), bool(int(match[4], 16) & SAMPLED))


def format_traceparent(parent: TraceParent) -> str:
    """Write a header."""
    flags = SAMPLED if parent.is_sampled else 0
    return f"00-{parent.trace_id:032x}-{parent.span_id:016x}-{flags:02x}"


def pack_parent(parent: TraceParent) -> bytes:
    """Return a recorded span as the broker's own header keeps it."""
    return parent.trace_id.to_bytes(16, "big") + parent.span_id.to_bytes(8, "big")


def unpack_parent(block: bytes) -> TraceParent | None:
    """Read the broker's own header; None if it is malformed."""
    if len(block) != PACKED_BYTES:
        return None
    trace_id, span_id = int.from_bytes(block[:16], "big"), int.from_bytes(block[16:], "big")
    return TraceParent(trace_id, span_id, is_sampled=True)


def traceparents_of(tag: int, offsets: Numbers) -> dict[int, str]:
    """Return the headers of traced messages whose senders gave none, by offset."""
    head = f"00-{tag:016x}"
    return {
        offset: f"{head}{lower:016x}-{root:016x}-01"
        for offset, lower, root in zip(offsets.tolist(), *ids_of(tag, offsets), strict=True)
    }
