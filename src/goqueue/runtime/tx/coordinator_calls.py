"""What leaders ask a coordinator of transactions: to add places, and what became of some."""

from collections.abc import Sequence

from goqueue.base.errors import (
    InvalidRequestError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    PartitionNotFoundError,
    TopicNotFoundError,
)
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.core.tx.events import Event, Place
from goqueue.core.tx.producer import COMMIT, Identity, TxProducer
from goqueue.core.tx.states import TxState
from goqueue.runtime.tx.finisher import TxFinisher
from goqueue.runtime.tx.hosted_producer import HostedTxProducer
from goqueue.runtime.tx.roster import Roster
from goqueue.runtime.tx.tx_entry import TxEntry
from goqueue.runtime.tx.tx_link import TxLink
from goqueue.wire.tx_peer_calls import (
    AskedPlace,
    TxAdd,
    TxAdded,
    TxAnswer,
    TxAsk,
    TxFate,
    TxPlace,
)


class CoordinatorCalls:
    """Answers for the partitions of ``__transactions`` that are loaded here."""

    def __init__(
        self, roster: Roster, endings: TxFinisher, entry: TxEntry, *, link: TxLink
    ) -> None:
        self._roster = roster
        self._endings = endings
        self._entry = entry
        self._link = link

    def __repr__(self) -> str:
        return f"<CoordinatorCalls of {self._roster!r}>"

    async def add(self, call: TxAdd) -> TxAdded:
        """Add places to a transaction; answer when that is durable."""
        if not call.who.number:
            raise InvalidRequestError("transaction: its number is required")
        producer_id, epoch, number = call.who.producer_id, call.who.epoch, call.who.number
        who = Identity(producer_id=producer_id, epoch=epoch, number=number)
        for place in call.places:
            self._check_known(place)
        hosted = await self._entry.enter(who)
        written = [_place_of(place) for place in call.places if not place.group]
        if written:
            hosted.commit(hosted.producer.add_partitions(who, written).events)
        for group in dict.fromkeys(place.group for place in call.places if place.group):
            held = [_place_of(place) for place in call.places if place.group == group]
            hosted.commit(hosted.producer.add_holds(who, group, held).events)
        self._entry.touch(hosted)
        await hosted.durable()
        return TxAdded()

    def _check_known(self, place: TxPlace) -> None:
        """Raise unless this node has heard of a topic: one that it has not heard of seems gone."""
        name = TopicPartition(TopicName(place.topic), PartitionId(place.partition))
        try:
            self._link.check_known(name)
        except (TopicNotFoundError, PartitionNotFoundError) as error:
            raise LeaderNotAvailableError(f"{name} is not known to the coordinator yet") from error

    async def answer(self, call: TxAsk) -> TxAnswer:
        """Say what is known of transactions, of a producer, or finish what a group waits for."""
        if not self._roster.is_loaded(call.coordinator):
            raise NotCoordinatorError("these transactions are coordinated elsewhere; ask again")
        hosted = self._roster.hosted_in(call.coordinator)
        if call.group:
            await self._endings.finish_group(call.group)
            # That the last commits are complete must not be lost any more; one sync is for all.
            for one in hosted[:1]:
                await one.durable()
        known = {number: one for one in hosted for number in one.producer.unfinished}
        known |= {one.producer.number: one for one in hosted}
        fates = [await self._fate(known.get(one.number), one) for one in call.asked]
        named = [one for one in hosted if one.producer.producer_id == call.producer_id]
        if not named or not call.producer_id:
            return TxAnswer(fates)
        return TxAnswer(fates, named[0].producer.name, named[0].producer.number)

    async def _fate(self, hosted: HostedTxProducer | None, asked: AskedPlace) -> TxFate:
        if hosted is None or hosted.producer.state is TxState.DEAD:
            return TxFate.UNKNOWN
        producer = hosted.producer
        if asked.number in producer.unfinished:
            return TxFate.COMMITTED
        if producer.state is TxState.ONGOING:
            # The place is known, unless something was lost: then it is known from now on.
            hosted.commit(_learn(producer, asked.place))
        await hosted.durable()
        if producer.number != asked.number or producer.state is TxState.ONGOING:
            return TxFate.OPEN
        return TxFate.COMMITTED if producer.outcome() == COMMIT else TxFate.ABORTED


def _learn(producer: TxProducer, place: TxPlace) -> Sequence[Event]:
    if place.group:
        return producer.learn_hold(place.group, _place_of(place)).events
    return producer.learn_partition(_place_of(place)).events


def _place_of(place: TxPlace) -> Place:
    return (place.topic, place.partition)
