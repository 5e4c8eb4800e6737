"""Delayed messages: listed, found, cancelled, given another time."""

from collections.abc import Iterable

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import DelayedNotFoundError, InvalidRequestError
from goqueue.base.limits import DELAYED_PREVIEW_BYTES_MAX
from goqueue.base.units import US_PER_MS
from goqueue.core.record.queue_rows import DELAY_ID
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
        pending = self._broker.topic(call.topic).delayed
        return await self._listed(found, call.topic, pending)

    @verb(Deed.FIND_DELAYED)
    async def find(self, call: DelayedCall) -> DelayedList:
        """Return a message by its place, or those that wait under a name."""
        self._broker.topic(call.topic)
        if call.delay_id is not None:
            found = await self._delays.find_id(call.topic, call.delay_id)
            return await self._listed(found, call.topic)
        one = await self._delays.find(call.topic, call.partition, call.offset)
        return await self._listed([one], call.topic)

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
            return await self._listed([found], topic)
        raise DelayedNotFoundError("delayed message not found")

    @verb(Deed.CANCEL_DELAYED)
    async def cancel(self, call: DelayedCall) -> DelayedList:
        """Have messages never delivered, durably."""
        self._broker.topic(call.topic)
        if call.delay_id is not None:
            gone = await self._delays.cancel_id(call.topic, call.delay_id)
            return await self._listed(gone, call.topic)
        one = await self._delays.cancel(call.topic, call.partition, call.offset)
        return await self._listed([one], call.topic)

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
            moved = await delays.reschedule_id(call.topic, call.delay_id, due_ms=due_ms)
            return await self._listed(moved, call.topic)
        place = call.topic, call.partition, call.offset
        return await self._listed([await delays.reschedule(*place, due_ms=due_ms)], call.topic)

    async def _listed(
        self, found: Iterable[DelayedMessage], topic: str, pending: int = 0
    ) -> DelayedList:
        whole = await self._delays.with_messages(topic, found)
        now_ms = self._broker.clock.steady_ms()
        return DelayedList([_entry(one, now_ms) for one in whole], pending)


def _entry(one: DelayedMessage, now_ms: int) -> DelayedEntry:
    entry = DelayedEntry(
        one.topic,
        one.partition,
        one.offset,
        one.due_ms * US_PER_MS,
        one.state,
        max(one.release_ms - now_ms, 0) if one.state == PENDING else 0,
    )
    message = one.message
    if message is None:
        return entry
    name = (message.headers or {}).get(DELAY_ID)
    return msgspec.structs.replace(
        entry,
        delay_id=None if name is None else name.decode("utf-8", "backslashreplace"),
        key=None if message.key is None else message.key[:DELAYED_PREVIEW_BYTES_MAX],
        value=None if message.value is None else message.value[:DELAYED_PREVIEW_BYTES_MAX],
        value_bytes=len(message.value or b""),
    )
