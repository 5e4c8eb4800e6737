"""Every recurring schedule of a broker: made, shown, paused, deleted, and woken for its ticks.

Shape: host of deciders (``runtime/machine.py``), one for each schedule, in the state partition of
its name. One timer wakes those that are due; each publishes in a task of its own, some at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, NamedTuple

from goqueue.base.errors import (
    GoQueueError,
    NotCoordinatorError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    SchedulesFullError,
    ShuttingDownError,
    TopicNotFoundError,
)
from goqueue.base.limits import (
    SCHEDULE_RUNS_MAX,
    SCHEDULE_TICKS_SHOWN,
    SCHEDULES_BYTES_MAX,
    SCHEDULES_MAX,
)
from goqueue.base.units import SECOND_MS
from goqueue.core.recurring.recurring import Event, ScheduleState
from goqueue.core.recurring.spec import ScheduleSpec, check_spec, schedule_name
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import Metrics
from goqueue.observability.schedule_metrics import ScheduleMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.machine import StateJournal, homes_in
from goqueue.runtime.own_targets import OwnTargets
from goqueue.runtime.recurring.alarms import Alarms
from goqueue.runtime.recurring.calendar import check_calendar
from goqueue.runtime.recurring.hosted_schedule import KEY_PREFIX, FindTopic, HostedSchedule

SLEEP_MS_MAX: Final = SECOND_MS
"""The wall clock is looked at this often at least while there are schedules: it may be set."""

Seen = Callable[[str], bool]
log = get_logger("goqueue.schedules")


class ScheduleView(NamedTuple):
    """A schedule as people see it; times are those of its clock."""

    name: str
    state: ScheduleState
    next_ticks_ms: list[int]
    error: str = ""
    """Why nothing can be published now, if that is known before it is tried."""


class Schedules:
    """Hosts one decider per schedule. Runs in the broker's event loop."""

    def __init__(
        self, state: StateJournal, find_topic: FindTopic, *, clock: Clock, metrics: Metrics
    ) -> None:
        self.targets: OwnTargets | None = None
        """The leaders of a cluster."""
        self._state = state
        self._find_topic = find_topic
        self._clock = clock
        self._metrics = ScheduleMetrics(metrics)
        self._hosted: dict[str, HostedSchedule] = {}
        self._bytes = 0
        self._wall = Alarms()
        self._steady = Alarms()
        self._shift_ms = clock.shift_ms()
        self._runs: dict[asyncio.Task[None], str] = {}
        self._free = asyncio.Semaphore(SCHEDULE_RUNS_MAX)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._metrics.watch(self._counts)

    def __repr__(self) -> str:
        return f"<Schedules: {len(self._hosted)}, {len(self._runs)} publishing>"

    def _counts(self) -> dict[str, int]:
        paused = sum(one.state.is_paused for one in self._hosted.values())
        return {"active": len(self._hosted) - paused, "paused": paused}

    # Life.

    def load(self, partition: int) -> None:
        """Bring back the schedules of a state partition; what is due is published soon."""
        for key in self._state.keys(KEY_PREFIX, partition):
            hosted = self._host(key.removeprefix(KEY_PREFIX))
            hosted.host.load(Event)
            if hosted.machine.is_there:
                self._add(hosted)
        self._set_alarm()

    def unload(self, partition: int) -> list[asyncio.Task[None]]:
        """Let go of the schedules of a state partition; return what is to be waited for."""
        gone = set(homes_in(self._state, partition, self._hosted))
        for name in gone:
            self._hosted[name].host.close()
            self._remove(name)
        ended = [task for task, name in self._runs.items() if name in gone]
        for task in ended:
            task.cancel()
        return ended

    def start(self) -> None:
        """Begin to publish, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._set_alarm()

    async def stop(self) -> None:
        """Publish nothing any more; what was begun is seen to by the next start."""
        self._is_stopped = True
        self._loop = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        runs = list(self._runs)
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    def _host(self, name: str) -> HostedSchedule:
        return HostedSchedule(
            name,
            state=self._state,
            find_topic=self._find_topic,
            clock=self._clock,
            metrics=self._metrics,
            targets=self.targets,
        )

    def _add(self, hosted: HostedSchedule) -> None:
        self._hosted[hosted.name] = hosted
        self._bytes += hosted.state.spec.size_bytes
        self._follow_clock(hosted)
        self._arm(hosted)

    def _remove(self, name: str) -> None:
        hosted = self._hosted.pop(name)
        self._bytes -= hosted.state.spec.size_bytes
        self._wall.drop(name)
        self._steady.drop(name)

    # Looking.

    def get(self, name: str) -> ScheduleView:
        """Return a schedule with its next ticks, or raise."""
        return self._view(self._find(name), SCHEDULE_TICKS_SHOWN)

    def page(
        self, *, skip: int, limit: int, is_partial: bool = False, is_seen: Seen = bool
    ) -> tuple[list[ScheduleView], int]:
        """Return schedules by name, each with its next tick, and how many there are in all."""
        if not (is_partial or self._state.is_whole):
            raise NotCoordinatorError("not all schedules are loaded here; ask again")
        names = sorted(filter(is_seen, self._hosted))
        page = [self._hosted[name] for name in names[skip : skip + limit]]
        return [self._view(one, 1) for one in page], len(names)

    def _view(self, hosted: HostedSchedule, count: int) -> ScheduleView:
        error = ""
        try:
            self._find_topic(hosted.state.spec.topic)
        except TopicNotFoundError as absent:
            error = absent.message
        return ScheduleView(hosted.name, hosted.state, list(hosted.next_ticks(count)), error)

    def _find(self, name: str) -> HostedSchedule:
        self._state.check(name)
        hosted = self._hosted.get(name)
        if hosted is None:
            raise ScheduleNotFoundError(f"schedule not found: {ascii(name)[1:-1][:249]}")
        return hosted

    # Changing.

    async def create(self, name: object, spec: ScheduleSpec) -> ScheduleView:
        """Make a schedule, durably; its first tick comes after now."""
        checked = schedule_name(name)
        check_spec(spec)
        check_calendar(spec, now_ms=self._clock.now_ms())
        self._find_topic(spec.topic)
        await self._state.prepare()
        self._state.check(checked)
        self._check_room(checked, spec)
        hosted = self._host(checked)
        now_ms = self._clock.now_ms() if spec.cron else self._clock.steady_ms()
        hosted.commit(hosted.machine.create(spec, now_ms=now_ms))
        self._add(hosted)
        self._set_alarm()
        log.info(LogEvent.SCHEDULE_CREATED, schedule=checked, topic=spec.topic)
        await hosted.host.durable()
        return self._view(hosted, SCHEDULE_TICKS_SHOWN)

    def _check_room(self, name: str, spec: ScheduleSpec) -> None:
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        if name in self._hosted:
            raise ScheduleExistsError(f"schedule exists: {name}")
        if len(self._hosted) >= SCHEDULES_MAX:
            raise SchedulesFullError(
                f"there are {len(self._hosted)} schedules; the limit is {SCHEDULES_MAX}"
            )
        if self._bytes + spec.size_bytes > SCHEDULES_BYTES_MAX:
            raise SchedulesFullError(
                f"the messages of all schedules would take {self._bytes + spec.size_bytes} bytes;"
                f" the limit is {SCHEDULES_BYTES_MAX}"
            )

    async def pause(self, name: str) -> ScheduleView:
        """Publish no ticks until the schedule is resumed, durably."""
        hosted = self._find(name)
        hosted.commit(hosted.machine.pause())
        return await self._changed(hosted)

    async def resume(self, name: str) -> ScheduleView:
        """Publish the ticks after now, durably; those while it was paused never were."""
        hosted = self._find(name)
        hosted.commit(hosted.machine.resume(now_ms=hosted.now_ms()))
        return await self._changed(hosted)

    async def _changed(self, hosted: HostedSchedule) -> ScheduleView:
        self._arm(hosted)
        self._set_alarm()
        await hosted.host.durable()
        return self._view(hosted, SCHEDULE_TICKS_SHOWN)

    async def delete(self, name: str) -> None:
        """End a schedule, durably; a message that is being published still is."""
        hosted = self._find(name)
        async with hosted.turn:
            if self._hosted.get(name) is not hosted:
                raise ScheduleNotFoundError(f"schedule not found: {name}")
            hosted.host.close(ScheduleNotFoundError(f"schedule not found: {name}"))
            self._remove(name)
            gone: Awaitable[None] = hosted.host.forget()
        log.info(LogEvent.SCHEDULE_DELETED, schedule=name)
        await gone

    async def trigger(self, name: str) -> ScheduleView:
        """Publish the message of a schedule now, beside its ticks; return when it is durable.

        It is seen to the end where the caller does not wait for it.
        """
        hosted = self._find(name)
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        task = self._start(hosted, self._trigger(hosted))
        await asyncio.wait([task])
        if task.cancelled():
            if self._is_stopped:
                raise ShuttingDownError("the broker is stopping; the message may be published")
            raise NotCoordinatorError(f"schedule {name} is not here; the message may be published")
        task.result()
        return self._view(hosted, SCHEDULE_TICKS_SHOWN)

    async def _trigger(self, hosted: HostedSchedule) -> None:
        try:
            await hosted.trigger()
        finally:
            # What was begun and not finished is tried again.
            self._arm_again(hosted)

    def topic_created(self, topic: str) -> None:
        """Go on with the schedules that wait for a topic."""
        for hosted in self._hosted.values():
            if hosted.retry_ms is not None and hosted.state.spec.topic == topic:
                hosted.retry_ms = None
                self._arm(hosted)
        self._set_alarm()

    # Ticking.

    def tick(self) -> None:
        """Begin to publish for every schedule that is due by now."""
        self._look_at_the_wall()
        wall_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        for name in [*self._wall.take_due(wall_ms), *self._steady.take_due(steady_ms)]:
            hosted = self._hosted[name]
            self._start(hosted, self._run(hosted))

    def _start(
        self, hosted: HostedSchedule, work: Coroutine[None, None, None]
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._runs[task] = hosted.name
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        if not task.cancelled():
            # The error of a trigger is its caller's, who may be gone.
            task.exception()

    async def settled(self) -> None:
        """Return when nothing is being published; for tests, which set the clock."""
        while self._runs:
            await asyncio.wait(list(self._runs))

    async def _run(self, hosted: HostedSchedule) -> None:
        before = hosted.state.error
        try:
            async with self._free:
                error = await hosted.run()
        except (NotCoordinatorError, ScheduleNotFoundError):
            # Unloaded or deleted meanwhile.
            return
        except Exception:
            log.exception(LogEvent.SCHEDULE_CRASHED, schedule=hosted.name)
            hosted.retry_ms = self._clock.steady_ms() + SLEEP_MS_MAX
        else:
            self._report(hosted, before, error)
        self._arm_again(hosted)

    def _arm_again(self, hosted: HostedSchedule) -> None:
        if self._hosted.get(hosted.name) is hosted:
            self._arm(hosted)
            self._set_alarm()

    def _report(self, hosted: HostedSchedule, before: str, error: GoQueueError | None) -> None:
        """Log why ticks are not published, once, and that they are again."""
        after = hosted.state.error
        if after == before:
            return
        topic = hosted.state.spec.topic
        if error is not None:
            log.warning(
                LogEvent.SCHEDULE_STALLED, schedule=hosted.name, topic=topic, error=error.message
            )
        elif after:
            log.warning(LogEvent.TICK_REFUSED, schedule=hosted.name, topic=topic, error=after)
        else:
            log.info(LogEvent.SCHEDULE_RECOVERED, schedule=hosted.name, topic=topic)

    def _arm(self, hosted: HostedSchedule) -> None:
        """Wake a schedule for its next tick, or for another attempt."""
        name = hosted.name
        self._wall.drop(name)
        self._steady.drop(name)
        if hosted.retry_ms is not None:
            self._steady.set(name, hosted.retry_ms)
        elif hosted.state.begun is not None:
            self._steady.set(name, 0)
        else:
            next_ms = hosted.next_ms()
            if next_ms is not None:
                (self._wall if hosted.is_cron else self._steady).set(name, next_ms)

    def _set_alarm(self) -> None:
        if self._loop is None or (self._alarm is not None and not self._is_sooner()):
            return
        waits = self._waits_ms()
        if not waits:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        # One more millisecond: woken just before its time it would have to sleep again.
        sleep_ms = min(max(min(waits), 0) + 1, SLEEP_MS_MAX)
        self._alarm = self._loop.call_later(sleep_ms / SECOND_MS, self._wake)

    def _is_sooner(self) -> bool:
        assert self._alarm is not None, "set"
        assert self._loop is not None, "started"
        left_ms = (self._alarm.when() - self._loop.time()) * SECOND_MS
        return min(self._waits_ms(), default=SLEEP_MS_MAX) + 1 < left_ms

    def _waits_ms(self) -> list[int]:
        clocks = ((self._wall, self._clock.now_ms()), (self._steady, self._clock.steady_ms()))
        return [at.next_ms - now_ms for at, now_ms in clocks if at.next_ms is not None]

    def _wake(self) -> None:
        self._alarm = None
        try:
            self.tick()
        finally:
            self._set_alarm()

    def _look_at_the_wall(self) -> None:
        """Take notice of a wall clock that was set: no tick comes twice, and no burst of them."""
        shift_ms = self._clock.shift_ms()
        by_ms, self._shift_ms = shift_ms - self._shift_ms, shift_ms
        if not by_ms:
            return
        for hosted in self._hosted.values():
            hosted.look_at_the_wall()
            if by_ms < 0:
                self._follow_clock(hosted)
                self._arm(hosted)

    def _follow_clock(self, hosted: HostedSchedule) -> None:
        try:
            hosted.check_clock()
        except GoQueueError as error:
            log.warning(LogEvent.SCHEDULE_STALLED, schedule=hosted.name, error=error.message)
