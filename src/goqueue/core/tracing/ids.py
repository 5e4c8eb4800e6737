"""The ids of traces and spans, worked out from where a message lies.

Shape: codec. Nothing is stored for a message whose sender gave no trace id: the id is made of the
partition's tag and the offset, and says both again to whoever knows the tag. All numbers have 64
bits; a trace id is the tag in the upper half and the mixed offset in the lower one.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, Any]

MASK: Final = 2**64 - 1
TRACE_ID_HEX: Final = 32
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_FIRST_INVERSE: Final = pow(_FIRST, -1, 2**64)
_SECOND_INVERSE: Final = pow(_SECOND, -1, 2**64)
_GOLDEN: Final = 0x9E3779B97F4A7C15
_ROOT: Final = 0x7261636574726F6F
_LEASE: Final = 0x6C65617365737061
_FEW: Final = 16
"""So many ids are made one by one, which takes less time than one column."""


class TracePlace(NamedTuple):
    """A partition in one life of its topic."""

    topic: str
    partition: int
    tag: int


def place_of(topic: str, partition: int, *, life: int) -> TracePlace:
    """Return a partition with its tag; ``life`` tells a topic from a deleted one of its name."""
    text = f"{topic}/{partition}/{life}"
    tag = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return TracePlace(topic, partition, tag or 1)


def mix(number: int) -> int:
    """Return another number of 64 bits, as if by chance; every number has its own."""
    number = ((number ^ (number >> 30)) * _FIRST) & MASK
    number = ((number ^ (number >> 27)) * _SECOND) & MASK
    return number ^ (number >> 31)


def mix_all(numbers: Numbers) -> Numbers:
    """Mix a column of unsigned numbers; whatever does not fit 64 bits is cut off."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_SECOND)
    result: Numbers = mixed ^ (mixed >> np.uint64(31))
    return result


def unmix(number: int) -> int:
    """Return the number that was mixed."""
    number = ((number ^ (number >> 31) ^ (number >> 62)) * _SECOND_INVERSE) & MASK
    number = ((number ^ (number >> 27) ^ (number >> 54)) * _FIRST_INVERSE) & MASK
    return number ^ (number >> 30) ^ (number >> 60)


def trace_id_of(tag: int, offset: int) -> int:
    """Return the trace id of a message whose sender gave none."""
    return tag << 64 | mix((offset + tag) & MASK)


def offset_of(trace_id: int) -> int:
    """Return the offset of the message an id was made for, if its tag is a partition's."""
    return (unmix(trace_id & MASK) - (trace_id >> 64)) & MASK


def root_span_of(tag: int, offset: int) -> int:
    """Return the span every other of a message descends from."""
    return mix(mix((offset + tag) & MASK) ^ tag ^ _ROOT) or 1


def ids_of(tag: int, offsets: Numbers) -> tuple[list[int], list[int]]:
    """Return the lower halves of trace ids, and the first spans, of many messages."""
    if len(offsets) <= _FEW:
        few = [mix((offset + tag) & MASK) for offset in offsets.tolist()]
        return few, [mix(lower ^ tag ^ _ROOT) or 1 for lower in few]
    lower = mix_all(offsets.astype(np.uint64) + np.uint64(tag))
    roots = mix_all(lower ^ np.uint64(tag) ^ np.uint64(_ROOT))
    return lower.tolist(), np.where(roots == 0, np.uint64(1), roots).tolist()


def lease_span_of(nonce: int, offset: int) -> int:
    """Return the span of a delivery."""
    return mix(nonce ^ mix(offset ^ _LEASE)) or 1


def event_span_of(root: int, kind: int, at_ns: int) -> int:
    """Return the span of anything else that happened to a message."""
    return mix((root + kind * _GOLDEN & MASK) ^ at_ns) or 1


def hex_of(trace_id: int) -> str:
    """Return a trace id as people write it."""
    return f"{trace_id:032x}"


def parse_trace_id(text: str) -> int | None:
    """Read a trace id; None if it is none."""
    if len(text) != TRACE_ID_HEX or not set(text) <= set("0123456789abcdefABCDEF"):
        return None
    return int(text, 16) or None
