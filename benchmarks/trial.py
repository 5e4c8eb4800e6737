"""The unit of work of a run: one peer doing one thing once, and what is measured on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.messages import MessagePool
from benchmarks.options import Options
from benchmarks.peers.goqueue import GoQueue
from benchmarks.peers.peer import Peer
from benchmarks.results import Better


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number a trial yields."""

    name: str
    unit: str
    better: Better


RATE = Metric(name="rate", unit="msg/s", better=Better.HIGHER)
P50 = Metric(name="p50", unit="ms", better=Better.LOWER)
P99 = Metric(name="p99", unit="ms", better=Better.LOWER)

Measured = Mapping[Metric, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One peer in one case; calling ``measure`` runs it once."""

    case: str
    peer: str
    measure: Callable[[], Measured]


@dataclass(slots=True, kw_only=True)
class Bench:
    """What a workload may use: the running peers, a scratch directory and messages."""

    options: Options
    goqueue: GoQueue
    others: list[Peer]
    scratch: Path
    _pools: dict[int, MessagePool] = field(default_factory=dict)
    _topics: int = 0

    @property
    def peers(self) -> list[Peer]:
        """Return every running peer, GoQueue first."""
        return [self.goqueue, *self.others]

    def pool(self, value_bytes: int) -> MessagePool:
        """Return the messages of this size."""
        if value_bytes not in self._pools:
            self._pools[value_bytes] = MessagePool(value_bytes)
        return self._pools[value_bytes]

    def fresh_topic(self) -> str:
        """Return a topic name no trial has used."""
        self._topics += 1
        return f"bench-{self._topics}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A question, and the trials whose alternating rounds answer it."""

    name: str
    title: str
    trials: Callable[[Bench], list[Trial]]
    rounds_max: int = 100
    """Fewer rounds than asked for where one round is long or the answer hardly varies."""
