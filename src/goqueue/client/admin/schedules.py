"""Recurring schedules in the SDK: made, listed, described, paused, resumed, triggered, deleted."""

from typing import Unpack

from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.protocol.delays import Delay
from goqueue.client.protocol.schedules import (
    Schedule,
    ScheduledFields,
    schedule_of,
    wanted_schedule,
)
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from goqueue.wire.schedule_calls import (
    ListSchedules,
    ScheduleCall,
    ScheduleDetail,
    ScheduleEntry,
    ScheduleList,
)


class AsyncSchedules(AsyncCalls):
    """The calls on recurring schedules."""

    async def create_schedule(
        self,
        name: str,
        topic: str,
        value: bytes,
        *,
        cron: str | None = None,
        every: Delay | None = None,
        tz: str = "UTC",
        missed: str = "one",
        **message: Unpack[ScheduledFields],
    ) -> Schedule:
        """Publish a message again and again: by a ``cron`` line in a zone, or ``every`` so often.

        ``missed`` says what becomes of ticks while the broker was down: "skip" publishes none of
        them, "one" the latest, "all" each, up to the latest 1,000.
        """
        when = (cron, every, tz)
        header = wanted_schedule(name, topic, value, when, missed=missed, message=message)
        return schedule_of(await self._once(Operation.CREATE_SCHEDULE, header, ScheduleDetail))

    async def list_schedules(self, *, limit: int = 1_000, skip: int = 0) -> list[ScheduleEntry]:
        """Return schedules by name, each with its next tick."""
        header = ListSchedules(skip, limit)
        return (await self._call(Operation.LIST_SCHEDULES, header, ScheduleList)).schedules

    async def describe_schedule(self, name: str) -> Schedule:
        """Return a schedule with its next five ticks and its message."""
        header = ScheduleCall(name)
        return schedule_of(await self._call(Operation.DESCRIBE_SCHEDULE, header, ScheduleDetail))

    async def pause_schedule(self, name: str) -> Schedule:
        """Publish no ticks until the schedule is resumed."""
        header = ScheduleCall(name)
        return schedule_of(await self._call(Operation.PAUSE_SCHEDULE, header, ScheduleDetail))

    async def resume_schedule(self, name: str) -> Schedule:
        """Publish the ticks after now; those while it was paused are not made up for."""
        header = ScheduleCall(name)
        return schedule_of(await self._call(Operation.RESUME_SCHEDULE, header, ScheduleDetail))

    async def trigger_schedule(self, name: str) -> Schedule:
        """Publish the message of a schedule now, beside its ticks; return when it is durable."""
        header = ScheduleCall(name)
        return schedule_of(await self._once(Operation.TRIGGER_SCHEDULE, header, ScheduleDetail))

    async def delete_schedule(self, name: str) -> None:
        """End a schedule; what it has published stays."""
        await self._once(Operation.DELETE_SCHEDULE, ScheduleCall(name), calls.Nothing)
