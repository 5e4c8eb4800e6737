"""A transaction in ordinary code and in an event loop.

``with producer.transaction() as tx`` commits where the block ends and aborts where it raises.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from logging import getLogger
from time import time_ns
from typing import (
    Final,
    NoReturn,
    Self,
    Unpack,
    cast,
)

from goqueue.base.errors import GoQueueError, InvalidTransactionStateError
from goqueue.client.blocking.bridge import BlockingCalls, blocking
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.consumer.delivery import Delivery
from goqueue.client.producer.gatherer import LAST_AT
from goqueue.client.producer.pile import SendFuture
from goqueue.client.producer.sizes import OVERSIZE_SUSPECT_BYTES, ROW_OVERHEAD_BYTES
from goqueue.client.producer.special import SendFields
from goqueue.client.tx.detached import Detached
from goqueue.client.tx.gatherer import TxGatherer
from goqueue.client.tx.hold import Holds
from goqueue.client.tx.session import Offsets, TxSession

log = getLogger("goqueue.transaction")


class _Shut:
    """In the place of what gathers, before a transaction begins and behind it."""

    is_full = True

    def send(self, value: bytes | None, key: bytes | None = None, **fields: object) -> NoReturn:
        """Refuse a message."""
        del value, key, fields
        raise InvalidTransactionStateError("this transaction is not open")


_SHUT: Final = cast("TxGatherer", _Shut())


class _Open(ABC):
    """What both kinds of transaction share: what was said in it, and whether it is open."""

    def __init__(self, session: TxSession, topic: str) -> None:
        self._session = session
        self._topic = topic
        self._gatherer = _SHUT
        self._number = 0
        self._holds = Holds()
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}

    def __repr__(self) -> str:
        return f"<Transaction {self.id}>"

    @property
    def id(self) -> str:
        """The number of the transaction, in hexadecimal digits; zeros before it began."""
        return f"{self._number:016x}"

    @property
    def is_open(self) -> bool:
        """Return True if messages can be sent in it."""
        return self._gatherer is not _SHUT

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        topic: str | None = None,
        **fields: Unpack[SendFields],
    ) -> SendFuture:
        """Queue one message, of the producer's topic or of another, and return its future."""
        gatherer = self._gatherer
        # What most messages need of ``Gatherer.send``, without a call: it runs once per message.
        if (
            type(value) is bytes
            and type(key) is bytes
            and topic is None
            and not fields
            and not gatherer.is_full
        ):
            pile = gatherer.pile
            rows = pile.rows
            at = len(rows)
            size = len(value) + len(key) + ROW_OVERHEAD_BYTES
            if at and size <= OVERSIZE_SUSPECT_BYTES:
                now = time_ns()
                rows += (value, key, now)
                pile.size = size = pile.size + size
                if size < pile.limit and at < LAST_AT and rows[at + 2] is now:
                    return SendFuture(pile, at)
                return gatherer.look_closer(pile, rows, now)
        if topic is not None:
            self._check_open()
            gatherer = self._gatherer_of(topic)
        return gatherer.send(value, key=key, **fields)

    @abstractmethod
    def _gatherer_of(self, topic: str) -> TxGatherer:
        """Return what gathers for another topic than the producer's."""

    def ack(self, message: Delivery) -> None:
        """Settle a message a consumer got, if and only if the transaction is committed."""
        self._check_open()
        self._holds.add(message)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Settle everything before offsets of (topic, partition) of a group with the commit."""
        self._check_open()
        self._offsets.setdefault(group, {}).update(offsets)

    def _begun(self, number: int) -> None:
        self._number = number
        self._gatherer = self._session.gatherers[self._topic]

    def _check_new(self) -> None:
        if self._number:
            raise InvalidTransactionStateError("a transaction begins once; ask for another")

    def _check_open(self) -> None:
        if not self.is_open:
            _SHUT.send(None)

    def _shut(self) -> None:
        self._check_open()
        self._gatherer = _SHUT


class AsyncTransaction(_Open):
    """A transaction of an asynchronous producer."""

    def __init__(self, session: TxSession, topic: str, starting: "asyncio.Task[None]") -> None:
        super().__init__(session, topic)
        self._starting = starting

    def _gatherer_of(self, topic: str) -> TxGatherer:
        return self._session.gatherer(topic)

    async def begin(self) -> None:
        """Begin; ``async with`` does so by itself."""
        self._check_new()
        await self._starting
        self._begun(self._session.begin_here() or await self._session.begin())

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self._end(error)

    async def commit(self: _Open, *, token: str = "") -> None:
        """Publish, settle and commit; with a token that ``last_token`` of a successor shows."""
        self._shut()
        offsets: Offsets = self._offsets
        await self._session.commit(self._number, token=token, holds=self._holds, offsets=offsets)

    async def detach(self) -> Detached:
        """Publish and settle everything, and leave the outcome to who adopts the transaction.

        This producer is done then: what comes next needs another one.
        """
        self._shut()
        offsets: Offsets = self._offsets
        return await self._session.detach(self._number, holds=self._holds, offsets=offsets)

    async def adopt(self, handles: Iterable[Detached]) -> None:
        """Let detached transactions end as this one: all of them, or it raises and none does."""
        self._check_open()
        await self._session.adopt(self._number, handles)

    async def abort(self: _Open) -> None:
        """Undo everything; of no effect if it is over."""
        if self.is_open:
            self._gatherer = _SHUT
            await self._session.abort(self._number, self._holds)

    async def _end(self: _Open, error: BaseException | None) -> None:
        """Commit where a block ends, abort where it raises; not what was ended within."""
        if not self.is_open:
            return
        if error is None:
            await AsyncTransaction.commit(self)
            return
        try:
            await AsyncTransaction.abort(self)
        except GoQueueError as trouble:
            log.warning("transaction %s not aborted yet: %s", self.id, trouble)


class Transaction(_Open, BlockingCalls):
    """A transaction of a synchronous producer."""

    def __init__(self, session: TxSession, topic: str, thread: LoopThread) -> None:
        BlockingCalls.__init__(self, None, thread)
        _Open.__init__(self, session, topic)

    commit = blocking(AsyncTransaction.commit)
    detach = blocking(AsyncTransaction.detach)
    adopt = blocking(AsyncTransaction.adopt)
    abort = blocking(AsyncTransaction.abort)
    _end = blocking(AsyncTransaction._end)  # noqa: SLF001 - its twin's

    def _gatherer_of(self, topic: str) -> TxGatherer:
        known = self._session.gatherers.get(topic)
        return known or self._thread.run(self._session.learn(topic))

    def begin(self) -> None:
        """Begin; ``with`` does so by itself."""
        self._check_new()
        self._begun(self._session.begin_here() or self._thread.run(self._session.begin()))

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self.is_open:
            self._end(error)


def required(session: TxSession | None) -> TxSession:
    """Return the session of a producer that has one."""
    if session is None:
        raise InvalidTransactionStateError(
            "give the producer a transactional_id to have transactions"
        )
    return session
