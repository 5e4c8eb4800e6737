"""A steady trickle into every partition, and how long each was without an acknowledgement."""

import threading
import time
from functools import partial

import goqueue
from benchmarks.cluster.fleet import VALUE

MESSAGES_A_SECOND = 300
"""Of all partitions together: few enough for three nodes that share the processors of a client."""
PERIOD_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 60.0


class Pulse(threading.Thread):
    """Publishes to every partition in turn, and notes when each was last acknowledged."""

    def __init__(self, client: goqueue.Client, topic: str, partitions: int) -> None:
        super().__init__(name=f"pulse of {topic}", daemon=True)
        self._producer = client.producer(topic, linger_ms=1, delivery_timeout_ms=120_000)
        self._partitions = partitions
        self.period = max(PERIOD_SECONDS_MIN, partitions / MESSAGES_A_SECOND)
        self._over = threading.Event()
        self._under_way = [False] * partitions
        self.acked_at = [time.monotonic()] * partitions
        self._longest = [0.0] * partitions
        self._since = 0.0
        self._first: dict[int, float] = {}
        self.errors: list[BaseException] = []
        self.acked = 0

    def run(self) -> None:
        """Send to one partition after the other; one message of each is under way at a time."""
        number, step = 0, self.period / self._partitions
        due = time.monotonic()
        while not self._over.is_set():
            due += step
            pause = due - time.monotonic()
            if pause > 0:
                self._over.wait(pause)
            if not self._under_way[number]:
                self._under_way[number] = True
                future = self._producer.send(VALUE, partition=number)
                future.add_done_callback(partial(self._note, number))
            number = (number + 1) % self._partitions

    def _note(self, number: int, future: "goqueue.SendFuture") -> None:
        self._under_way[number] = False
        error = future.exception()
        if error is not None:
            self.errors.append(error)
            return
        self.acked += 1
        now = time.monotonic()
        self._first.setdefault(number, now - self._since)
        self._longest[number] = max(self._longest[number], now - self.acked_at[number])
        self.acked_at[number] = now

    def take_pauses(self) -> list[float]:
        """Return the longest pause of each partition since the last call, less the period."""
        now = time.monotonic()
        found = [
            max(0.0, longest, now - acked_at) - self.period
            for longest, acked_at in zip(self._longest, self.acked_at, strict=True)
        ]
        self._longest = [0.0] * self._partitions
        return [max(0.0, one) for one in found]

    def look_from(self, since: float) -> None:
        """Look for the first acknowledgement of each partition after a time."""
        self._since, self._first = since, {}

    def until_all(self) -> dict[int, float]:
        """Return after how long each partition has acknowledged a message again."""
        while len(self._first) < self._partitions:
            assert time.monotonic() - self._since < PAUSE_SECONDS_MAX, "a partition has no leader"
            time.sleep(0.005)
        return dict(self._first)

    def finish(self) -> None:
        """Stop."""
        self._over.set()
        self.join()
        self._producer.close()
