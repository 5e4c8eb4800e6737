"""The order of keys beside a naive model: a list of messages that is walked from its beginning."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery.key_lines import KeyLines
from goqueue.core.delivery.key_numbers import NO_KEY, STEP, key_number
from goqueue.core.delivery.key_order import KeyOrder
from goqueue.core.delivery.runs import Numbers

Key = bytes | None
Number = Callable[[Key], int]


class Walked:
    """The model: every message that is not settled, in order, with the number of its key."""

    def __init__(self) -> None:
        self.rest: dict[int, int | None] = {}

    def heads(self) -> set[int]:
        found: set[int] = set()
        seen: set[int] = set()
        for offset, number in self.rest.items():
            if number is None or number not in seen:
                found.add(offset)
            if number is not None:
                seen.add(number)
        return found

    def in_line(self) -> int:
        return sum(number is not None for number in self.rest.values())


def few(key: Key) -> int:
    """Give many keys one number."""
    return hash(key) % 3 * STEP


def numbered(keys: Sequence[Key], number: Number = key_number) -> Numbers:
    """Return the numbers of keys."""
    return np.array([NO_KEY if key is None else number(key) for key in keys], np.int64)


class Life:
    """An order, its model, and what is looked at and settled at random."""

    def __init__(self, seed: int, *, number: Number, keys: int, spare: int) -> None:
        self.random = Random(seed)
        self.number = number
        self.names: list[Key] = [None, *(b"%d" % name for name in range(keys))]
        self.order = KeyOrder(Offset(0), lines=KeyLines(spare=spare))
        self.model = Walked()
        self.end = 0
        self.gap = self.random.choice([7, 300])

    def look(self) -> None:
        """Look at more of the log, which has holes, and some of which is settled already."""
        offsets: list[int] = []
        keys: list[Key] = []
        settled = BitMap64()
        for _ in range(self.random.randrange(1, 60)):
            self.end += self.random.choice([1, 1, 1, 1, self.gap])
            offsets.append(self.end - 1)
            keys.append(self.random.choice(self.names))
            if self.random.random() < 0.1:
                settled.add(offsets[-1])
            else:
                number = None if keys[-1] is None else self.number(keys[-1])
                self.model.rest[offsets[-1]] = number
        self.order.look(np.array(offsets), numbered(keys, self.number), settled)

    def settle(self) -> None:
        """Settle heads, as consumers do; now and then others, or a whole part of the log."""
        heads = list(self.order.heads)
        chosen = BitMap64(self.random.sample(heads, self.random.randrange(len(heads) + 1)))
        kind = self.random.random()
        if kind < 0.3 and self.model.rest:
            chosen |= BitMap64(
                self.random.sample(list(self.model.rest), 1 + len(self.model.rest) // 3)
            )
        elif kind < 0.4:
            chosen.add_range(0, self.random.randrange(1, self.end + 2))
        elif kind < 0.45:
            chosen |= BitMap64(range(self.random.randrange(2), 3 * self.end, 2))
        self.order.settle(chosen)
        for offset in chosen:
            self.model.rest.pop(offset, None)

    def check(self) -> None:
        assert set(self.order.heads) == self.model.heads()
        assert self.order.looked_offset == self.end


@pytest.mark.parametrize("number", [key_number, few])
@pytest.mark.parametrize("keys", [1, 5, 200])
@pytest.mark.parametrize("spare", [1_024, 4])
@pytest.mark.parametrize("seed", range(12))
def test_only_the_first_message_of_every_key_is_a_head(
    seed: int, spare: int, keys: int, number: Number
) -> None:
    """The first unsettled message of a key may be delivered and no other (P7); keys of one hash
    are one line. However few or many places there are for messages that are not waiting."""
    life = Life(seed, number=number, keys=keys, spare=spare)
    for _ in range(120):
        life.random.choice((life.look, life.settle, life.settle))()
        life.check()
    life.order.settle(BitMap64(life.model.rest))

    assert not life.order.heads
    assert len(life.order) == 0


def test_a_long_line_that_is_settled_at_once_is_passed_at_once() -> None:
    """A commit may step over any number of messages of one key."""
    count = 300_000
    order = KeyOrder(Offset(0))
    order.look(np.arange(count), np.full(count, STEP), BitMap64())
    behind = BitMap64()
    behind.add_range(1, count - 1)
    behind -= BitMap64([count // 2])
    order.settle(behind)
    assert list(order.heads) == [0]
    order.settle(BitMap64([0]))
    assert list(order.heads) == [count // 2]
    order.settle(BitMap64([count // 2]))

    assert list(order.heads) == [count - 1]
    assert len(order) == 1


def test_messages_behind_a_stuck_one_are_packed() -> None:
    """A message in line takes tens of bytes, whatever its key, and none once it is settled."""
    count = 100_000
    order = KeyOrder(Offset(0))
    keys: list[Key] = [b"stuck" if place % 2 else b"%d" % place for place in range(count)]
    for start in range(0, count, 2_000):
        part = numbered(keys[start : start + 2_000])
        order.look(np.arange(start, start + 2_000), part, BitMap64())
        order.settle(order.heads - BitMap64([1]))

    assert len(order) == count // 2
    assert order.size_bytes < 80 * len(order)
