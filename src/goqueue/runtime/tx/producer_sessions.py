"""The lives of transactional ids: each fences the one before and ends what it left open."""

import contextlib
from typing import Final, NamedTuple

from goqueue.base.errors import (
    InvalidRequestError,
    ProducerFencedError,
    ShuttingDownError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.limits import TX_TIMEOUT_MS_MAX
from goqueue.base.names import check_name
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.events import Closing
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import PREPARED
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.tx.finisher import TxFinisher
from goqueue.runtime.tx.roster import Roster
from goqueue.runtime.tx.tx_ids import TxIds

EPOCH_MAX: Final = 2**16 - 1


class Life(NamedTuple):
    """What a producer is told when it begins a life."""

    stamp: ProducerStamp
    token: str
    """What the last commit under this id left."""


class ProducerSessions:
    """Begins them, one at a time for each id."""

    def __init__(
        self,
        roster: Roster,
        endings: TxFinisher,
        identities: ProducerIds,
        clock: Clock,
        *,
        ids: TxIds | None = None,
    ) -> None:
        self._ids = ids
        self._roster = roster
        self._endings = endings
        self._identities = identities
        self._clock = clock
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<ProducerSessions of {self._roster!r}>"

    async def init(self, name: object, *, timeout_ms: int, who: Identity | None) -> Life:
        """Begin a life of an id: earlier ones are fenced, and what they left open is aborted.

        Who asks as the latest life gets the next one, and the same again if the answer got lost.
        """
        checked = check_name(name, field="transactional_id")
        if not 1 <= timeout_ms <= TX_TIMEOUT_MS_MAX:
            raise InvalidRequestError(
                f"transaction_timeout_ms: {timeout_ms} is not between 1 and {TX_TIMEOUT_MS_MAX}"
            )
        self._check_serving()
        hosted = self._roster.get_or_make(checked)
        async with hosted.turn:
            producer = hosted.producer
            # What was adopted is not this id's to abort: the new life begins behind it.
            await hosted.free()
            self._check_serving()
            if who is not None:
                if producer.is_repeat(who):
                    return Life(producer.stamp, producer.token)
                producer.check_life(who)
            # Nobody adds to what is about to be aborted, whatever becomes of this life.
            producer.apply(Closing())
            stamp = await self._next_life(producer)
            hosted.commit(producer.give_up("a newer instance").events)
            if producer.state in PREPARED:
                await self._endings.carry_out(hosted)
            await self._endings.finish(hosted)
            decision = producer.init(
                producer_id=stamp.producer_id,
                epoch=stamp.epoch,
                timeout_ms=timeout_ms,
                at_ms=self._clock.now_ms(),
                renews=None if who is None else (who.producer_id, who.epoch),
            )
            hosted.commit(decision.events)
            hosted.touch(self._clock.monotonic_ms())
            self._roster.identify(producer)
            await hosted.durable()
        return Life(stamp, producer.token)

    def _check_serving(self) -> None:
        if self.is_stopped:
            raise ShuttingDownError("the broker is stopping")

    async def _next_life(self, producer: TxProducer) -> ProducerStamp:
        if self._ids is not None:
            coordinator = self._roster.partition_of(producer.name)
            above = self._identities.identities.next_id
            return await self._ids.next_life(producer, coordinator=coordinator, above=above)
        if producer.producer_id and producer.epoch < EPOCH_MAX:
            # A life that was begun and never told of leaves the id behind; another one will do.
            with contextlib.suppress(ProducerFencedError, UnknownProducerError):
                return self._identities.renew(
                    producer_id=ProducerId(producer.producer_id), epoch=Epoch(producer.epoch)
                )
        return self._identities.init()
