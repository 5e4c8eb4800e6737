"""Hashing a column of keys gives what hashing each of them gives."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from mmh3 import mmh3_32_uintdigest

from goqueue.core.producers.murmur import LONG_KEY_BYTES, hash_keys


@given(st.lists(st.none() | st.binary(max_size=LONG_KEY_BYTES + 9), max_size=60), st.integers(0, 5))
def test_a_column_hashes_like_its_keys(keys: list[bytes | None], skipped: int) -> None:
    """Whatever the sizes, with nulls in between and from any slice."""
    column = pa.array(keys, pa.binary()).slice(skipped)

    hashes = hash_keys(column)

    for key, number in zip(keys[skipped:], hashes.tolist(), strict=True):
        assert key is None or number == mmh3_32_uintdigest(key)


def test_no_keys_have_no_hashes() -> None:
    assert hash_keys(pa.array([], pa.binary())).dtype == np.uint32
