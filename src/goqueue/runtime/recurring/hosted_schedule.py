"""One recurring schedule at work: the message of each tick is published once.

A tick has three steps, each durable before the next: the schedule notes that it begins, and from
which offset on its message would be found; the message is appended with the identity of the tick;
the schedule notes that it is there. A tick that was cut short is looked for first.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    SchemaViolationError,
)
from goqueue.base.ids import Offset, PartitionId, TopicPartition
from goqueue.base.limits import SCHEDULE_BACKOFF_MS_MAX, SCHEDULE_BACKOFF_MS_MIN
from goqueue.base.units import SECOND_MS, US_PER_MS
from goqueue.core.decision import Decision
from goqueue.core.record.check import check_frames
from goqueue.core.record.headers import ORIGIN
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.core.recurring.recurring import (
    Event,
    RecurringSchedule,
    ScheduleState,
    TickBegun,
    TickPlace,
)
from goqueue.core.recurring.spec import HEADER_SCHEDULE, HEADER_TICK, ScheduleSpec
from goqueue.core.recurring.ticks import Calendar, Choice, Chooser, Counting
from goqueue.observability.schedule_metrics import ScheduleMetrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.origins import find_origins
from goqueue.runtime.log.own_appends import Fence, OwnMessage
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost, StateJournal
from goqueue.runtime.own_targets import OwnTargets
from goqueue.runtime.recurring.calendar import calendar_of
from goqueue.wire.times import format_time_us

KEY_PREFIX: Final = "schedule/"
ORIGIN_BYTES: Final = 16
JUMP_MS_MIN: Final = SECOND_MS
"""A wall clock that is set forward by less is not told from time that passed."""
REFUSALS: Final = (InvalidRequestError, SchemaViolationError)
"""Errors that the same message meets whenever it is published."""

FindTopic = Callable[[str], Topic]


class HostedSchedule:
    """A schedule and its journal. Whoever publishes for it holds ``turn``."""

    def __init__(
        self,
        name: str,
        *,
        state: StateJournal,
        find_topic: FindTopic,
        clock: Clock,
        metrics: ScheduleMetrics,
        targets: OwnTargets | None = None,
    ) -> None:
        self.name = name
        self._state = state
        self._targets = targets
        """The leaders of a cluster; None where every partition is this broker's."""
        self.machine = RecurringSchedule()
        self.host = MachineHost[Event](
            state, f"{KEY_PREFIX}{name}", home=name, machine=self.machine
        )
        # Guards what was begun: one message of the schedule is published at a time.
        self.turn = asyncio.Lock()
        self.retry_ms: int | None = None
        """When to try again by steady time, if the last attempt failed."""
        self._shift_ms = clock.shift_ms()
        self._jumped_ms: int | None = None
        """Up to which time the wall clock was set forward, if it was."""
        self._backoff_ms = SCHEDULE_BACKOFF_MS_MIN
        self._find_topic = find_topic
        self._clock = clock
        self._metrics = metrics
        self._calendar: tuple[ScheduleSpec, int, Calendar, Chooser] | None = None
        self._was_appended = False

    def __repr__(self) -> str:
        return f"<HostedSchedule {self.name}>"

    @property
    def state(self) -> ScheduleState:
        """All that is known of the schedule."""
        return self.machine.state

    @property
    def is_cron(self) -> bool:
        """Return True if the schedule goes by the wall clock."""
        return bool(self.state.spec.cron)

    @property
    def calendar(self) -> Calendar:
        """When the schedule ticks."""
        return self._known_calendar()[0]

    def _known_calendar(self) -> tuple[Calendar, Chooser]:
        spec, anchor_ms = self.state.spec, self.state.anchor_ms
        known = self._calendar
        if known is None or known[:2] != (spec, anchor_ms):
            calendar = calendar_of(spec, anchor_ms=anchor_ms)
            known = self._calendar = (spec, anchor_ms, calendar, Chooser(calendar))
        return known[2:]

    def now_ms(self) -> int:
        """Return the time this schedule goes by: a time of day is the wall's, an interval not."""
        return self._clock.now_ms() if self.is_cron else self._clock.steady_ms()

    def next_ms(self) -> int | None:
        """Return the next tick, or None while there is none to come."""
        state = self.state
        return None if state.is_paused else self.calendar.after(state.last_ms)

    def next_ticks(self, count: int) -> Iterator[int]:
        """Yield the next ticks; of what is due already, from now on."""
        if self.state.is_paused:
            return
        at_ms = max(self.state.last_ms, self.now_ms())
        for _ in range(count):
            next_ms = self.calendar.after(at_ms)
            if next_ms is None:
                return
            yield next_ms
            at_ms = next_ms

    def commit(self, decision: Decision[Event, None]) -> None:
        """Write what was decided and make it true."""
        self.host.commit(decision.events)

    def check_clock(self) -> None:
        """Go on from now if the clock was set back too far to be waited for."""
        self.commit(self.machine.check_clock(now_ms=self.now_ms()))

    def look_at_the_wall(self) -> None:
        """Take notice of a wall clock that was set: what it jumps over makes no burst."""
        shift_ms = self._clock.shift_ms()
        by_ms, self._shift_ms = shift_ms - self._shift_ms, shift_ms
        if by_ms >= JUMP_MS_MIN and self.is_cron:
            self._jumped_ms = self._clock.now_ms()
        elif by_ms < 0 and self._jumped_ms is not None:
            # What lies ahead again comes by itself.
            self._jumped_ms = min(self._jumped_ms, self._clock.now_ms())

    # Ticks.

    async def run(self) -> GoQueueError | None:
        """Publish what is due; return why that stopped, if something did. Holds its turn."""
        async with self.turn:
            self.retry_ms = None
            try:
                while await self._step():
                    self._backoff_ms = SCHEDULE_BACKOFF_MS_MIN
            except GoQueueError as error:
                self.host.check()
                return self._failed(error)
            finally:
                self._known_calendar()[1].forget()
            return None

    def _failed(self, error: GoQueueError) -> GoQueueError:
        self.retry_ms = self._clock.steady_ms() + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, SCHEDULE_BACKOFF_MS_MAX)
        with contextlib.suppress(GoQueueError):
            # Only the note of it is lost where state cannot be written.
            self.commit(self.machine.fail(error.message, now_ms=self._clock.now_ms()))
        return error

    async def _step(self) -> bool:
        """Publish or pass over one tick; return whether there was one."""
        if self.state.begun is not None:
            await self._finish()
            return True
        self.look_at_the_wall()
        state, (_, chooser) = self.state, self._known_calendar()
        choice = await _count(
            self.machine.look(chooser, now_ms=self.now_ms(), jumped_ms=self._jumped_ms)
        )
        if self.state is not state:
            # Paused or resumed while ticks were counted: look again.
            return True
        if choice is None:
            return False
        if choice.tick_ms is None:
            self.commit(self.machine.pass_over(choice))
            await self.host.durable()
        else:
            topic = self._find_topic(self.state.spec.topic)
            tick = await self._place(topic)
            if self.state is not state:
                return True
            self.commit(self.machine.begin(choice, tick))
            await self.host.durable()
            await self._publish(topic)
        self._metrics.missed.inc(choice.missed)
        return True

    async def trigger(self) -> ScheduleState:
        """Publish the message now, beside the ticks; one that is under way goes first."""
        async with self.turn:
            if self.state.begun is not None:
                await self._finish()
            topic = self._find_topic(self.state.spec.topic)
            place = await self._place(topic)
            decision = self.machine.trigger(place, now_ms=self._clock.now_ms())
            self._was_appended = False
            self.commit(decision)
            refused = self.state.refused
            try:
                await self.host.durable()
                await self._publish(topic)
            except GoQueueError as error:
                if not self._was_appended:
                    # It is certain that it is not there: the caller may try again.
                    self._refuse(error)
                    await self.host.durable()
                raise
            if self.state.refused > refused:
                raise SchemaViolationError(self.state.error)
            return self.state

    async def _place(self, topic: Topic) -> TickPlace:
        """Return where the next message goes; here nothing awaits until that is noted."""
        partition = topic.choose(Draft(value=None, key=self.state.spec.key))
        if self._targets is None:
            end_offset = topic.partition(partition).log.end_offset
        else:
            name = TopicPartition(topic.record.name, partition)
            end_offset = await self._targets.end_offset(name, self._fence())
        return TickPlace(topic.record.created_ms, partition, end_offset)

    def _fence(self) -> Fence:
        """Return in which epoch this node decides about the schedule."""
        assert self._targets is not None, "in a cluster"
        epoch = self._targets.state_epoch(self._state.partition_of(self.name))
        return Fence(f"{KEY_PREFIX}{self.name}", epoch)

    async def _look_for(self, partition: Partition, begun: TickBegun) -> Offset | None:
        """Return where the message of a tick is, if it is there."""
        origin, from_offset = self._origin(begun), begun.place.from_offset
        if self._targets is None:
            found = await find_origins(partition, [origin], from_offset=from_offset)
        else:
            found = await self._targets.find(
                partition.name, self._fence(), [origin], from_offset=from_offset
            )
        return found.get(origin)

    async def _finish(self) -> None:
        """See to a tick that was cut short: note it if it is there, or publish it."""
        topic = self._find_topic(self.state.spec.topic)
        begun = self._begun()
        if topic.record.created_ms == begun.place.life:
            partition = topic.partition(begun.place.partition)
            found = await self._look_for(partition, begun)
            if found is not None:
                await self._note(partition.name.partition, found)
                return
            # What is committed on a cluster's leader is never taken back.
            is_whole = self._targets is not None
            is_astray = not is_whole and partition.log.end_offset < begun.place.from_offset
        else:
            # With its topic the message is gone, if there was one.
            is_astray = True
        if is_astray:
            # A log that a power cut made shorter would take the message before the place that is
            # noted, where it is not looked for: so the place is noted again first.
            self.commit(self.machine.begin_again(await self._place(topic)))
            await self.host.durable()
        await self._publish(topic)

    async def _publish(self, topic: Topic) -> None:
        """Append the message of what was begun, durably, and note it; or that it is refused."""
        begun = self._begun()
        if self._targets is not None:
            await self._publish_far(self._targets, topic, begun)
            return
        started, received_us = time.perf_counter(), self._clock.now_us()
        self._was_appended = False
        try:
            published = await self._append(topic, begun, received_us)
        except REFUSALS as error:
            topic.note_failed(error)
            self._refuse(error)
            await self.host.durable()
            return
        await topic.partition(published.partition).committed()
        durability = topic.settings.ack_durability
        topic.note_all([published], received_us, durability, time.perf_counter() - started)
        await self._note(published.partition, published.base_offset)

    async def _publish_far(self, targets: OwnTargets, topic: Topic, begun: TickBegun) -> None:
        """Do the same by the leader of the partition: what is there is not appended again."""
        name = TopicPartition(topic.record.name, PartitionId(begun.place.partition))
        frame = encode_row(self._draft(begun, self._clock.now_us()))
        message = OwnMessage(self._origin(begun), frame)
        # From the first request on it may be there, whatever is answered.
        self._was_appended = True
        try:
            found = await targets.append(
                name, self._fence(), [message], from_offset=begun.place.from_offset
            )
        except REFUSALS as error:
            topic.note_failed(error)
            self._refuse(error)
            await self.host.durable()
            return
        await self._note(name.partition, found[message.origin])

    async def _append(self, topic: Topic, begun: TickBegun, now_us: int) -> Published:
        partition = topic.partition(begun.place.partition)
        raw = memoryview(encode_row(self._draft(begun, now_us)))
        topic.check_room()
        frames = check_frames(raw, now_ms=self._clock.latest_ms(), by_broker=True)
        await topic.check_fit(frames)
        await partition.make_room(len(raw))
        self.host.check()
        base = partition.append(frames)
        self._was_appended = True
        published = Published(
            partition=partition.name.partition,
            base_offset=base,
            written=frames,
            traced=partition.trace_of(frames, base),
        )
        topic.count([published])
        return published

    def _refuse(self, error: GoQueueError) -> None:
        self.commit(self.machine.refuse(error.message, now_ms=self._clock.now_ms()))
        self._metrics.refused.inc()

    async def _note(self, partition: int, offset: Offset) -> None:
        self.commit(self.machine.publish(partition, offset, now_ms=self._clock.now_ms()))
        self._metrics.published.inc()
        await self.host.durable()

    def _begun(self) -> TickBegun:
        begun = self.state.begun
        assert begun is not None, "begun"
        return begun

    def _draft(self, begun: TickBegun, now_us: int) -> Draft:
        spec = self.state.spec
        headers = {
            **spec.headers,
            HEADER_SCHEDULE: self.name.encode(),
            HEADER_TICK: format_time_us(begun.tick_ms * US_PER_MS).encode(),
            ORIGIN: self._origin(begun),
        }
        return Draft(
            value=spec.value,
            key=spec.key,
            timestamp_us=now_us,
            headers=headers,
            priority=spec.priority,
        )

    def _origin(self, begun: TickBegun) -> bytes:
        """Return the identity of a tick: the same whenever it is published again."""
        text = f"{KEY_PREFIX}{self.name}/{self.state.created_ms}/{begun.number}"
        return blake2b(text.encode(), digest_size=ORIGIN_BYTES).digest()


async def _count(work: Counting[Choice | None]) -> Choice | None:
    """Return what comes of work that may take long; other work goes between."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            choice: Choice | None = end.value
            return choice
        await asyncio.sleep(0)
