"""One life of a transactional id: its identity, its open transaction, and a gatherer per topic.

Lives in the client's event loop. Whatever leaves a doubt (an answer that was lost, numbers given
away and not used) is resolved by a new life before the next transaction begins.
"""

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import Final

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
from goqueue.client.link import (
    BACKOFF_SECONDS,
    BACKOFF_SECONDS_MAX,
    Link,
    ReplyHeader,
    call,
    decode,
)
from goqueue.client.producer import Gatherer
from goqueue.client.producer_options import ProducerOptions
from goqueue.client.transaction_hold import Holds
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
        self.gatherers: dict[str, Gatherer] = {}
        self._link = link
        self._options = options
        self._loop = loop
        self._loop_thread = loop_thread
        self._timeout_s = timeout_s
        self._identity: calls.ProducerIdentity | None = None
        self._must_renew = True
        self._fatal: GoQueueError | None = None
        self._is_busy = False
        self._lost: GoQueueError | None = None
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._beating: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<TxSession of {self.name}>"

    # Topics.

    def gatherer(self, topic: str) -> Gatherer:
        """Return what gathers for a topic; it learns of its partitions as soon as it can."""
        known = self.gatherers.get(topic)
        if known is not None:
            return known
        made = Gatherer(
            self._link,
            self._loop,
            topic,
            self._options,
            loop_thread=self._loop_thread,
            is_transactional=True,
        )
        self.gatherers[topic] = made
        if self.number:
            self._open(made)
        else:
            made.shut(self._fatal or _not_open())
        self._learning[topic] = self._loop.create_task(self._learn(topic, made))
        return made

    async def learn(self, topic: str) -> Gatherer:
        """Return what gathers for a topic, or raise why nothing can be sent there."""
        made = self.gatherer(topic)
        await self._learned()
        if topic not in self.gatherers and made.failure is not None:
            raise made.failure
        return made

    async def _learn(self, topic: str, made: Gatherer) -> None:
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
        self._check_alive()
        if self._is_busy:
            raise InvalidTransactionStateError(
                "this producer has a transaction open, and may have one at a time"
            )
        self._is_busy = True
        try:
            if self._ending is not None:
                await asyncio.wait({self._ending})
            self.number = await self._begin()
        except BaseException:
            self._must_renew = True
            self._is_busy = False
            raise
        self._lost = None
        for gatherer in self.gatherers.values():
            self._open(gatherer)
        self._beating = self._loop.create_task(self._beat_on(self._who()))
        return self.number

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
        try:
            await self._flush()
            await self._settle(holds, offsets)
        except BaseException as error:
            holds.give_back()
            if isinstance(error, GoQueueError):
                self._note(error)
                await self._abort_after(error)
            else:
                self._ending = self._loop.create_task(self._abort_after(error))
            raise
        try:
            await self._end(is_commit=True, token=token)
        except BaseException as error:
            # Whether it was committed is known to the broker: the next life hears the last token.
            self._must_renew = not isinstance(error, InvalidTransactionStateError)
            raise
        finally:
            self._close()
        self.token = token

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
                await self._end(is_commit=False)
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
        for gatherer in list(self.gatherers.values()):
            gatherer.shut(self._fatal)

    # Its parts.

    async def _flush(self) -> None:
        """Return when everything that was sent is placed; raise if anything is not."""
        await self._learned()
        for gatherer in self.gatherers.values():
            gatherer.shut(InvalidTransactionStateError("the transaction is being committed"))
        # What could not even be packed is told a turn of the loop later.
        await asyncio.sleep(0)
        for gatherer in list(self.gatherers.values()):
            await gatherer.flush()
        for failure in (self._lost, *(one.failure for one in self.gatherers.values())):
            if failure is not None:
                raise failure

    async def _settle(self, holds: Holds, offsets: Offsets) -> None:
        who = self._who()
        for group, parts in holds.requests():
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

    async def _end(self, *, is_commit: bool, token: str = "") -> None:
        """Commit or abort; asked again and again while the answer gets lost."""
        header = tx_calls.TxEnd(self._who(), is_commit, token)
        deadline_s = self._loop.time() + self._timeout_s
        backoff_s = BACKOFF_SECONDS
        while True:
            try:
                await self._once(Operation.TX_END, header, calls.Nothing)
            except GoQueueError as error:
                if not error.retryable or self._loop.time() + backoff_s > deadline_s:
                    raise
            else:
                return
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _open(self, gatherer: Gatherer) -> None:
        assert self._identity is not None, "initialised"
        gatherer.open(self.number, self._identity)

    def _close(self) -> None:
        """Take note that no transaction is open."""
        self.number = 0
        self._is_busy = False
        if self._beating is not None:
            self._beating.cancel()
        for gatherer in self.gatherers.values():
            self._must_renew = self._must_renew or gatherer.is_spoiled
            gatherer.shut(self._fatal or _not_open())

    async def _beat_on(self, who: tx_calls.TxWho) -> None:
        """Tell the broker that the producer is there, as long as the transaction is open."""
        while self._fatal is None:
            await asyncio.sleep(TX_HEARTBEAT_MS / SECOND_MS)
            try:
                await self._once(Operation.TX_HEARTBEAT, who, calls.Nothing)
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


def _not_open() -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        "no transaction is open; send within `with producer.transaction() as tx`"
    )
