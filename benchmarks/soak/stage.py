"""What every part of the load shares: where the broker is, how fast to go, what was done."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import goqueue

TICK_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 1.0
"""How long a part that failed waits before it begins again."""
TEMPORARY: Final = (goqueue.GoQueueError, OSError, TimeoutError)

ORDERS, TABLE, WORK, LATER, ONCE, TYPED, PLAIN, COOKED = (
    "orders", "table", "work", "later", "once", "typed", "plain", "cooked",
)  # fmt: skip

Settings = dict[str, str | float]
SMALL: Final[Settings] = {"segment_bytes": 1 << 20, "retention_bytes": 4 << 20}
"""Segments that fill and are deleted within minutes."""
TOPICS: Final[dict[str, Settings]] = {
    ORDERS: SMALL,
    TABLE: {"segment_bytes": 256 << 10, "cleanup_policy": "compact", "min_dirty_ratio": 0.5},
    WORK: SMALL,
    LATER: SMALL,
    ONCE: {**SMALL, "dedup_window_ms": 60_000},
    TYPED: {**SMALL, "schema_validation": "dlq"},
    PLAIN: SMALL,
    COOKED: SMALL,
}
SCHEMA: Final = """{"type": "object", "required": ["id"],
 "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}"""


@dataclass(slots=True)
class Stage:
    """One process of the load. The parts of it run in threads."""

    address: str
    http: str
    rate: float
    """Publishes a second of all parts of all processes together."""
    until: float
    """The reading of the monotonic clock at which the load ends."""
    counts: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        """Say whether the load should end."""
        return self.stop.is_set() or time.monotonic() >= self.until

    def connect(self) -> goqueue.Client:
        """Return a client of its own connection."""
        return goqueue.connect(self.address)

    def pause(self, seconds: float) -> None:
        """Wait, or less if the load ends before."""
        self.stop.wait(max(min(seconds, self.until - time.monotonic()), 0))

    def batches(self, share: float) -> Iterator[range]:
        """Yield the numbers that are due, at a share of the rate, until the load ends."""
        start, done = time.monotonic(), 0
        while not self.is_over:
            due = int((time.monotonic() - start) * self.rate * share)
            if due > done:
                yield range(done, due)
                done = due
            self.pause(TICK_SECONDS)

    def every(self, seconds: float) -> Iterator[int]:
        """Yield a number each time so many seconds are over, until the load ends."""
        number = 0
        while not self.is_over:
            yield number
            number += 1
            self.pause(seconds)

    def keep_on(self, name: str, part: Callable[["Stage"], None]) -> None:
        """Run a part, and again when it fails, until the load ends."""
        while not self.is_over:
            try:
                part(self)
            except TEMPORARY as error:
                self.counts[f"error {name}: {type(error).__name__}"] += 1
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                self.pause(PAUSE_SECONDS)


def prepare(client: goqueue.Client) -> None:
    """Make the topics and the schema."""
    for name, settings in TOPICS.items():
        client.create_topic(name, partitions=3, **settings)
    client.schemas.register(TYPED, SCHEMA)
