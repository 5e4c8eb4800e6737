"""Recurring schedules: made, listed, described, paused, resumed, triggered, deleted."""

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import ForbiddenError, InvalidRequestError
from goqueue.core.record.message import parse_priority
from goqueue.core.recurring.spec import Missed, ScheduleSpec
from goqueue.runtime.broker import Broker
from goqueue.runtime.recurring.schedules import ScheduleView
from goqueue.service.gate import Gate
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls
from goqueue.wire.schedule_calls import (
    ACTIVE,
    PAUSED,
    CreateSchedule,
    ListSchedules,
    ScheduleCall,
    ScheduleDetail,
    ScheduleEntry,
    ScheduleList,
)


class Schedules:
    """What can be asked about recurring schedules."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._gate = gate
        self._schedules = broker.schedules

    @caller_verb(Deed.CREATE_SCHEDULE)
    async def create(self, caller: Caller, call: CreateSchedule) -> ScheduleDetail:
        """Make a schedule, durably."""
        if caller.tenant is not None and not call.name.startswith(f"{caller.tenant}."):
            # Whether another tenant has one of this name is not told.
            raise ForbiddenError(f"a schedule of the tenant has a name with {caller.tenant}. first")
        if call.missed not in tuple(Missed):
            raise InvalidRequestError(f"missed: must be one of {', '.join(Missed)}")
        spec = ScheduleSpec(
            topic=call.topic,
            value=call.value,
            cron=call.cron,
            every_ms=call.every_ms,
            zone=call.tz,
            key=call.key,
            headers=call.headers,
            priority=parse_priority(call.priority),
            missed=Missed(call.missed),
        )
        return _detail(await self._schedules.create(call.name, spec))

    @caller_verb(Deed.LIST_SCHEDULES)
    async def list_all(self, caller: Caller, call: ListSchedules) -> ScheduleList:
        """Return a page of schedules by name, each with its next tick."""
        return self._page(caller, call, is_partial=False)

    @caller_verb(Deed.LIST_SCHEDULES)
    async def list_here(self, caller: Caller, call: ListSchedules) -> ScheduleList:
        """Return a page of the schedules that this node hosts, for a list of all nodes."""
        return self._page(caller, call, is_partial=True)

    def _page(self, caller: Caller, call: ListSchedules, *, is_partial: bool) -> ScheduleList:
        def is_seen(name: str) -> bool:
            return self._gate.sees(caller, Deed.DESCRIBE_SCHEDULE, name)

        page, total = self._schedules.page(
            skip=call.skip, limit=call.limit, is_partial=is_partial, is_seen=is_seen
        )
        return ScheduleList([_entry(view) for view in page], total)

    @verb(Deed.DESCRIBE_SCHEDULE)
    async def describe(self, call: ScheduleCall) -> ScheduleDetail:
        """Return a schedule with its next ticks and its message."""
        return _detail(self._schedules.get(call.name))

    @verb(Deed.PAUSE_SCHEDULE)
    async def pause(self, call: ScheduleCall) -> ScheduleDetail:
        """Publish no ticks until the schedule is resumed, durably."""
        return _detail(await self._schedules.pause(call.name))

    @verb(Deed.RESUME_SCHEDULE)
    async def resume(self, call: ScheduleCall) -> ScheduleDetail:
        """Publish the ticks after now, durably."""
        return _detail(await self._schedules.resume(call.name))

    @verb(Deed.TRIGGER_SCHEDULE)
    async def trigger(self, call: ScheduleCall) -> ScheduleDetail:
        """Publish the message of a schedule now, beside its ticks."""
        return _detail(await self._schedules.trigger(call.name))

    @verb(Deed.DELETE_SCHEDULE)
    async def delete(self, call: ScheduleCall) -> calls.Nothing:
        """End a schedule, durably."""
        await self._schedules.delete(call.name)
        return calls.Nothing()


def _entry(view: ScheduleView) -> ScheduleEntry:
    state = view.state
    spec = state.spec
    return ScheduleEntry(
        view.name,
        spec.topic,
        spec.cron,
        spec.every_ms,
        spec.zone,
        spec.missed.value,
        PAUSED if state.is_paused else ACTIVE,
        state.created_ms,
        view.next_ticks_ms,
        state.published,
        state.missed,
        state.refused,
        state.last_tick_ms,
        state.last_partition,
        state.last_offset,
        view.error or state.error,
        state.error_ms,
    )


def _detail(view: ScheduleView) -> ScheduleDetail:
    spec = view.state.spec
    return ScheduleDetail(_entry(view), spec.value, spec.key, dict(spec.headers), spec.priority)
