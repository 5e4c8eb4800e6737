"""Delayed messages as people see them: found, listed, cancelled, given another time.

Shape: host of a decider (``runtime/machine.py``), for each partition the schedule that is part of
its index. The reply waits until a change is durable, so that a cancelled message stays cancelled.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from pyroaring import BitMap64

from goqueue.base.errors import (
    DelayedNotFoundError,
    InvalidRequestError,
)
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.base.limits import DELAY_MS_MAX, DELAYED_PAGE_MAX
from goqueue.base.units import format_duration_ms
from goqueue.core.decision import Decision
from goqueue.core.log.scan import Walk
from goqueue.core.offset_sets import each
from goqueue.core.record.message import Message
from goqueue.core.record.queue_rows import DELAY_ID, rows_of_frame
from goqueue.core.schedule import schedule
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.led_partitions import led_partitions
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import (
    AtPlace,
    MachineHost,
    StateJournal,
    StatePart,
    forget,
    homes_in,
)
from goqueue.runtime.schedule.previews import read_from, read_messages
from goqueue.runtime.schedule.replacing import DelayReplacements
from goqueue.runtime.schedule.resolving import Resolving
from goqueue.runtime.schedule.timer import DueTimer

KEY_PREFIX: Final = "delay/"
PARTITIONS_PER_PAUSE: Final = 100
"""Partitions looked through at start before the loop has a turn."""
PENDING: Final = "pending"
CANCELLED: Final = "canceled"
DELIVERED: Final = "delivered"

log = get_logger("goqueue.schedule")


class DelayedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was delayed: where it is, when it is due, and what became of it."""

    topic: TopicName
    partition: PartitionId
    offset: Offset
    due_ms: int
    release_ms: int = 0
    """When it comes by ``Clock.steady_ms``, if it is pending."""
    state: str = PENDING
    message: Message | None = None
    """What it is, if it could be read."""


