"""Native operations about delayed messages."""

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import US_PER_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.schedule import DelayedMessage
from goqueue.wire.delayed import (
    DelayedCall,
    DelayedEntry,
    DelayedList,
    ListDelayed,
    RescheduleDelayed,
)


class DelayedOperations:
    """Translates requests into calls on the delayed messages of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def page(self, call: ListDelayed) -> DelayedList:
        """Return messages that wait."""
        found = self._broker.delays.page(call.topic, skip=call.skip, limit=call.limit)
        return DelayedList(list(map(_entry, found)), self._broker.topic(call.topic).delayed)

    async def find(self, call: DelayedCall) -> DelayedList:
        """Return a message by its place, or those that have a name."""
        delays = self._broker.delays
        if call.delay_id is not None:
            return DelayedList(list(map(_entry, await delays.find_id(call.topic, call.delay_id))))
        return DelayedList([_entry(await delays.find(call.topic, call.partition, call.offset))])

    async def cancel(self, call: DelayedCall) -> DelayedList:
        """Have messages never delivered."""
        delays = self._broker.delays
        return DelayedList(
            [
                _entry(await delays.cancel(call.topic, partition, offset))
                for partition, offset in await self._places(call)
            ]
        )

    async def reschedule(self, call: RescheduleDelayed) -> DelayedList:
        """Give messages another time."""
        delays = self._broker.delays
        if call.delay_ms is not None:
            due_ms = self._broker.clock.due_ms() + call.delay_ms
        elif call.deliver_at_us is not None:
            due_ms = -(-call.deliver_at_us // US_PER_MS)
        else:
            raise InvalidRequestError("a new time is required: delay or deliver_at")
        return DelayedList(
            [
                _entry(await delays.reschedule(call.topic, partition, offset, due_ms=due_ms))
                for partition, offset in await self._places(call)
            ]
        )

    async def _places(self, call: DelayedCall | RescheduleDelayed) -> list[tuple[int, int]]:
        if call.delay_id is None:
            return [(call.partition, call.offset)]
        found = await self._broker.delays.find_id(call.topic, call.delay_id)
        return [(one.partition, one.offset) for one in found]


def _entry(found: DelayedMessage) -> DelayedEntry:
    return DelayedEntry(
        found.topic, found.partition, found.offset, found.due_ms * US_PER_MS, found.state
    )
