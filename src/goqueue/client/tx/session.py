"""One life of a transactional id: its identity, its open transaction, and a gatherer per topic.

Runs in the client's event loop. Whatever leaves a doubt (an answer that was lost, numbers given
away and not used) is resolved by a new life before the next transaction begins.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from logging import getLogger
from typing import Final

import msgspec

from goqueue.base.errors import (
    ClosedError,
    DeadlineExceededError,
    GoQueueError,
    InvalidTransactionStateError,
    ProducerFencedError,
    UnknownProducerError,
    from_code,
)
from goqueue.base.limits import TX_HEARTBEAT_MS
from goqueue.base.units import SECOND_MS
from goqueue.client.aio.link import Link, call
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.protocol.exchange import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    ReplyHeader,
    decode,
)
from goqueue.client.tx.detached import Detached, whos_of
from goqueue.client.tx.gatherer import TxGatherer
from goqueue.client.tx.hold import Holds
from goqueue.core.tx.numbers import number_after
from goqueue.wire import calls, queue_calls, tx_calls
from goqueue.wire.packet import Operation

ABORT_GRACE_SECONDS: Final = 1.0
"""How long an abort waits for answers that are under way; then it is sure without them."""

Offsets = Mapping[str, Mapping[tuple[str, int], int]]
"""By group, the offset of each topic and partition before which everything is settled."""

FATAL: Final = (ProducerFencedError, UnknownProducerError)

log = getLogger("goqueue.transaction")


class TxSession:
    """Speaks for one transactional id."""

    def __init__(
        self,
        link: Link,
        options: ProducerOptions,
        loop: asyncio.AbstractEventLoop,
        *,
        loop_thread: int,
        timeout_s: float,
    ) -> None:
        assert options.transactional_id is not None, "a transactional producer"
        self.name = options.transactional_id
        self.token = ""
        """What the last commit under this id left."""
        self.number = 0
        """The open transaction."""
        self.gatherers: dict[str, TxGatherer] = {}
        self._link = link
        self._options = options
        self._loop = loop
        self._loop_thread = loop_thread
        self._timeout_s = timeout_s
        self._identity: calls.ProducerIdentity | None = None
        self._must_renew = True
        self._next = 0
        """The number of the next transaction, where it is known."""
        # Guards who begins: threads may do so by themselves.
        self._turn = threading.Lock()
        self._fatal: GoQueueError | None = None
        self._is_busy = False
        self._lost: GoQueueError | None = None
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._beating: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<TxSession of {self.name}>"

    # Topics.

    def gatherer(self, topic: str) -> TxGatherer:
        """Return what gathers for a topic; it learns of its partitions as soon as it can."""
        known = self.gatherers.get(topic)
        if known is not None:
            return known
        made = TxGatherer(
            self._link, self._loop, topic, self._options, loop_thread=self._loop_thread
        )
        self.gatherers[topic] = made
        if self.number:
            self._open(made)
        else:
            made.shut(self._fatal or _not_open())
        self._learning[topic] = self._loop.create_task(self._learn(topic, made))
        return made

    async def learn(self, topic: str) -> TxGatherer:
        """Return what gathers for a topic, or raise why nothing can be sent there."""
        made = self.gatherer(topic)
        await self._learned()
        if topic not in self.gatherers and made.failure is not None:
            raise made.failure
        return made

    async def _learn(self, topic: str, made: TxGatherer) -> None:
        try:
            header = calls.TopicCall(topic)
            state = await self._call(Operation.DESCRIBE_TOPIC, header, calls.TopicState)
        except GoQueueError as error:
            made.fail(error)
            # Only what was sent there is lost: who is told at once may go on without it.
            self._lost = self._lost or made.failure
            made.failure = error
            del self.gatherers[topic]
        else:
            made.learn(len(state.partitions))
        finally:
            self._learning.pop(topic, None)

    async def _learned(self) -> None:
        while self._learning:
            await asyncio.wait(set(self._learning.values()))

    # The life of a transaction.

    async def start(self, topic: str) -> None:
        """Begin a life and learn of the producer's own topic."""
        await self.learn(topic)
        await self.init()

    async def init(self) -> None:
        """Begin a life; what an earlier one left open is aborted."""
        old = self._identity
        who = None if old is None else tx_calls.TxWho(old.producer_id, old.epoch)
        header = tx_calls.TxInit(self.name, self._options.transaction_timeout_ms, who)
        life = await self._call(Operation.TX_INIT, header, tx_calls.TxLife)
        self._identity = calls.ProducerIdentity(life.producer_id, life.epoch)
        self.token = life.token
        self._must_renew = False

    async def begin(self) -> int:
        """Begin a transaction and return its number."""
        self._take_turn()
        try:
            if self._ending is not None:
                await asyncio.wait({self._ending})
            number = 0 if self._must_renew else self._next
            self._open_all(number or await self._begin())
        except BaseException:
            self._must_renew = True
            self._is_busy = False
            raise
        if self._beating is None:
            self._beating = self._loop.create_task(self._beat_on())
        return self.number

    def begin_here(self) -> int | None:
        """Begin a transaction in any thread where that needs no request; None if it does.

        The broker begins it with its first request: the number follows from the one before.
        """
        self._take_turn()
        # Only now: whoever had the turn meanwhile may have used the number up, or left a doubt.
        is_known = self._beating is not None and self._ending is None
        if self._must_renew or not self._next or not is_known:
            self._is_busy = False
            return None
        self._open_all(self._next)
        return self.number

    def _take_turn(self) -> None:
        self._check_alive()
        with self._turn:
            if self._is_busy:
                raise InvalidTransactionStateError(
                    "this producer has a transaction open, and may have one at a time"
                )
            self._is_busy = True

    def _open_all(self, number: int) -> None:
        self.number = number
        self._next = 0
        self._lost = None
        for gatherer in self.gatherers.values():
            self._open(gatherer)

    async def _begin(self) -> int:
        """Begin, with a new life after any doubt: an answer that was lost may have begun one."""
        backoff_s = BACKOFF_SECONDS
        deadline_s = self._loop.time() + self._timeout_s
        while True:
            if self._must_renew:
                await self.init()
            try:
                async with asyncio.timeout_at(deadline_s):
                    answer = await self._link.request(Operation.TX_BEGIN, self._who())
                return decode(answer.header, tx_calls.TxNumber).number
            except TimeoutError as error:
                raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s") from error
            except GoQueueError as error:
                self._note(error)
                if not error.retryable or self._loop.time() + backoff_s > deadline_s:
                    raise
            self._must_renew = True
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    async def commit(
        self,
        number: int,
        *,
        token: str,
        holds: Holds,
        offsets: Offsets,
    ) -> None:
        """Publish what is gathered, settle what was acked, and commit; or abort and raise why."""
        self._check_open(number)
        header = tx_calls.TxEnd(self._who(), is_commit=True, token=token)
        # In a cluster the coordinator does not have the messages: it decides when all are there.
        is_alone = self._link.cluster is None
        async with self._abort_on_error(holds):
            is_ended = is_alone and not (holds or offsets) and await self._end_with_last(token)
            if not is_ended:
                await self._shut_all()
                await self._settle(holds, offsets)
                is_ended = is_alone and await self._end_at_once(header)
            if not is_ended:
                await self._flush()
        try:
            if not is_ended:
                await self._end(header)
            for gatherer in list(self.gatherers.values()):
                await gatherer.flush()
        except BaseException as error:
            # Whether it was committed is known to the broker: the next life hears the last token.
            self._must_renew = not isinstance(error, InvalidTransactionStateError)
            raise
        finally:
            self._close()
        self._go_on(number)
        self.token = token

    async def detach(self, number: int, *, holds: Holds, offsets: Offsets) -> Detached:
        """Publish what is gathered, settle what was acked, and leave the rest to an adopter."""
        self._check_open(number)
        async with self._abort_on_error(holds):
            await self._shut_all()
            await self._flush()
            await self._settle(holds, offsets)
        who = self._who()
        try:
            await self._call(Operation.TX_DETACH, who, calls.Nothing)
        finally:
            # A new life would abort what was detached, or may have been: this one was the last.
            self._fatal = self._fatal or InvalidTransactionStateError(
                f"a transaction of {self.name} was detached; go on with another producer"
            )
            self._close()
        return Detached(self.name, who.producer_id, who.epoch, who.number)

    async def adopt(self, number: int, handles: Iterable[Detached]) -> None:
        """Let detached transactions end as this one. May be asked again."""
        self._check_open(number)
        children = whos_of(handles)
        if children:
            header = tx_calls.TxAdopt(self._who(), children)
            await self._call(Operation.TX_ADOPT, header, calls.Nothing)

    @asynccontextmanager
    async def _abort_on_error(self, holds: Holds) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            holds.give_back()
            if isinstance(error, GoQueueError):
                self._note(error)
                await self._abort_after(error)
            else:
                self._ending = self._loop.create_task(self._abort_after(error))
            raise

    async def abort(self, number: int, holds: Holds) -> None:
        """Undo the transaction."""
        holds.give_back()
        if number != self.number:
            return
        await self._abort_after(None)

    async def _abort_after(self, cause: BaseException | None) -> None:
        reason = InvalidTransactionStateError("the transaction was aborted")
        for gatherer in self.gatherers.values():
            gatherer.shut(reason)
        try:
            await self._learned()
            for gatherer in list(self.gatherers.values()):
                await gatherer.abandon(reason, grace_s=ABORT_GRACE_SECONDS)
                self._must_renew = self._must_renew or gatherer.is_spoiled
            if self._fatal is None:
                number = self.number
                await self._end(tx_calls.TxEnd(self._who(), is_commit=False))
                self._go_on(number)
        except BaseException as error:
            # What is left open is aborted by the next life, or when its time is over.
            self._must_renew = True
            if cause is None or not isinstance(error, GoQueueError):
                raise
            log.warning("transaction of %s not aborted yet: %s", self.name, error)
        finally:
            self._close()

    async def close(self) -> None:
        """Abort what is open and take no more."""
        closed = ClosedError("the producer was closed")
        if self._ending is not None:
            await asyncio.wait({self._ending})
        if self.number:
            await self._abort_after(closed)
        self._fatal = self._fatal or closed
        if self._beating is not None:
            self._beating.cancel()
        for gatherer in list(self.gatherers.values()):
            gatherer.shut(self._fatal)

    # Its parts.

    async def _end_with_last(self, token: str) -> bool:
        """Commit with the request that has the last messages, where there is just one such.

        False if there is none, or if it did not end the transaction for sure.
        """
        await self._learned()
        gatherers = list(self.gatherers.values())
        waiting = [one for one in gatherers if not one.is_all_handed_over]
        others = [one for one in gatherers if one not in waiting]
        rows = [one.rows_sent for one in others]
        if len(waiting) != 1 or self._lost is not None or None in rows:
            return False
        for one in others:
            one.shut(_committing())
        return await waiting[0].shut_and_commit(
            _committing(), rows_elsewhere=sum(count or 0 for count in rows), token=token
        )

    async def _shut_all(self) -> None:
        """Take no more, and let everything that was sent be under way."""
        await self._learned()
        for gatherer in self.gatherers.values():
            gatherer.shut(_committing())
        # What could not even be packed is told a turn of the loop later; the rest is written then.
        await asyncio.sleep(0)

    async def _flush(self) -> None:
        """Return when everything that was sent is placed; raise if anything is not."""
        for gatherer in list(self.gatherers.values()):
            await gatherer.flush()
        for failure in (self._lost, *(one.failure for one in self.gatherers.values())):
            if failure is not None:
                raise failure

    async def _settle(self, holds: Holds, offsets: Offsets) -> None:
        who = self._who()
        for group, parts in holds.requests(is_apart=self._link.cluster is not None):
            header = tx_calls.TxHold(who, group, parts)
            # Not repeated: what is held already would be refused the second time.
            reply = await self._once(Operation.TX_HOLD, header, queue_calls.Settled)
            refused = [one for part in reply.parts for one in part.refused]
            if refused:
                raise from_code(refused[0].failure.code, refused[0].failure.message)
        for group, places in offsets.items():
            listed = [queue_calls.OffsetOf(topic, part, at) for (topic, part), at in places.items()]
            places_call = tx_calls.TxOffsets(who, group, listed)
            await self._call(Operation.TX_OFFSETS, places_call, calls.Nothing)
        holds.done()

    async def _end_at_once(self, header: tx_calls.TxEnd) -> bool:
        """Commit behind messages that are under way; False if they must be waited for."""
        rows = [gatherer.rows_sent for gatherer in self.gatherers.values()]
        if self._lost is not None or None in rows:
            return False
        counted = msgspec.structs.replace(header, messages=sum(one or 0 for one in rows))
        return (await self._end(counted)).is_ended

    async def _end(self, header: tx_calls.TxEnd) -> tx_calls.TxEnded:
        """Commit or abort; asked again and again while the answer gets lost."""
        deadline_s = self._loop.time() + self._timeout_s
        backoff_s = BACKOFF_SECONDS
        while True:
            try:
                return await self._once(Operation.TX_END, header, tx_calls.TxEnded)
            except GoQueueError as error:
                if not error.retryable or self._loop.time() + backoff_s > deadline_s:
                    raise
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _go_on(self, number: int) -> None:
        """Know which number the next transaction has: the broker has heard of this one's end."""
        self._next = number_after(number)

    def _open(self, gatherer: TxGatherer) -> None:
        assert self._identity is not None, "initialised"
        gatherer.open(self.number, self._identity)

    def _close(self) -> None:
        """Take note that no transaction is open."""
        self.number = 0
        for gatherer in self.gatherers.values():
            self._must_renew = self._must_renew or gatherer.is_spoiled
            gatherer.shut(self._fatal or _not_open())
        self._is_busy = False

    async def _beat_on(self) -> None:
        """Tell the broker that the producer is there, as long as a transaction is open."""
        while self._fatal is None:
            await asyncio.sleep(TX_HEARTBEAT_MS / SECOND_MS)
            if not self.number:
                continue
            try:
                await self._once(Operation.TX_HEARTBEAT, self._who(), calls.Nothing)
            except GoQueueError as error:
                log.debug("heartbeat of %s: %s", self.name, error)

    # Asking.

    def _who(self) -> tx_calls.TxWho:
        assert self._identity is not None, "initialised"
        return tx_calls.TxWho(self._identity.producer_id, self._identity.epoch, self.number)

    def _check_alive(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    def _check_open(self, number: int) -> None:
        self._check_alive()
        if number != self.number:
            raise _not_open()

    def _note(self, error: GoQueueError) -> None:
        """Remember that this life is over."""
        if isinstance(error, FATAL) and self._fatal is None:
            self._fatal = error
            for gatherer in self.gatherers.values():
                gatherer.shut(error)

    async def _once(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._link.request(operation, header)
        except TimeoutError as error:
            self._link.drop()
            raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s") from error
        except GoQueueError as error:
            self._note(error)
            raise
        return decode(answer.header, kind)

    async def _call(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        try:
            return await call(self._link, operation, header, kind, timeout_s=self._timeout_s)
        except GoQueueError as error:
            self._note(error)
            raise


def _committing() -> InvalidTransactionStateError:
    return InvalidTransactionStateError("the transaction is being committed")


def _not_open() -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        "no transaction is open; send within `with producer.transaction() as tx`"
    )
