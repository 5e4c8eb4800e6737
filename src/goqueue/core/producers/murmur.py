"""Murmur3-32 of a whole column of keys at once.

Shape: calculator. The same numbers as hashing each key by itself (``partition_of_key``), without
making an object of any: rows are mixed block by block, all rows that have one more together.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from mmh3 import mmh3_32_uintdigest

Numbers = np.ndarray[Any, Any]

_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_BLOCK: Final = 4
_TAILS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
"""What is kept of the block in which a key ends, by how many bytes of it are the key's."""
LONG_KEY_BYTES: Final = 128
"""Longer keys are hashed one by one: few have them, and blocks of few rows cost as much as many."""


def hash_keys(keys: pa.Array) -> Numbers:
    """Return the hash of every key of a binary array; what a null has there means nothing."""
    count = len(keys)
    if not count:
        return np.zeros(0, np.uint32)
    _, ends, bytes_held = keys.buffers()
    ends_held = np.frombuffer(ends, np.int32, keys.offset + count + 1)
    offsets = ends_held[keys.offset :].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # A block past the last key is read, but never used: so there is always one.
    data = np.zeros(last - first + 2 * _BLOCK, np.uint8)
    if bytes_held is not None:
        data[: last - first] = np.frombuffer(bytes_held, np.uint8)[first:last]
    offsets -= first
    starts, sizes = offsets[:-1], np.diff(offsets)
    hashes = _mixed(_words(data), starts, np.where(sizes > LONG_KEY_BYTES, 0, sizes))
    for row in np.flatnonzero(sizes > LONG_KEY_BYTES).tolist():
        key = data[starts[row] : starts[row] + sizes[row]].tobytes()
        hashes[row] = mmh3_32_uintdigest(key)
    return hashes


def _words(data: Numbers) -> Numbers:
    """Return the block that begins at each byte: one copy, and a block is then one look."""
    return np.ndarray((len(data) - _BLOCK + 1,), "<u4", data, strides=(1,)).copy()


def _mixed(words: Numbers, starts: Numbers, sizes: Numbers) -> Numbers:
    hashes = np.zeros(len(starts), np.uint32)
    blocks = sizes // _BLOCK
    of_all = int(blocks.min())
    for block in range(of_all):
        hashes = _with_block(hashes, words.take(starts + block * _BLOCK))
    for block in range(of_all, int(blocks.max())):
        rows = np.flatnonzero(blocks > block)
        hashes[rows] = _with_block(hashes[rows], words.take(starts[rows] + block * _BLOCK))
    tail = words.take(starts + blocks * _BLOCK) & _TAILS.take(sizes % _BLOCK)
    return _finished(hashes ^ _scrambled(tail) ^ sizes.astype(np.uint32))


def _with_block(hashes: Numbers, word: Numbers) -> Numbers:
    mixed = _rotated(hashes ^ _scrambled(word), 13)
    mixed *= np.uint32(5)
    mixed += np.uint32(0xE6546B64)
    return mixed


def _scrambled(word: Numbers) -> Numbers:
    scrambled: Numbers = _rotated(word * _C1, 15) * _C2
    return scrambled


def _rotated(word: Numbers, bits: int) -> Numbers:
    rotated: Numbers = (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
    return rotated


def _finished(hashes: Numbers) -> Numbers:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    finished: Numbers = hashes ^ (hashes >> np.uint32(16))
    return finished
