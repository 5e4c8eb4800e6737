"""The native operations of transactions."""

from collections.abc import Callable
from typing import Any

from goqueue.base.ids import Offset
from goqueue.core.tx.producer import ABORT, COMMIT, Identity, TxProducer
from goqueue.runtime.broker import Broker
from goqueue.transport.native.queue_dispatch import place_of, settled_part, settlement_of
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls, queue_calls, tx_calls
from goqueue.wire.packet import Operation
from goqueue.wire.tx_calls import UNCOUNTED


class TxOperations:
    """Translates requests of transactional producers into broker calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add every operation to a dispatch."""
        add(Operation.TX_INIT, tx_calls.TxInit, self._init)
        add(Operation.TX_BEGIN, tx_calls.TxWho, self._begin)
        add(Operation.TX_HOLD, tx_calls.TxHold, self._hold)
        add(Operation.TX_OFFSETS, tx_calls.TxOffsets, self._offsets)
        add(Operation.TX_DETACH, tx_calls.TxWho, self._detach)
        add(Operation.TX_ADOPT, tx_calls.TxAdopt, self._adopt)
        add(Operation.TX_END, tx_calls.TxEnd, self._end)
        add(Operation.TX_HEARTBEAT, tx_calls.TxWho, self._heartbeat)
        add(Operation.TX_LIST, tx_calls.TxListed, self._list)
        add(Operation.TX_DESCRIBE, tx_calls.TxName, self._describe)
        add(Operation.TX_ABORT, tx_calls.TxName, self._abort)

    async def _init(self, call: tx_calls.TxInit, _: Beside) -> Reply:
        life = await self._broker.transactions.init(
            call.transactional_id,
            timeout_ms=call.timeout_ms,
            who=None if call.who is None else identity_of(call.who),
        )
        stamp = life.stamp
        return Reply(tx_calls.TxLife(stamp.producer_id, stamp.epoch, life.token))

    async def _begin(self, call: tx_calls.TxWho, _: Beside) -> Reply:
        return Reply(tx_calls.TxNumber(await self._broker.transactions.begin(identity_of(call))))

    async def _hold(self, call: tx_calls.TxHold, _: Beside) -> Reply:
        settlements = [settlement_of(place, part) for place, part in enumerate(call.parts)]
        outcomes = await self._broker.transactions.hold(
            identity_of(call.who), call.group, settlements
        )
        return Reply(queue_calls.Settled([settled_part(outcome) for outcome in outcomes]))

    async def _offsets(self, call: tx_calls.TxOffsets, _: Beside) -> Reply:
        offsets = {place_of(one.topic, one.partition): Offset(one.offset) for one in call.offsets}
        await self._broker.transactions.add_offsets(identity_of(call.who), call.group, offsets)
        return Reply(calls.Nothing())

    async def _detach(self, call: tx_calls.TxWho, _: Beside) -> Reply:
        await self._broker.transactions.detach(identity_of(call))
        return Reply(calls.Nothing())

    async def _adopt(self, call: tx_calls.TxAdopt, _: Beside) -> Reply:
        children = [identity_of(child) for child in call.children]
        await self._broker.transactions.adopt(identity_of(call.who), children)
        return Reply(calls.Nothing())

    async def _end(self, call: tx_calls.TxEnd, _: Beside) -> Reply:
        outcome = COMMIT if call.is_commit else ABORT
        is_ended = await self._broker.transactions.end(
            identity_of(call.who),
            outcome,
            token=call.token,
            messages=None if call.messages == UNCOUNTED else call.messages,
        )
        return Reply(tx_calls.TxEnded(is_ended))

    async def _heartbeat(self, call: tx_calls.TxWho, _: Beside) -> Reply:
        self._broker.transactions.heartbeat(identity_of(call))
        return Reply(calls.Nothing())

    async def _list(self, call: tx_calls.TxListed, _: Beside) -> Reply:
        found = [
            self._state(one)
            for one in self._broker.transactions
            if one.is_open or not call.is_open_only
        ]
        return Reply(tx_calls.TxList(found[: call.limit]))

    async def _describe(self, call: tx_calls.TxName, _: Beside) -> Reply:
        return Reply(self._state(self._broker.transactions.get(call.transactional_id)))

    async def _abort(self, call: tx_calls.TxName, _: Beside) -> Reply:
        await self._broker.transactions.abort_named(call.transactional_id)
        return Reply(self._state(self._broker.transactions.get(call.transactional_id)))

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
