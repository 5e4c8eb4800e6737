"""One transactional producer at work: its events in the state log, its end carried out.

Shape: host of a decider (``runtime/machine.py``).
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from goqueue.core.tx.events import AdoptedBy, Event
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import TxState
from goqueue.runtime.machine import MachineHost, StateJournal, unawaited

KEY_PREFIX = "tx/"

T = TypeVar("T")


class HostedTxProducer:
    """A transactional id, and those who wait for the end of its transaction."""

    def __init__(
        self,
        producer: TxProducer,
        state: StateJournal,
        busy: "dict[str, HostedTxProducer]",
        *,
        home: str,
    ) -> None:
        self.producer = producer
        self.host = MachineHost[Event](
            state, KEY_PREFIX + producer.name, home=home, machine=producer
        )
        self._busy = busy
        self.ending: asyncio.Task[None] | None = None
        """Carries out what was decided and could not be carried out at once."""
        self.ending_error = ""
        """What kept that from succeeding the last time."""
        # Guards the carrying out: one at a time announces the end.
        self.end_turn = asyncio.Lock()
        self.is_untold = False
        """It was loaded with a decision of which not everybody may have been told."""
        self._begun_ms = self._heard_ms = 0
        self.publishing = 0
        """Requests whose messages are not durable yet."""
        self.asked: list[asyncio.Future[None]] = []
        """What is done when the decision that was written last is in force."""
        self._appending = 0
        # Guards the lives of the producer: one init at a time.
        self.turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<HostedTxProducer {self.producer!r}>"

    @property
    def is_closed(self) -> bool:
        """Return True if the producer is not hosted here any more."""
        return self.host.closed is not None

    def close(self) -> None:
        """Stop hosting the producer; who waits for it is to ask again."""
        self.host.close()
        self._busy.pop(self.producer.name, None)

    def commit(self, found: Sequence[Event]) -> None:
        """Write events and make them true; ``durable`` tells when the disk has them."""
        if found:
            self.host.commit(found)
            self.note_work()

    def commit_later(self, found: Sequence[Event]) -> None:
        """Make events true and write them with the next ones, if a crash may lose them."""
        self.host.commit_later(found)
        self.note_work()

    def note_work(self) -> None:
        """Be among those who are looked after exactly if there is anything to be done."""
        if self.producer.is_busy:
            self._busy[self.producer.name] = self
        else:
            self._busy.pop(self.producer.name, None)

    def check_open(self, who: Identity, _partition: object = None) -> None:
        """Raise unless who speaks has this transaction open, here."""
        self.host.check()
        self.producer.check_open(who)

    def has_open(self, number: int) -> bool:
        """Return True if a transaction is the open one."""
        return self.producer.number == number and self.producer.state is TxState.ONGOING

    # Time. Not stored: a load starts every timeout again.

    def touch(self, now_ms: int) -> None:
        """Note that the producer was heard of."""
        self._heard_ms = now_ms

    def start_clock(self, now_ms: int) -> None:
        """Count the time of the open transaction from now on."""
        self._begun_ms = self._heard_ms = now_ms

    def silent_ms(self, now_ms: int) -> int:
        """Return for how long the producer was not heard of."""
        return now_ms - self._heard_ms

    def deadline_ms(self) -> int | None:
        """Return when the open transaction is aborted; an adopted one has no time of its own."""
        if self.producer.state is not TxState.ONGOING or self.producer.adopter:
            return None
        return self._begun_ms + self.producer.timeout_ms

    # Messages on their way into the log, and to the disk.

    @contextmanager
    def publish(self) -> Iterator[None]:
        """Count a request whose messages are not durable yet."""
        self.publishing += 1
        try:
            yield
        finally:
            self.publishing -= 1
            self._wake_if(not self.publishing)

    async def published(self) -> None:
        """Return when every request that is under way has its outcome."""
        while self.publishing:
            await self._news()

    @contextmanager
    def append(self) -> Iterator[None]:
        """Count a request whose messages are about to be appended."""
        self._appending += 1
        try:
            yield
        finally:
            self._appending -= 1
            self._wake_if(not self._appending)

    async def appended(self) -> None:
        """Return when no message is on its way into the log."""
        while self._appending:
            await self._news()

    def _wake_if(self, is_news: bool) -> None:  # noqa: FBT001 - the condition is all there is
        if is_news and self.host.waiters:
            self.host.waiters.wake()

    async def _news(self) -> None:
        """Return when something changed for those who wait; raise if it happens elsewhere now."""
        self.host.check()
        news = self.host.waiters.watch()
        try:
            await news
        finally:
            self.host.waiters.unwatch(news)
        self.host.check()

    async def while_hosted(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what some work returns; raise as soon as the producer is hosted elsewhere."""
        task = unawaited(asyncio.get_running_loop().create_task(work))
        try:
            while not task.done():
                self.host.check()
                news = self.host.waiters.watch()
                try:
                    waits: list[asyncio.Future[Any]] = [task, news]
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    self.host.waiters.unwatch(news)
            return task.result()
        finally:
            task.cancel()

    # Belonging to another transaction.

    def give_to(self, adopter: str) -> None:
        """Leave the end of the transaction to its adopter."""
        self.producer.apply(AdoptedBy(adopter))

    def set_free(self) -> None:
        """Take note that the adopted transaction is over."""
        self.producer.apply(AdoptedBy(""))
        self.host.waiters.wake()

    async def free(self) -> None:
        """Return when the transaction belongs to no other."""
        while self.producer.adopter:
            await self._news()

    # Being durable.

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        return self.host.durable()

    def forget(self) -> asyncio.Future[None]:
        """Write that there is no such producer any more."""
        return self.host.forget()