class Delays:
    """Every delayed message of a broker."""

    def __init__(
        self,
        find_topic: Callable[[str], Topic],
        topics: Mapping[TopicName, Topic],
        state: StateJournal,
        clock: Clock,
    ) -> None:
        self._find_topic = find_topic
        self._topics = topics
        self._state = state
        self._clock = clock
        self.timer = DueTimer(clock)
        self.replacing = DelayReplacements(state, self._host)
        self.resolving = Resolving(topics, self.replacing)
        self._is_released = False

    # Life.

    def load(self, part: StatePart) -> None:
        """Apply what people changed, for the topics of a part.

        What was to become due meanwhile is released, and not before all of it is known.
        """
        changes: dict[Partition, list[schedule.Event]] = {}
        for key in self._state.keys(KEY_PREFIX, part):
            name, _, number = key.removeprefix(KEY_PREFIX).rpartition("/")
            topic = self._topics.get(TopicName(name))
            if topic is None or int(number) >= len(topic.partitions):
                # The topic was deleted and the process died before its state was.
                place = TopicPartition(TopicName(name), PartitionId(int(number)))
                forget(self._state, key, home=self._state.home_of(name, place))
                continue
            where = topic.partitions[int(number)]
            changes[where] = self._host(where).replay(schedule.Event, past_damage=True)
        for one in self._partitions_in(part):
            one.queue.turn()
            now_ms = self._clock.steady_ms()
            cancelled = one.queue.schedule.load(changes.get(one, ()), now_ms=now_ms)
            for offset in each(one.queue.schedule.unlisted()):
                _recall(one, Offset(offset))
            if cancelled:
                one.queue.tell_cancelled(cancelled)
            self.timer.resume(one.queue)
        if self._is_released:
            self._resolve_in(part)

    def _resolve_in(self, part: StatePart) -> None:
        """Begin to see to replacements of the topics of a part that was loaded again."""
        held = [one for one in self._partitions_in(part) if one.queue.schedule.held]
        for name in dict.fromkeys([one.name.topic for one in held]):
            self.resolving.begin(name)

    def stop(self) -> None:
        """Let nothing become due; what was cut short is seen to at the next start."""
        self.timer.stop()
        self.resolving.stop()

    def unload(self, part: StatePart) -> None:
        """Let nothing become due and nobody change a delay, in topics of a part."""
        for one in self._partitions_in(part):
            self.withhold(one)

    def withhold(self, partition: Partition) -> None:
        """Let nothing of a partition become due before what people changed is loaded."""
        self.timer.pause(partition.queue)
        partition.queue.schedule.unload()
        if self._state.is_beside:
            self.replacing.forget(partition)

    def _partitions_in(self, part: StatePart) -> Iterator[Partition]:
        """Yield the partitions whose delays a part has."""
        if isinstance(part, TopicPartition):
            topic = self._topics.get(part.topic)
            yield from [] if topic is None else [topic.partition(part.partition)]
        elif not self._state.is_beside:
            for name in homes_in(self._state, part, self._topics):
                yield from self._topics[name].partitions

    async def release(self) -> None:
        """Release what became due before the start, with a turn for others now and then."""
        self._is_released = True
        for topic in list(self._topics.values()):
            await self.replacing.resolve(topic)
        partitions = [one for topic in self._topics.values() for one in topic.partitions]
        for count, partition in enumerate(partitions, start=1):
            if not self._state.is_loaded(partition.name):
                continue
            partition.queue.trim(partition.log.start_offset)
            partition.queue.advance()
            partition.queue.schedule.start_counting()
            if count % PARTITIONS_PER_PAUSE == 0:
                await asyncio.sleep(0)

    def forget(self, topic: Topic) -> None:
        """Drop what is known of a topic that was deleted."""
        for partition in topic.partitions:
            self.timer.disarm(partition.queue)
            # What stays behind is of another life and says nothing.
            self._host(partition).forget_soon()

    def _host(self, partition: Partition) -> MachineHost[schedule.Event]:
        key, home = _key(partition), self._state.home_of(partition.name.topic, partition.name)
        return MachineHost(self._state, key, home=home, machine=partition.queue.schedule)

    def _find(self, topic: str, number: int) -> Partition:
        """Return a partition whose delays are loaded, or raise."""
        found = self._find_topic(topic)
        self._state.check_owner(topic)
        partition = found.partition(number)
        self._state.check_places(topic, [AtPlace(partition.name)])
        return partition

    def _find_all(self, topic: str) -> Sequence[Partition]:
        """Return the partitions of a topic whose delays are here, or raise."""
        return led_partitions(self._state, self._find_topic(topic))

    # Asking.

    def page(self, topic: str, *, skip: int, limit: int) -> Iterator[DelayedMessage]:
        """Yield messages that wait, in the order of partitions and offsets."""
        for partition in self._find_all(topic):
            pending = partition.queue.schedule.pending
            for found in partition.queue.schedule.page(skip=skip, limit=limit):
                limit -= 1
                yield _waiting(partition, found)
            skip = max(skip - pending, 0)

    async def with_messages(
        self, topic: str, found: Iterable[DelayedMessage]
    ) -> list[DelayedMessage]:
        """Return delayed messages with what they are."""
        listed = list(found)
        where = self._find_topic(topic)
        messages: dict[tuple[int, int], Message] = {}
        for number in {one.partition for one in listed}:
            offsets = [one.offset for one in listed if one.partition == number]
            read = await read_messages(where, where.partition(number), sorted(offsets))
            messages.update({(number, offset): message for offset, message in read.items()})
        return [
            msgspec.structs.replace(one, message=messages.get((one.partition, one.offset)))
            for one in listed
        ]

    async def find(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """Return a message that was delayed, whatever became of it, or raise."""
        where = self._find(topic, partition)
        queue = where.queue
        if offset >= 0 and offset in queue.hidden:
            return _waiting(where, queue.schedule.find(offset))
        message = await self._read(topic, where, offset)
        if message is None or message.deliver_at_us is None:
            raise DelayedNotFoundError("delayed message not found")
        return DelayedMessage(
            topic=where.name.topic,
            partition=where.name.partition,
            offset=message.offset,
            due_ms=-(-message.deliver_at_us // 1_000),
            state=CANCELLED if offset in queue.cancelled else DELIVERED,
        )

    async def find_id(self, topic: str, name: str) -> list[DelayedMessage]:
        """Return the waiting messages a client gave this name to, a thousand at most, or raise."""
        wanted = name.encode()
        found: list[DelayedMessage] = []
        for partition in self._find_all(topic):
            for offset in partition.queue.schedule.named(wanted):
                if len(found) == DELAYED_PAGE_MAX:
                    return found
                # Reading may not wait for anything: others get their turn in between.
                await asyncio.sleep(0)
                message = await self._read(topic, partition, offset)
                headers = message.headers if message is not None else None
                is_it = headers is not None and headers.get(DELAY_ID) == wanted
                if is_it and offset in partition.queue.hidden:
                    found.append(_waiting(partition, partition.queue.schedule.find(offset)))
        if not found:
            raise DelayedNotFoundError("delayed message not found or already delivered")
        return found

    async def _read(self, topic: str, partition: Partition, offset: int) -> Message | None:
        if not partition.log.start_offset <= offset < partition.visible_offset:
            return None
        page = await read_from(self._find_topic(topic), partition, offset, count_max=1)
        first = page.messages[0] if page.messages else None
        return first if first is not None and first.offset == offset else None

    # Changing.

    async def cancel(self, topic: str, partition: int, offset: int) -> DelayedMessage:
        """Have a waiting message never delivered; return when that is certain."""
        where = self._find(topic, partition)
        await self._until_committed(where, offset)
        decision = where.queue.schedule.cancel(offset)
        await self._commit(where, decision)
        found = decision.reply
        return msgspec.structs.replace(_waiting(where, found), state=CANCELLED)

    async def reschedule(
        self, topic: str, partition: int, offset: int, *, due_ms: int
    ) -> DelayedMessage:
        """Give a waiting message another time; one that has passed makes it due at once."""
        check_delay(due_ms - self._clock.due_ms())
        due_ms = max(due_ms, 0)
        where = self._find(topic, partition)
        await self._until_committed(where, offset)
        where.queue.turn()
        decision = where.queue.schedule.reschedule(offset, due_ms=due_ms)
        await self._commit(where, decision)
        return _waiting(where, decision.reply)

    async def cancel_id(self, topic: str, name: str) -> list[DelayedMessage]:
        """Have the waiting messages of a name never delivered."""
        return await self._each(
            await self.find_id(topic, name),
            lambda one: self.cancel(topic, one.partition, one.offset),
        )

    async def reschedule_id(self, topic: str, name: str, *, due_ms: int) -> list[DelayedMessage]:
        """Give the waiting messages of a name another time."""
        return await self._each(
            await self.find_id(topic, name),
            lambda one: self.reschedule(topic, one.partition, one.offset, due_ms=due_ms),
        )

    @staticmethod
    async def _each(
        found: list[DelayedMessage],
        change: Callable[[DelayedMessage], Coroutine[None, None, DelayedMessage]],
    ) -> list[DelayedMessage]:
        """Change every message; one that became due meanwhile is left out."""
        outcomes = await asyncio.gather(*map(change, found), return_exceptions=True)
        done = [one for one in outcomes if isinstance(one, DelayedMessage)]
        for failure in outcomes:
            is_late = isinstance(failure, DelayedNotFoundError) and done
            if isinstance(failure, BaseException) and not is_late:
                raise failure
        return done

    async def _until_committed(self, partition: Partition, offset: int) -> None:
        """Wait until the message is committed: its offset must not come to name another one."""
        partition.queue.schedule.find(offset)
        if offset >= partition.committed_offset:
            await partition.committed()

    async def _commit(
        self, partition: Partition, decision: Decision[schedule.Event, schedule.Delayed]
    ) -> None:
        queue, host = partition.queue, self._host(partition)
        host.commit(decision.events)
        durable = host.durable()
        offset, trace = decision.reply.offset, partition.trace
        if isinstance(decision.events[0], schedule.Cancelled):
            if trace is not None:
                trace.canceled(offset)
            queue.tell_cancelled(BitMap64([offset]))
        elif trace is not None:
            trace.rescheduled(offset, decision.reply.due_ms)
        queue.arm()
        await durable


def check_delay(delay_ms: int) -> None:
    """Refuse a delay beyond the longest."""
    if delay_ms > DELAY_MS_MAX:
        raise InvalidRequestError(
            f"delay {format_duration_ms(delay_ms)} exceeds maximum"
            f" {format_duration_ms(DELAY_MS_MAX)}"
        )


def _recall(partition: Partition, offset: Offset) -> None:
    """Read off the log what a schedule does not know of a message that a change has hidden."""
    waiting = partition.queue.schedule
    due_ms = 0
    piece = partition.reader.read(offset, end_offset=Offset(offset + 1), bytes_max=1)
    for span in Walk(piece.frames):
        special = rows_of_frame(span.header, piece.frames[span.start : span.end])
        if special is None or special.delays is None:
            continue
        row = offset - span.header.offset
        times = special.delays.due_ms[special.delays.rows == row]
        due_ms = int(times[0]) if len(times) else due_ms
        for number, name in special.delays.ids:
            if number == row:
                waiting.name(offset, name)
    if waiting.is_timeless(offset):
        waiting.set_time(offset, due_ms)


def _key(partition: Partition) -> str:
    return f"{KEY_PREFIX}{partition.name.topic}/{partition.name.partition}"


def _waiting(partition: Partition, found: schedule.Delayed) -> DelayedMessage:
    return DelayedMessage(
        topic=partition.name.topic,
        partition=partition.name.partition,
        offset=found.offset,
        due_ms=found.due_ms,
        release_ms=found.release_ms,
    )
