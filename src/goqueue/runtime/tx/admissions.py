"""Which transactions may write to partitions led here, as their coordinators have confirmed.

Before the first message of a transaction is appended to a partition, its coordinator knows the
place durably; so whatever becomes of the transaction, the partition hears of it. This is asked for
once for each transaction and partition, and holds until the transaction ends or the partition is
led anew. Forgetting an admission is always safe: it is asked for again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from goqueue.base.cluster_limits import TX_PLACES_MAX
from goqueue.base.errors import (
    InvalidRequestError,
    NotCoordinatorError,
    NotLeaderError,
)
from goqueue.base.ids import Epoch, TopicName, TopicPartition
from goqueue.base.limits import TX_PRODUCERS_MAX
from goqueue.core.tx.producer import Identity
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.tx.tx_link import TX_TOPIC, TxLink
from goqueue.wire.peer_calls import PeerOperation
from goqueue.wire.tx_calls import TxWho
from goqueue.wire.tx_peer_calls import TxAdd, TxAdded, TxPlace

ADMISSIONS_MAX: Final = TX_PRODUCERS_MAX
"""Each producer has one transaction open; beyond it the oldest are asked for again."""

Spot = tuple[TopicPartition, str]
"""A partition, and the group that settles there; no group where messages are written."""


class Admission:
    """One transaction of one life of a producer, and where it may write or settle."""

    __slots__ = ("requests", "spots", "turn")

    def __init__(self) -> None:
        self.spots: dict[Spot, Epoch] = {}
        """Each with the epoch in which its partition was led here."""
        self.requests = 0
        """Requests that are about to be admitted."""
        # Guards the order: requests of a transaction go on in the order in which they came.
        self.turn = asyncio.Lock()


class Admissions:
    """Asks coordinators, and remembers what they said."""

    def __init__(self, link: TxLink, topics: Mapping[TopicName, Topic]) -> None:
        self._link = link
        self._topics = topics
        self._known: dict[int, dict[tuple[int, int], Admission]] = {}

    def __repr__(self) -> str:
        return f"<Admissions of {len(self._known)} transactions>"

    def __contains__(self, number: int) -> bool:
        return number in self._known

    async def enter(self, who: Identity, partitions: Sequence[Partition], group: str = "") -> None:
        """Return when a transaction may write to partitions, or settle there; raise if it may not.

        Nothing awaits behind it: who comes first goes on first.
        """
        entry = self._entry(who)
        entry.requests += 1
        try:
            async with entry.turn:
                missing = [one for one in partitions if not _has(entry, one, group)]
                if missing:
                    await self._ask(who, entry, missing, group)
        finally:
            entry.requests -= 1
            if not entry.spots:
                self._drop(who, entry)

    def check(self, who: Identity, partition: Partition, group: str = "") -> None:
        """Raise unless a transaction may write to a partition now; called right before it does."""
        entry = self._find(who)
        if entry is None:
            raise _ended()
        if not _has(entry, partition, group):
            raise NotLeaderError("the partition was led elsewhere meanwhile; ask again")

    def end(self, number: int) -> None:
        """Let a transaction write nothing more: it has ended, as its coordinator says.

        Admissions that are being asked for are dropped, too, whatever the answer will be.
        """
        self._known.pop(number, None)

    def tidy(self) -> None:
        """Forget admissions to partitions that are not led here as they were then."""
        for number, lives in list(self._known.items()):
            for life, entry in list(lives.items()):
                stale = [spot for spot, epoch in entry.spots.items() if self._is_stale(spot, epoch)]
                for spot in stale:
                    del entry.spots[spot]
                if not entry.spots and not entry.requests:
                    self._remove(number, life)

    def _is_stale(self, spot: Spot, epoch: Epoch) -> bool:
        topic = self._topics.get(spot[0].topic)
        if topic is None or spot[0].partition >= len(topic.partitions):
            return True
        leadership = topic.partitions[spot[0].partition].leadership
        return leadership.role is not Role.LEADER or leadership.epoch != epoch

    async def _ask(
        self, who: Identity, entry: Admission, missing: Sequence[Partition], group: str
    ) -> None:
        coordinators = self._topics.get(TopicName(TX_TOPIC))
        count = 0 if coordinators is None else len(coordinators.partitions)
        coordinator = self._link.coordinator_of(who.producer_id, count=count)
        epochs = {one.name: one.leadership.epoch for one in missing}
        speaker = TxWho(who.producer_id, who.epoch, who.number or 0)
        names = iter(epochs)
        while chunk := list(islice(names, TX_PLACES_MAX)):
            places = [TxPlace(one.topic, one.partition, group) for one in chunk]
            call = TxAdd(speaker, places)
            await self._link.ask(coordinator, PeerOperation.TX_ADD, call, TxAdded)
        if self._find(who) is not entry:
            raise _ended()
        entry.spots |= {(name, group): epoch for name, epoch in epochs.items()}

    def _find(self, who: Identity) -> Admission | None:
        return self._known.get(who.number or 0, {}).get((who.producer_id, who.epoch))

    def _entry(self, who: Identity) -> Admission:
        if not who.number:
            raise InvalidRequestError("transaction: its number is required")
        lives = self._known.setdefault(who.number, {})
        entry = lives.get((who.producer_id, who.epoch))
        if entry is None:
            entry = lives[who.producer_id, who.epoch] = Admission()
            if len(self._known) > ADMISSIONS_MAX:
                self._forget_oldest()
        return entry

    def _forget_oldest(self) -> None:
        for number, lives in self._known.items():
            if not any(entry.requests for entry in lives.values()):
                del self._known[number]
                return

    def _drop(self, who: Identity, entry: Admission) -> None:
        if not entry.requests and self._find(who) is entry:
            self._remove(who.number or 0, (who.producer_id, who.epoch))

    def _remove(self, number: int, life: tuple[int, int]) -> None:
        del self._known[number][life]
        if not self._known[number]:
            del self._known[number]


def _ended() -> NotCoordinatorError:
    """Return what is said of a transaction that has ended: its coordinator knows more."""
    return NotCoordinatorError("the transaction has ended meanwhile; ask again")


def _has(entry: Admission, partition: Partition, group: str) -> bool:
    leadership = partition.leadership
    is_led = leadership.role is Role.LEADER
    return is_led and entry.spots.get((partition.name, group)) == leadership.epoch
