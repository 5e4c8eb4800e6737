"""What the harness asks of a client that handles one message at a time."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass

from benchmarks.messages import Message

Publish = Callable[[Message], object]
"""Publish a message; return when the broker has acknowledged it."""
AsyncPublish = Callable[[Message], Awaitable[object]]

Take = Callable[[], object]
"""Take one job and ack it; wait for one if there is none."""
AsyncTake = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbatched(ABC):
    """One peer's Python client, as an address that can be handed to another process."""

    port: int

    @abstractmethod
    def publisher(self, topic: str) -> AbstractContextManager[Publish]:
        """Connect; publish one message after the other."""

    @abstractmethod
    def publisher_async(self, topic: str) -> AbstractAsyncContextManager[AsyncPublish]:
        """Connect one client; several tasks may publish through it at a time."""

    @abstractmethod
    def fill(self, queue: str, jobs: Iterable[Message], *, durability: str) -> None:
        """Make a queue with a group of workers to come, and publish the jobs."""

    @abstractmethod
    def left(self, queue: str) -> int:
        """Return how many jobs are not acked, after the workers have left."""

    @abstractmethod
    def remove(self, queue: str) -> None:
        """Remove the queue and what it holds."""

    @abstractmethod
    def workers(self, queue: str, *, count: int) -> AbstractContextManager[list[Take]]:
        """Join so many workers, each for a thread of its own, each with one job at a time."""

    @abstractmethod
    def workers_async(
        self, queue: str, *, count: int
    ) -> AbstractAsyncContextManager[list[AsyncTake]]:
        """Join so many workers, each for a task of its own."""
