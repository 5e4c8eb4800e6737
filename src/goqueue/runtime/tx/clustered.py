"""Transactions of a node in a cluster: a coordinator of some, and a participant of any."""

import asyncio
from collections.abc import Mapping
from typing import Final

from goqueue.base.errors import UnknownProducerError
from goqueue.base.ids import TopicName
from goqueue.core.tx.producer import Identity
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.topology import Topology
from goqueue.runtime.tx.coordinator_calls import CoordinatorCalls
from goqueue.runtime.tx.finisher import TxFinisher
from goqueue.runtime.tx.markers import MarkerWriter
from goqueue.runtime.tx.orphans import Orphans
from goqueue.runtime.tx.participant import Participant
from goqueue.runtime.tx.remote_participants import RemoteParticipants
from goqueue.runtime.tx.roster import Roster
from goqueue.runtime.tx.tx_entry import TxEntry
from goqueue.runtime.tx.tx_ids import TxIds
from goqueue.runtime.tx.tx_link import TX_TOPIC, TxHandler, TxLink
from goqueue.wire.peer_calls import PeerOperation
from goqueue.wire.tx_peer_calls import TxAdd, TxAnswer, TxAsk, TxMarks

NAMES_MAX: Final = 10_000
"""Transactional ids of producers of other coordinators that are remembered."""


class TxCluster:
    """What the transactions of one node need of the others, and give them."""

    def __init__(
        self,
        topology: Topology,
        topics: Mapping[TopicName, Topic],
        consume: Consumption,
        roster: Roster,
        clock: Clock,
        *,
        writer: MarkerWriter,
    ) -> None:
        self._topics = topics
        self._roster = roster
        self.link = TxLink(topology)
        self.ids = TxIds(topology)
        self.participants = RemoteParticipants(topics, self.link, roster.partition_of)
        self.participant = Participant(topics, consume, clock, link=self.link, writer=writer)
        self.orphans = Orphans(
            topics,
            consume,
            clock,
            link=self.link,
            writer=writer,
            admissions=self.participant.admissions,
        )
        self._names: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"<TxCluster by {self.link!r}>"

    def serve(self, endings: TxFinisher, entry: TxEntry) -> None:
        """Answer peers from now on."""
        calls = CoordinatorCalls(self._roster, endings, entry, link=self.link)
        self.link.serve(PeerOperation.TX_ADD, TxAdd, calls.add)
        self.link.serve(PeerOperation.TX_ASK, TxAsk, calls.answer)
        self.link.serve(PeerOperation.TX_MARK, TxMarks, self.participant.mark)

    def handlers(self) -> Mapping[PeerOperation, TxHandler]:
        """Return what answers peers, by operation."""
        return self.link.handlers()

    def start(self) -> None:
        """Watch the time."""
        self.orphans.start()

    async def stop(self) -> None:
        """End."""
        self.participants.is_stopped = True
        await self.orphans.stop()

    # What only coordinators know.

    def name_of(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer of any coordinator, if it was learnt."""
        return self._names.get(producer_id)

    async def learn(self, producer_id: int) -> TxAnswer:
        """Ask the coordinator of a producer for its transactional id and latest transaction."""
        coordinator = self.link.coordinator_of(producer_id, count=self._coordinators)
        call = TxAsk(coordinator, producer_id=producer_id)
        answer = await self.link.ask(coordinator, PeerOperation.TX_ASK, call, TxAnswer)
        if answer.transactional_id:
            while len(self._names) >= NAMES_MAX:
                del self._names[next(iter(self._names))]
            self._names[producer_id] = answer.transactional_id
        return answer

    async def resolve(self, who: Identity, name: str | None) -> Identity:
        """Return who speaks, with the latest transaction if none is named; raise if unknown."""
        answer = await self.learn(who.producer_id)
        if not answer.transactional_id or name not in (None, answer.transactional_id):
            raise UnknownProducerError(f"producer {who.producer_id} is not transactional here")
        return who.in_transaction(answer.number)

    async def finish_group(self, group: str) -> None:
        """Return when no coordinator tells again of offsets that a group has committed."""
        calls = [TxAsk(number, group=group) for number in range(self._coordinators)]
        asked = [
            self.link.ask(call.coordinator, PeerOperation.TX_ASK, call, TxAnswer) for call in calls
        ]
        await asyncio.gather(*asked)

    @property
    def _coordinators(self) -> int:
        topic = self._topics.get(TopicName(TX_TOPIC))
        return 0 if topic is None else len(topic.partitions)
