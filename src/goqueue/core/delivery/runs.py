"""Sets of offsets as they travel and rest, mostly runs: ``[start, end, start, end, …]``, half-open.

Shape: codec.
"""

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import le, lt
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

Numbers = np.ndarray[Any, Any]
Runs = list[int]
"""Half-open ranges, flat: cheap to encode and to read."""
Written = Runs | bytes
"""A set as it travels and rests: runs, or, where they would be many, packed: the first offset in
eight bytes, then what each is behind it in four (little-endian)."""

_FIRST: Final = struct.Struct("<q")
_RUNS_MAX: Final = 16
_RUN_NUMBERS: Final = 2
_PREFIX: Final = struct.Struct("<QIII")
_PART: Final = struct.Struct("<HH")
_PLACE: Final = struct.Struct("<I")
_NO_RUNS_COOKIE: Final = 12_346
_ARRAY_MAX: Final = 4_096
_PACKED_MIN: Final = 64
_PACKED_PARTS_MAX: Final = 64
"""Fewer numbers, or more parts, are better added one by one."""
_KEPT_SETS: Final = 16
_KEPT_BYTES_MAX: Final = 1 << 16
"""A packed set is read by each who meets it on its way: the last few are kept as they were read."""


def array_of(offsets: BitMap64) -> Numbers:
    """Return a set as an array, ascending."""
    return np.frombuffer(offsets.to_array(), np.int64)


def set_from(offsets: Numbers) -> BitMap64:
    """Return an array, ascending and without doubles, as a set.

    Made in the form sets are stored in (RoaringFormatSpec), which takes a tenth of the time that
    adding numbers takes: parts of 65,536 with their high bits, then the low bits of each.
    """
    count = len(offsets)
    top = int(offsets[0]) >> 32 if count else 0
    if count < _PACKED_MIN or int(offsets[-1]) >> 32 != top:
        return BitMap64(offsets.view(np.uint64))
    breaks = _breaks_between_parts(offsets)
    if len(breaks) >= _PACKED_PARTS_MAX:
        return BitMap64(offsets.view(np.uint64))
    low = offsets.astype("<u2")
    heads, places, bodies = [], [], []
    position = 8 * (len(breaks) + 2)
    for start, end in zip([0, *breaks], [*breaks, count], strict=True):
        body = low[start:end].tobytes()
        if end - start > _ARRAY_MAX:
            bits = np.zeros(1 << 16, bool)
            bits[low[start:end]] = True
            body = np.packbits(bits, bitorder="little").tobytes()
        heads.append(_PART.pack(int(offsets[start]) >> 16 & 0xFFFF, end - start - 1))
        places.append(_PLACE.pack(position))
        bodies.append(body)
        position += len(body)
    prefix = _PREFIX.pack(1, top, _NO_RUNS_COOKIE, len(heads))
    return BitMap64.deserialize(b"".join((prefix, *heads, *places, *bodies)))


def _breaks_between_parts(offsets: Numbers) -> list[int]:
    """Return where in an ascending array another part of 65,536 begins."""
    first, last = int(offsets[0]) >> 16, int(offsets[-1]) >> 16
    if first == last:
        return []
    if last - first >= _PACKED_PARTS_MAX:
        parts = offsets >> 16
        breaks: list[int] = ((parts[1:] != parts[:-1]).nonzero()[0] + 1).tolist()
        return breaks
    borders = np.arange(first + 1, last + 1) << 16
    # Where there is nothing in a part, the next begins at the same place.
    return list(dict.fromkeys(offsets.searchsorted(borders).tolist()))


def runs_of(offsets: BitMap64) -> Runs:
    """Return a set as runs, ascending."""
    count = len(offsets)
    if not count:
        return []
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == count:
        return [first, last + 1]
    return runs_in(array_of(offsets))


def runs_in(offsets: Sequence[int] | np.ndarray) -> Runs:
    """Return a sequence as runs in its own order: a run ends where the next is not one more."""
    numbers = np.asarray(offsets, np.int64)
    if len(numbers) <= _RUNS_MAX:
        return _few_runs(numbers.tolist())
    (breaks,) = (numbers[1:] - numbers[:-1] != 1).nonzero()
    flat = np.empty(2 * len(breaks) + 2, np.int64)
    flat[0], flat[-1] = numbers[0], numbers[-1] + 1
    flat[1:-1:2] = numbers[breaks] + 1
    flat[2::2] = numbers[breaks + 1]
    runs: Runs = flat.tolist()
    return runs


def _few_runs(numbers: list[int]) -> Runs:
    """Return the runs of a few numbers, for which arrays would take several times as long."""
    runs: Runs = []
    for number in numbers:
        if runs and runs[-1] == number:
            runs[-1] = number + 1
        else:
            runs += (number, number + 1)
    return runs


def written_of(offsets: BitMap64) -> Written:
    """Return a set in the shorter of its forms."""
    first, last = (offsets.min(), offsets.max()) if offsets else (0, -1)
    is_run = last - first + 1 == len(offsets)
    if is_run:
        return runs_of(offsets)
    written = _written_ascending(array_of(offsets))
    if isinstance(written, bytes):
        _just_packed.append((written, offsets.copy()))
        if len(written) <= _KEPT_BYTES_MAX:
            _ascends(written)
    return written


