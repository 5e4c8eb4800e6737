"""Native operations about delayed messages."""

from collections.abc import Callable
from typing import Any

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import US_PER_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.schedule import DelayedMessage
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls
from goqueue.wire.delayed_calls import (
    DelayedCall,
    DelayedEntry,
    DelayedList,
    ListDelayed,
    RescheduleDelayed,
)
from goqueue.wire.packet import Operation


class DelayedOperations:
    """Translates requests into calls on the delayed messages of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add every operation to a dispatch."""
        add(Operation.LIST_DELAYED, ListDelayed, self._page)
        add(Operation.FIND_DELAYED, DelayedCall, self._find)
        add(Operation.CANCEL_DELAYED, DelayedCall, self._cancel)
        add(Operation.RESCHEDULE_DELAYED, RescheduleDelayed, self._reschedule)

    async def _page(self, call: ListDelayed, _: Beside) -> Reply:
        found = self._broker.delays.page(call.topic, skip=call.skip, limit=call.limit)
        pending = self._broker.topic(call.topic).delayed
        return Reply(DelayedList(list(map(_entry, found)), pending))

    async def _find(self, call: DelayedCall, _: Beside) -> Reply:
        delays = self._broker.delays
        if call.delay_id is not None:
            found = await delays.find_id(call.topic, call.delay_id)
            return Reply(DelayedList(list(map(_entry, found))))
        one = await delays.find(call.topic, call.partition, call.offset)
        return Reply(DelayedList([_entry(one)]))

    async def _cancel(self, call: DelayedCall, _: Beside) -> Reply:
        delays = self._broker.delays
        if call.delay_id is not None:
            done = await delays.cancel_id(call.topic, call.delay_id)
        else:
            done = [await delays.cancel(call.topic, call.partition, call.offset)]
        return Reply(DelayedList(list(map(_entry, done))))

    async def _reschedule(self, call: RescheduleDelayed, _: Beside) -> Reply:
        delays = self._broker.delays
        if call.delay_ms is not None:
            due_ms = self._broker.clock.due_ms() + call.delay_ms
        elif call.deliver_at_us is not None:
            due_ms = -(-call.deliver_at_us // US_PER_MS)
        else:
            raise InvalidRequestError("a new time is required: delay or deliver_at")
        if call.delay_id is not None:
            done = await delays.reschedule_id(call.topic, call.delay_id, due_ms=due_ms)
        else:
            done = [await delays.reschedule(call.topic, call.partition, call.offset, due_ms=due_ms)]
        return Reply(DelayedList(list(map(_entry, done))))


def _entry(found: DelayedMessage) -> DelayedEntry:
    return DelayedEntry(
        found.topic, found.partition, found.offset, found.due_ms * US_PER_MS, found.state
    )
