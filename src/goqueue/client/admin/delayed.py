"""Delayed messages in the SDK: look at those that wait, cancel them, give them another time."""

from datetime import datetime

from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.protocol.delays import Delay, Delayed, all_delayed, named, rescheduled
from goqueue.wire.delayed_calls import DelayedList, ListDelayed
from goqueue.wire.packet import Operation


class AsyncDelays(AsyncCalls):
    """The calls on delayed messages."""

    async def delayed(self, topic: str, *, limit: int = 100, skip: int = 0) -> list[Delayed]:
        """Return messages that wait for their time, in the order of partitions and offsets."""
        header = ListDelayed(topic, skip, limit)
        return all_delayed(await self._call(Operation.LIST_DELAYED, header, DelayedList))

    async def find_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
    ) -> list[Delayed]:
        """Return a delayed message by its place, or those waiting under a ``delay_id``."""
        header = named(topic, partition, offset, id)
        return all_delayed(await self._call(Operation.FIND_DELAYED, header, DelayedList))

    async def cancel_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
    ) -> list[Delayed]:
        """Have waiting messages never delivered; return them when that is certain."""
        header = named(topic, partition, offset, id)
        return all_delayed(await self._once(Operation.CANCEL_DELAYED, header, DelayedList))

    async def reschedule_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> list[Delayed]:
        """Give waiting messages another time; one that has passed makes them due at once."""
        header = rescheduled(named(topic, partition, offset, id), delay, deliver_at)
        return all_delayed(await self._once(Operation.RESCHEDULE_DELAYED, header, DelayedList))