def written_in(offsets: Numbers) -> Written:
    """Return an array in the shorter of its forms; runs where it does not ascend."""
    ascends = len(offsets) > _RUNS_MAX and bool((offsets[1:] > offsets[:-1]).all())
    return _written_ascending(offsets) if ascends else runs_in(offsets)


def _written_ascending(offsets: Numbers) -> Written:
    """Return an ascending array in the shorter of its forms."""
    if len(offsets) <= _RUNS_MAX:
        return runs_in(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first >= 1 << 32 or np.count_nonzero(offsets[1:] - offsets[:-1] != 1) < _RUNS_MAX:
        return runs_in(offsets)
    behind: bytes = (offsets - first).astype("<u4").tobytes()
    return _FIRST.pack(first) + behind


def list_in(written: Written) -> list[int]:
    """Return the offsets of either form, in their order, as a list."""
    if len(written) == 2 and not isinstance(written, bytes):  # noqa: PLR2004 - one run
        return list(range(*written))
    numbers: list[int] = numbers_in(written).tolist()
    return numbers


def is_ascending(written: Written) -> bool:
    """Return True if the offsets of either form ascend in their order."""
    return isinstance(written, bytes) or all(map(le, written, written[1:]))


def numbers_in(written: Written) -> Numbers:
    """Return the offsets of either form, in their order."""
    if isinstance(written, bytes):
        return _unpack(written) if len(written) <= _KEPT_BYTES_MAX else _unpack_anew(written)
    parts = [np.arange(start, end) for start, end in zip(written[::2], written[1::2], strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _unpack_anew(written: bytes) -> Numbers:
    numbers: Numbers = np.frombuffer(written, "<u4", -1, _FIRST.size) + np.int64(
        _FIRST.unpack_from(written)[0]
    )
    # Others may be given the same.
    numbers.flags.writeable = False
    return numbers


_unpack = lru_cache(_KEPT_SETS)(_unpack_anew)


_just_packed: Final[deque[tuple[bytes, BitMap64]]] = deque(maxlen=1)
"""The last set that was packed: whoever packs one is about to hand it on."""


@lru_cache(_KEPT_SETS)
def _set_in(written: bytes) -> BitMap64:
    for known, offsets in tuple(_just_packed):
        if known is written:
            return offsets
    return set_from(_unpack(written))


def _ascends_anew(written: bytes) -> bool:
    behind = np.frombuffer(written, "<u4", -1, _FIRST.size)
    return bool((behind[1:] > behind[:-1]).all())


@lru_cache(_KEPT_SETS)
def _ascends(written: bytes) -> bool:
    """Return True if a packed set ascends. Most that come were packed here, and come back."""
    return any(known is written for known, _ in tuple(_just_packed)) or _ascends_anew(written)


def set_of(written: Written | Iterable[int]) -> BitMap64:
    """Return either form as a set of the caller's own."""
    if isinstance(written, bytes):
        if len(written) > _KEPT_BYTES_MAX:
            return set_from(numbers_in(written))
        return _set_in(written).copy()
    offsets = BitMap64()
    if type(written) is list and len(written) == _RUN_NUMBERS:
        offsets.add_range(written[0], written[1])
        return offsets
    ends = iter(written)
    for start, end in zip(ends, ends, strict=True):
        offsets.add_range(start, end)
    return offsets


def peek_at(written: Written) -> BitMap64:
    """Return either form as a set that is not to be changed: others may be given the same."""
    if isinstance(written, bytes) and len(written) <= _KEPT_BYTES_MAX:
        return _set_in(written)
    return set_of(written)


def put_into(target: BitMap64, offsets: BitMap64) -> None:
    """Add a set to another in place; one run costs the same however large the other is."""
    if not offsets:
        return
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == len(offsets):
        target.add_range(first, last + 1)
    else:
        target |= offsets


def take_from(target: BitMap64, offsets: BitMap64) -> None:
    """Take a set out of another in place; one run costs the same however large the other is."""
    if not offsets or not target:
        return
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == len(offsets):
        target.remove_range(first, last + 1)
    else:
        target -= offsets


def count_of(written: Sequence[int] | bytes) -> int:
    """Return how many offsets there are in either form."""
    if isinstance(written, bytes):
        return (len(written) - _FIRST.size) // 4
    if len(written) == _RUN_NUMBERS:
        return written[1] - written[0]
    return sum(written[1::2]) - sum(written[::2])


def is_written(written: Written, *, end_offset: int) -> bool:
    """Return True if what a stranger wrote is a set: ascending, none empty, within a bound."""
    if isinstance(written, bytes):
        if len(written) <= _FIRST.size or (len(written) - _FIRST.size) % 4:
            return False
        (first,) = _FIRST.unpack_from(written)
        (lowest,) = _PLACE.unpack_from(written, _FIRST.size)
        (highest,) = _PLACE.unpack_from(written, len(written) - _PLACE.size)
        ascends = (_ascends if len(written) <= _KEPT_BYTES_MAX else _ascends_anew)(written)
        return ascends and first + lowest >= 0 and first + highest < end_offset
    if len(written) == _RUN_NUMBERS:
        return 0 <= written[0] < written[1] <= end_offset
    if len(written) % 2:
        return False
    ascends = all(map(le, chain((0,), written), written))
    has_no_empty = all(map(lt, written[::2], written[1::2]))
    return ascends and has_no_empty and (not written or written[-1] <= end_offset)
