"""One decider with its journal: decided, written and applied in one step."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.runtime.state_log import StateLog

E = TypeVar("E", bound=msgspec.Struct)


class Machine(Protocol[E]):
    """A decider whose events are kept."""

    def apply(self, event: E) -> None:
        """Change state by one event."""
        ...

    def snapshot(self) -> Iterable[E]:
        """Return the events that rebuild the state."""
        ...


class Kept(Generic[E]):
    """Writes the events of a machine and applies them."""

    def __init__(self, state: StateLog, key: str, *, home: str, machine: Machine[E]) -> None:
        self.key = key
        self._state = state
        self._home = home
        self._machine = machine

    def recover(self, kind: Any) -> None:  # noqa: ANN401 - a union is no type
        """Apply what happened in an earlier life."""
        for event in self._state.replay(self.key, kind):
            self._machine.apply(event)

    def commit(self, events: Sequence[E]) -> None:
        """Write events and make them true; ``durable`` tells when the disk has them."""
        if not events:
            return
        self._state.write(self.key, home=self._home, events=events, snapshot=self._machine.snapshot)
        for event in events:
            self._machine.apply(event)

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        return self._state.durable(self._home)

    def forget(self) -> None:
        """Write that the machine is gone."""
        forget(self._state, self.key, home=self._home)


def forget(state: StateLog, key: str, *, home: str) -> None:
    """Write that a machine is gone; should that be lost, the next start says it again."""
    with contextlib.suppress(GoQueueError):
        state.forget(key, home=home).add_done_callback(_look_at)


def _look_at(future: asyncio.Future[None]) -> None:
    """Look at how a write ended, so that nobody complains that it was not looked at."""
    if not future.cancelled():
        future.exception()
