"""One transactional producer at work: its events in the state log, its end carried out.

Shape: host of a decider. Deciding, writing and applying happen in one step without ``await``.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from goqueue.core.tx.events import Event
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import State
from goqueue.runtime.state_log import StateLog

KEY_PREFIX = "tx/"


class HostedTxProducer:
    """A transactional id, and those who wait for the end of its transaction."""

    def __init__(
        self, producer: TxProducer, state: StateLog, busy: "dict[str, HostedTxProducer]"
    ) -> None:
        self.producer = producer
        self._state = state
        self._busy = busy
        self.ending: asyncio.Task[None] | None = None
        """Carries out what was decided and could not be carried out at once."""
        # Guards the carrying out: one at a time tells everybody.
        self.end_turn = asyncio.Lock()
        self.renewed_from: Identity | None = None
        """Which life asked for this one."""
        self.publishing = 0
        """Requests whose messages are not durable yet."""
        self.asked: list[asyncio.Future[None]] = []
        """What is done when the decision that was written last is in force."""
        self._unwritten: Sequence[Event] = ()
        """What is true already and is written together with what comes next."""
        self._published: asyncio.Event | None = None
        self._appending = 0
        self._appended: asyncio.Event | None = None
        self._freed: asyncio.Event | None = None
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
        self._write([*self._unwritten, *found] if self._unwritten else found)
        self._apply(found)

    def commit_later(self, found: Sequence[Event]) -> None:
        """Make events true and write them with the next ones, where a crash may lose them as well.

        A snapshot is of the state before what is written behind it, so it is not put off.
        """
        if self._unwritten or self._state.is_snapshot_due(self.key):
            self.commit(found)
            return
        self._unwritten = found
        self._apply(found)

    def _write(self, found: Sequence[Event]) -> None:
        self._state.write(
            self.key, home=self.producer.name, events=found, snapshot=self.producer.snapshot
        )
        self._unwritten = ()

    def _apply(self, found: Sequence[Event]) -> None:
        for event in found:
            self.producer.apply(event)
        self.note_work()

    def note_work(self) -> None:
        """Be among those who are looked after exactly if there is anything to be done."""
        if self.producer.is_busy:
            self._busy[self.producer.name] = self
        else:
            self._busy.pop(self.producer.name, None)

    def has_open(self, number: int) -> bool:
        """Tell whether a transaction is the open one."""
        return self.producer.number == number and self.producer.state is State.ONGOING

    # Messages on their way into the log, and to the disk.

    @contextmanager
    def publish(self) -> Iterator[None]:
        """Count a request whose messages are not durable yet."""
        self.publishing += 1
        try:
            yield
        finally:
            self.publishing -= 1
            if self._published is not None and not self.publishing:
                self._published.set()
                self._published = None

    async def published(self) -> None:
        """Return when every request that is under way has its outcome."""
        while self.publishing:
            self._published = self._published or asyncio.Event()
            await self._published.wait()

    @contextmanager
    def append(self) -> Iterator[None]:
        """Count a request whose messages are about to be appended."""
        self._appending += 1
        try:
            yield
        finally:
            self._appending -= 1
            if self._appended is not None and not self._appending:
                self._appended.set()
                self._appended = None

    async def appended(self) -> None:
        """Return when no message is on its way into the log."""
        while self._appending:
            self._appended = self._appended or asyncio.Event()
            await self._appended.wait()

    # Belonging to somebody else.

    def give_to(self, adopter: str) -> None:
        """Leave the end of the transaction to its adopter."""
        self.producer.adopter = adopter
        self._freed = self._freed or asyncio.Event()

    def set_free(self) -> None:
        """Take note that the adopted transaction is over."""
        self.producer.adopter = ""
        if self._freed is not None:
            self._freed.set()
            self._freed = None

    async def free(self) -> None:
        """Return when the transaction belongs to nobody else."""
        while self._freed is not None:
            await self._freed.wait()

    # Being durable.

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        if self._unwritten:
            self._write(self._unwritten)
        return self._state.durable(self.producer.name)

    def forget(self) -> asyncio.Future[None]:
        """Write that there is no such producer any more."""
        return self._state.forget(self.key, home=self.producer.name)
