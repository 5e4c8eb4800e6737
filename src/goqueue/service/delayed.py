"""Delayed messages: listed, found, cancelled, given another time."""

from collections.abc import Iterable

from goqueue.base.deeds import Deed
from goqueue.base.errors import DelayedNotFoundError, InvalidRequestError
from goqueue.base.units import US_PER_MS
from goqueue.runtime.broker import Broker
from goqueue.runtime.schedule.delays import PENDING, DelayedMessage
from goqueue.service.verb import verb
from goqueue.wire.delayed_calls import (
    DelayedCall,
    DelayedEntry,
    DelayedList,
    ListDelayed,
    RescheduleDelayed,
)


class Delayed:
    """What can be asked about messages that wait for their time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._delays = broker.delays

    @verb(Deed.LIST_DELAYED)
    async def list_all(self, call: ListDelayed) -> DelayedList:
        """Return a page of the messages of a topic that wait."""
        found = self._delays.page(call.topic, skip=call.skip, limit=call.limit)
        return self._listed(found, self._broker.topic(call.topic).delayed)

    @verb(Deed.FIND_DELAYED)
    async def find(self, call: DelayedCall) -> DelayedList:
        """Return a message by its place, or those that wait under a name."""
        self._broker.topic(call.topic)
        if call.delay_id is not None:
            return self._listed(await self._delays.find_id(call.topic, call.delay_id))
        return self._listed([await self._delays.find(call.topic, call.partition, call.offset)])

    @verb(Deed.FIND_DELAYED)
    async def find_offset(self, topic: str, offset: int) -> DelayedList:
        """Return the message at an offset of whichever partition has a delayed one there."""
        partitions = self._broker.topic(topic).partitions
        waiting = [part for part in partitions if offset in part.queue.hidden]
        if len(waiting) > 1:
            raise InvalidRequestError(f"offset {offset} waits in several partitions: say which")
        for part in waiting or partitions:
            try:
                found = await self._delays.find(topic, part.name.partition, offset)
            except DelayedNotFoundError:
                continue
            return self._listed([found])
        raise DelayedNotFoundError("delayed message not found")

    @verb(Deed.CANCEL_DELAYED)
    async def cancel(self, call: DelayedCall) -> DelayedList:
        """Have messages never delivered, durably."""
        self._broker.topic(call.topic)
        if call.delay_id is not None:
            return self._listed(await self._delays.cancel_id(call.topic, call.delay_id))
        return self._listed([await self._delays.cancel(call.topic, call.partition, call.offset)])

    @verb(Deed.RESCHEDULE_DELAYED)
    async def reschedule(self, call: RescheduleDelayed) -> DelayedList:
        """Give messages another time, durably."""
        if call.delay_ms is not None:
            due_ms = self._broker.clock.due_ms() + call.delay_ms
        elif call.deliver_at_us is not None:
            due_ms = -(-call.deliver_at_us // US_PER_MS)
        else:
            raise InvalidRequestError("a new time is required: delay or deliver_at")
        self._broker.topic(call.topic)
        delays = self._delays
        if call.delay_id is not None:
            return self._listed(
                await delays.reschedule_id(call.topic, call.delay_id, due_ms=due_ms)
            )
        place = call.topic, call.partition, call.offset
        return self._listed([await delays.reschedule(*place, due_ms=due_ms)])

    def _listed(self, found: Iterable[DelayedMessage], pending: int = 0) -> DelayedList:
        now_ms = self._broker.clock.steady_ms()
        return DelayedList(
            [
                DelayedEntry(
                    one.topic,
                    one.partition,
                    one.offset,
                    one.due_ms * US_PER_MS,
                    one.state,
                    max(one.release_ms - now_ms, 0) if one.state == PENDING else 0,
                )
                for one in found
            ],
            pending,
        )
