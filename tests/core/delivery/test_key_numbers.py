"""The numbers of keys: the same wherever a key stands, and others for other keys."""

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from goqueue.core.delivery.key_numbers import NO_KEY, key_number, key_numbers

COLUMNS: dict[str, Callable[[Random], list[bytes | None]]] = {
    "one size": lambda dice: [dice.randbytes(9) for _ in range(3_000)],
    "many sizes": lambda dice: [dice.randbytes(dice.randrange(12)) for _ in range(9_000)],
    "long": lambda dice: [dice.randbytes(dice.randrange(20_000)) for _ in range(30)],
    "empty": lambda _: [b"", b"", b""],
    "one large size": lambda dice: [dice.randbytes(30_000) for _ in range(5)],
    "zeros": lambda _: [bytes(count) for count in range(200)],
    "missing": lambda dice: [dice.choice([None, b"", b"a", b"bc"]) for _ in range(500)],
    "none": lambda _: [None, None],
    "nothing": lambda _: [],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_key_has_one_number_wherever_it_stands(name: str) -> None:
    """Messages of a key share a line, whatever batch they are in and whatever is beside them."""
    keys = COLUMNS[name](Random(1))
    column = pa.array(keys, pa.binary())
    numbers = key_numbers(column).tolist()

    assert numbers == [key_number(key) for key in keys]
    assert len(set(numbers)) == len(set(keys))
    assert [number == NO_KEY for number in numbers] == [key is None for key in keys]
    assert key_numbers(column.slice(1)).tolist() == numbers[1:]


def test_buffers_may_be_larger_than_they_need_to_be() -> None:
    """Whoever sends a batch says how large its buffers are, and Arrow asks for enough only."""
    keys = [b"ab", b"c"]
    _, ends, held = pa.array(keys, pa.binary()).buffers()
    roomy = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(ends.to_pybytes()[:12] + b"x"), held]
    )
    roomy.validate(full=True)

    assert key_numbers(roomy).tolist() == [key_number(key) for key in keys]
