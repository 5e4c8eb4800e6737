"""The shop at work: orders published at a steady rate until it is told to stop."""

import threading
import time
from typing import Final

from examples.demo.orders import Shop
from goqueue import Client
from goqueue.base.errors import GoQueueError

TICK_S: Final = 0.05
BURST_S_MAX: Final = 1.0
"""How much of what was missed, by a busy machine or a slow disk, is made up for."""


class Publisher:
    """Publishes the orders of a shop in a thread of its own."""

    def __init__(self, client: Client, topic: str, shop: Shop, *, rate: int, most: int) -> None:
        self._client = client
        self._topic = topic
        self._shop = shop
        self._rate = rate
        self._most = most
        self._refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="demo-publisher", daemon=True)
        self.failure: BaseException | None = None
        """What ended it too early."""

    def __repr__(self) -> str:
        return f"<Publisher: {self.sent} orders>"

    @property
    def sent(self) -> int:
        """Orders handed to the producer."""
        return self._shop.tally.total()

    @property
    def acknowledged(self) -> int:
        """Orders that are on the disk; certain after ``stop``."""
        return self.sent - self._refused

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def stop(self) -> None:
        """Publish no more, and wait until everything is acknowledged."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            with self._client.producer(self._topic, on_error=self._note) as producer:
                owed = 0.0
                before_s = time.monotonic()
                while not self._stop.wait(TICK_S) and self.sent < self._most:
                    now_s = time.monotonic()
                    owed += min(now_s - before_s, BURST_S_MAX) * self._rate
                    before_s = now_s
                    for _ in range(min(int(owed), self._most - self.sent)):
                        order = self._shop.next(time.time_ns() // 1_000)
                        producer.send(order.value, key=order.key)
                    owed %= 1
        except BaseException as error:  # noqa: BLE001 - raised by who watches
            self.failure = error

    def _note(self, error: GoQueueError, count: int) -> None:
        self._refused += count
        self.failure = error
