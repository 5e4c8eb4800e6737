"""A transaction in ordinary code and in an event loop.

``with producer.transaction() as tx`` commits where the block ends and aborts where it raises.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from logging import getLogger
from time import time_ns
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self, Unpack, cast

from goqueue.base.errors import GoQueueError, InvalidTransactionStateError
from goqueue.client.delivery import Delivery
from goqueue.client.pile import SendFuture
from goqueue.client.producer import LAST_AT
from goqueue.client.sizes import OVERSIZE_SUSPECT_BYTES, ROW_OVERHEAD_BYTES
from goqueue.client.special import SendFields
from goqueue.client.transaction_detached import Detached
from goqueue.client.transaction_gatherer import TxGatherer
from goqueue.client.transaction_hold import Holds
from goqueue.client.transaction_session import Offsets, TxSession

log = getLogger("goqueue.transaction")


class Run(Protocol):
    """Runs a coroutine in the client's loop and waits for it."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
        """Return what the coroutine returns."""
        ...


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
        """Tell whether messages can be sent in it."""
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

    def _commit(self, token: str) -> Coroutine[Any, Any, None]:
        self._check_open()
        self._gatherer = _SHUT
        offsets: Offsets = self._offsets
        return self._session.commit(self._number, token=token, holds=self._holds, offsets=offsets)

    def _detach(self) -> Coroutine[Any, Any, Detached]:
        self._check_open()
        self._gatherer = _SHUT
        offsets: Offsets = self._offsets
        return self._session.detach(self._number, holds=self._holds, offsets=offsets)

    def _adopt(self, handles: Iterable[Detached]) -> Coroutine[Any, Any, None]:
        self._check_open()
        return self._session.adopt(self._number, handles)

    def _abort(self) -> Coroutine[Any, Any, None]:
        self._gatherer = _SHUT
        return self._session.abort(self._number, self._holds)


class Transaction(_Open):
    """A transaction of a synchronous producer."""

    def __init__(self, session: TxSession, topic: str, run: Run) -> None:
        super().__init__(session, topic)
        self._run = run

    def _gatherer_of(self, topic: str) -> TxGatherer:
        known = self._session.gatherers.get(topic)
        return known or cast("TxGatherer", self._run(self._session.learn(topic)))

    def begin(self) -> None:
        """Begin; ``with`` does so by itself."""
        self._check_new()
        self._begun(self._session.begin_here() or self._run(self._session.begin()))

    def commit(self, *, token: str = "") -> None:
        """Publish, settle and commit; with a token that ``last_token`` of a successor shows."""
        self._run(self._commit(token))

    def detach(self) -> Detached:
        """Publish and settle everything, and leave the outcome to who adopts the transaction.

        This producer is done then: what comes next needs another one.
        """
        handle: Detached = self._run(self._detach())
        return handle

    def adopt(self, handles: Iterable[Detached]) -> None:
        """Let detached transactions end as this one: all of them, or it raises and none does."""
        self._run(self._adopt(handles))

    def abort(self) -> None:
        """Undo everything; of no effect if it is over."""
        if self.is_open:
            self._run(self._abort())

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.is_open:
            return
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except GoQueueError as trouble:
            log.warning("transaction %s not aborted yet: %s", self.id, trouble)


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

    async def commit(self, *, token: str = "") -> None:
        """Publish, settle and commit; with a token that ``last_token`` of a successor shows."""
        await self._commit(token)

    async def detach(self) -> Detached:
        """Publish and settle everything, and leave the outcome to who adopts the transaction.

        This producer is done then: what comes next needs another one.
        """
        return await self._detach()

    async def adopt(self, handles: Iterable[Detached]) -> None:
        """Let detached transactions end as this one: all of them, or it raises and none does."""
        await self._adopt(handles)

    async def abort(self) -> None:
        """Undo everything; of no effect if it is over."""
        if self.is_open:
            await self._abort()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.is_open:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.abort()
        except GoQueueError as trouble:
            log.warning("transaction %s not aborted yet: %s", self.id, trouble)


def required(session: TxSession | None) -> TxSession:
    """Return the session of a producer that has one."""
    if session is None:
        raise InvalidTransactionStateError(
            "give the producer a transactional_id to have transactions"
        )
    return session
