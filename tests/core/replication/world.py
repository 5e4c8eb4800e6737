"""Virtual time, and a network that loses, repeats, delays and reorders what nodes say."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

CONTROLLER = "controller"


@dataclass
class Weather:
    """How bad the network is."""

    loss: float = 0.0
    repeats: float = 0.0
    reorders: float = 0.0
    delay_ms_max: int = 5


class World:
    """Events in the order of their times, and of their making where times are equal."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000
        self.weather = Weather()
        self.trace = 0
        """A checksum of what happened when: equal seeds have equal ones."""
        self._cut: dict[tuple[str, str], None] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, action))

    def run(self, duration_ms: int, *, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; return whether the condition was met."""
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            if until is not None and until():
                return True
            self.now_ms, count, action = heapq.heappop(self._events)
            self.trace = hash((self.trace, self.now_ms, count))
            action()
        self.now_ms = end_ms
        return until is not None and until()

    # The network.

    def cut(self, source: str, target: str) -> None:
        """Lose everything that one says to another."""
        self._cut[source, target] = None

    def isolate(self, node: str, others: list[str]) -> None:
        for other in others:
            self.cut(node, other)
            self.cut(other, node)

    def heal(self) -> None:
        self._cut.clear()
        self.weather = Weather()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def send(
        self, source: str, target: str, deliver: Callable[[Any], None], message: object
    ) -> None:
        """Have something said, which may be lost on its way."""
        random, weather = self.random, self.weather
        if self.is_cut(source, target) or random.random() < weather.loss:
            return
        times = 2 if random.random() < weather.repeats else 1
        for _ in range(times):
            at_ms = self.now_ms + random.randint(1, weather.delay_ms_max)
            if random.random() >= weather.reorders:
                at_ms = max(at_ms, self._last.get((source, target), 0))
                self._last[source, target] = at_ms
            self.after(at_ms - self.now_ms, lambda: self._arrive(source, target, deliver, message))

    def _arrive(
        self, source: str, target: str, deliver: Callable[[Any], None], message: object
    ) -> None:
        if not self.is_cut(source, target):
            deliver(message)
