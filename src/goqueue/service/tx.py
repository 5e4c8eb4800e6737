"""Transactions: the life of their producers, what they hold, how they end."""

from collections import Counter

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset, TopicName
from goqueue.core.tx.producer import ABORT, COMMIT, Identity, TxProducer
from goqueue.runtime.broker import Broker
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.service.gate import Gate
from goqueue.service.settlements import place_of, settled_part, settlement_of
from goqueue.service.verb import caller_verb, finding_verb, verb
from goqueue.wire import calls, queue_calls, tx_calls
from goqueue.wire.http.transactions import LogSize, ProducerCounts, TransactionStats
from goqueue.wire.tx_calls import UNCOUNTED


class Transactions:
    """What can be asked about transactions; HTTP names the transactional id in each request."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate
        self._transactions = broker.transactions

    @verb(Deed.TX_INIT)
    async def init(self, call: tx_calls.TxInit) -> tx_calls.TxLife:
        """Begin a life of a transactional id; earlier ones are fenced."""
        life = await self._transactions.init(
            call.transactional_id,
            timeout_ms=call.timeout_ms,
            who=None if call.who is None else identity_of(call.who),
        )
        return tx_calls.TxLife(life.stamp.producer_id, life.stamp.epoch, life.token)

    @finding_verb(Deed.TX_BEGIN)
    async def begin(self, grant: Grant, call: tx_calls.TxWho) -> tx_calls.TxNumber:
        """Begin a transaction."""
        self._admit(grant, call)
        return tx_calls.TxNumber(await self._transactions.begin(identity_of(call)))

    @finding_verb(Deed.TX_BEGIN)
    async def begin_named(
        self, grant: Grant, call: tx_calls.TxWho, name: str | None
    ) -> tx_calls.TxState:
        """Begin a transaction of a transactional id and return where it stands."""
        self._admit(grant, call)
        who = identity_of(call)
        await self._transactions.begin(who, name)
        return self._state(self._transactions.find(who))

    @finding_verb(Deed.TX_ADD_PARTITION)
    async def add_partition(
        self, grant: Grant, call: tx_calls.TxWho, place: tuple[str, int], name: str | None
    ) -> None:
        """Let a transaction write to a partition."""
        self._admit(grant, call)
        self._gate.admit(grant.caller, Deed.PUBLISH, (place[0],))
        await self._transactions.add_partitions(identity_of(call), [place], name)

    @finding_verb(Deed.TX_HOLD)
    async def hold(self, grant: Grant, call: tx_calls.TxHold) -> queue_calls.Settled:
        """Let a transaction ack messages of a group."""
        await self._transactions.learn_name(call.who.producer_id)
        self._admit(grant, call.who)
        self._gate.admit(grant.caller, Deed.SETTLE, (call.group,))
        settlements = [settlement_of(place, part) for place, part in enumerate(call.parts)]
        outcomes = await self._transactions.hold(identity_of(call.who), call.group, settlements)
        return queue_calls.Settled([settled_part(outcome) for outcome in outcomes])

    @finding_verb(Deed.TX_OFFSETS)
    async def offsets(self, grant: Grant, call: tx_calls.TxOffsets) -> calls.Nothing:
        """Let a transaction commit offsets of a group."""
        self._admit(grant, call.who)
        self._gate.admit(grant.caller, Deed.COMMIT_OFFSETS, (call.group,))
        offsets = {place_of(one.topic, one.partition): Offset(one.offset) for one in call.offsets}
        await self._transactions.add_offsets(identity_of(call.who), call.group, offsets)
        return calls.Nothing()

    @finding_verb(Deed.TX_DETACH)
    async def detach(self, grant: Grant, call: tx_calls.TxWho) -> calls.Nothing:
        """Leave a transaction for another to adopt."""
        self._admit(grant, call)
        await self._transactions.detach(identity_of(call))
        return calls.Nothing()

    @finding_verb(Deed.TX_ADOPT)
    async def adopt(self, grant: Grant, call: tx_calls.TxAdopt) -> calls.Nothing:
        """Let detached transactions end as this one does."""
        self._admit(grant, call.who, *call.children)
        children = [identity_of(child) for child in call.children]
        await self._transactions.adopt(identity_of(call.who), children)
        return calls.Nothing()

    @finding_verb(Deed.TX_END)
    async def end(
        self, grant: Grant, call: tx_calls.TxEnd, name: str | None = None
    ) -> tx_calls.TxEnded:
        """Commit or abort."""
        self._admit(grant, call.who)
        is_ended = await self._transactions.end(
            identity_of(call.who),
            COMMIT if call.is_commit else ABORT,
            token=call.token,
            messages=None if call.messages == UNCOUNTED else call.messages,
            name=name,
        )
        return tx_calls.TxEnded(is_ended)

    @finding_verb(Deed.TX_HEARTBEAT)
    async def heartbeat(
        self, grant: Grant, call: tx_calls.TxWho, name: str | None = None
    ) -> calls.Nothing:
        """Note that a producer is there."""
        self._admit(grant, call)
        self._transactions.heartbeat(identity_of(call), name)
        return calls.Nothing()

    @caller_verb(Deed.TX_LIST)
    async def list_all(self, caller: Caller, call: tx_calls.TxListed) -> tx_calls.TxList:
        """Return transactional producers, in the order of their ids."""
        found = [one for one in self._transactions if one.is_open or not call.is_open_only]
        seen = self._gate.visible(caller, Deed.TX_DESCRIBE, found, lambda one: str(one.name))
        return tx_calls.TxList(list(map(self._state, seen[: call.limit])))

    @verb(Deed.TX_DESCRIBE)
    async def describe(self, call: tx_calls.TxName) -> tx_calls.TxState:
        """Return where a transactional producer stands."""
        return self._state(self._transactions.get(call.transactional_id))

    @verb(Deed.TX_ABORT)
    async def abort(self, call: tx_calls.TxName) -> tx_calls.TxState:
        """Abort what a transactional id has open."""
        await self._transactions.abort_named(call.transactional_id)
        return self._state(self._transactions.get(call.transactional_id))

    @verb(Deed.TX_LIST)
    async def stats(self) -> TransactionStats:
        """Return transactions, producers and the coordinator's log in numbers."""
        states = Counter(str(one.shown_state) for one in self._transactions)
        topics = self._broker.topics
        journal = topics.get(TopicName(TX_TOPIC))
        logs = [] if journal is None else [one.log for one in journal.partitions]
        remembered = sum(len(one.ledger) for topic in topics.values() for one in topic.partitions)
        return TransactionStats(
            active_transactions=sum(one.is_open for one in self._transactions),
            transactions_by_state=dict(sorted(states.items())),
            producers=ProducerCounts(
                active=sum(states.values()),
                sequence_states=remembered,
                next_producer_id=self._broker.next_producer_id,
            ),
            log=LogSize(
                size_bytes=sum(log.size_bytes for log in logs),
                records=sum(log.end_offset - log.start_offset for log in logs),
            ),
        )

    def _admit(self, grant: Grant, *speakers: tx_calls.TxWho) -> None:
        """Ask the gate about the transactional ids of those who speak, or raise.

        A number that belongs to none is refused by what is asked for.
        """
        found = (self._transactions.name_of(one.producer_id) for one in speakers)
        names = tuple(dict.fromkeys(name for name in found if name is not None))
        if names:
            self._gate.name(grant, *names)

    def _state(self, producer: TxProducer) -> tx_calls.TxState:
        open_ms = self._broker.clock.now_ms() - producer.begun_at_ms if producer.is_open else 0
        return tx_calls.TxState(
            producer.name,
            producer.producer_id,
            producer.epoch,
            producer.shown_state,
            producer.number,
            producer.begun_at_ms,
            max(open_ms, 0),
            producer.timeout_ms,
            list(producer.partitions),
            producer.groups,
            producer.token,
            producer.is_detached,
            producer.adopter,
            tuple(child.name for child in producer.adopted.values()),
        )


def identity_of(call: tx_calls.TxWho) -> Identity:
    """Return who speaks."""
    return Identity(producer_id=call.producer_id, epoch=call.epoch, number=call.number or None)
