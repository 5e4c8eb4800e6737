"""One transactional producer at work: its events in the state log, its end carried out.

Shape: host of a decider. Deciding, writing and applying happen in one step without ``await``.
"""

import asyncio
from collections.abc import Sequence

from goqueue.core.tx.events import Event
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.runtime.state_log import StateLog

KEY_PREFIX = "tx/"


class HostedTxProducer:
    """A transactional id, and those who wait for the end of its transaction."""

    def __init__(self, producer: TxProducer, state: StateLog) -> None:
        self.producer = producer
        self._state = state
        self.ending: asyncio.Task[None] | None = None
        """Carries out what was decided and could not be carried out at once."""
        # Guards the carrying out: one at a time tells everybody.
        self.end_turn = asyncio.Lock()
        self.renewed_from: Identity | None = None
        """Which life asked for this one."""
        self.publishing = 0
        """Requests whose messages are not durable yet."""
        # Guards the lives of the producer: one init at a time.
        self.turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<HostedTxProducer {self.producer!r}>"

    @property
    def key(self) -> str:
        """What its state is kept under."""
        return KEY_PREFIX + self.producer.name

    def commit(self, found: Sequence[Event]) -> None:
        """Write events and make them true; ``durable`` tells when the disk has them."""
        if not found:
            return
        self._state.write(
            self.key, home=self.producer.name, events=found, snapshot=self.producer.snapshot
        )
        for event in found:
            self.producer.apply(event)

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        return self._state.durable(self.producer.name)

    def forget(self) -> asyncio.Future[None]:
        """Write that there is no such producer any more."""
        return self._state.forget(self.key, home=self.producer.name)
