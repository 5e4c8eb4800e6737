"""The messages every peer publishes: seeded, with keys, made before any clock starts."""

import random
from collections.abc import Iterator
from itertools import cycle, islice
from typing import NamedTuple

KEYS = 10_000
POOL_MESSAGES = 50_000
"""Distinct messages; a load larger than this repeats them, so memory stays small."""


class Message(NamedTuple):
    """What a producer hands to ``send``."""

    key: bytes
    value: bytes


class MessagePool:
    """A fixed set of messages of one size that can be drawn from for ever."""

    def __init__(self, value_bytes: int, *, seed: int = 1) -> None:
        dice = random.Random(seed)
        self.value_bytes = value_bytes
        self._messages = [
            Message(b"key-%05d" % dice.randrange(KEYS), dice.randbytes(value_bytes))
            for _ in range(POOL_MESSAGES)
        ]

    def take(self, count: int) -> Iterator[Message]:
        """Yield this many messages, always the same ones in the same order."""
        return islice(cycle(self._messages), count)

    def take_text(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield keys and values as text of the same size, for JSON."""
        for key, value in self.take(count):
            yield key.decode(), value.hex()[: self.value_bytes]
