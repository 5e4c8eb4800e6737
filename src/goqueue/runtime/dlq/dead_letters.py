"""Takes doomed messages to the dead letters: each ledger by itself, trying again until it works.

A message that cannot be moved stays doomed: it is neither delivered nor lost. One topic whose dead
letters cannot be written holds up nobody else's.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Protocol

from pyroaring import BitMap64

from goqueue.base.errors import (
    GoQueueError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import PartitionId, TopicPartition
from goqueue.base.limits import (
    DLQ_RETENTION_MS,
    MOVE_BACKOFF_MS_MAX,
    MOVE_BACKOFF_MS_MIN,
    MOVE_BYTES_MAX,
    MOVE_MESSAGES_MAX,
)
from goqueue.core.delivery.events import GONE, Dropped, Spared
from goqueue.core.delivery.runs import runs_of
from goqueue.core.dlq.names import dlq_of, is_dlq, origin_of
from goqueue.core.dlq.record import Attempt, Story, bury
from goqueue.core.offset_sets import each
from goqueue.core.record.message import Message
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.dlq.moves import Hosted, MovedMessage, Mover
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.read_offsets import read_offsets
from goqueue.runtime.tracing.moves import trace_on
from goqueue.runtime.tracing.reader import find_callers

Sleep = Callable[[int], Awaitable[None]]
"""Waits so many milliseconds."""

log = get_logger("goqueue.dlq")


class Topics(Protocol):
    """Where topics are found and made."""

    def topic(self, name: str) -> Topic:
        """Return an open topic or raise."""
        ...

    async def ensure_topic(
        self, name: str, *, partitions: int, settings: dict[str, object]
    ) -> Topic:
        """Make a topic, durably, unless another node has made it meanwhile."""
        ...


async def sleep_ms(duration_ms: int) -> None:
    """Let real time pass."""
    await asyncio.sleep(duration_ms / 1_000)


class DeadLetters:
    """Has one task for each ledger with doomed messages."""

    def __init__(
        self,
        topics: Topics,
        *,
        mover: Mover,
        clock: Clock,
        meter: DlqMeter,
        sleep: Sleep = sleep_ms,
    ) -> None:
        self.topics = topics
        self.mover = mover
        self.clock = clock
        self.meter = meter
        self.sleep = sleep
        self._tasks: dict[tuple[str, TopicPartition], asyncio.Task[None]] = {}
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<DeadLetters: {len(self._tasks)} ledgers under way>"

    def take(self, hosted: Hosted) -> None:
        """See to it that what a ledger has doomed is moved."""
        place = (hosted.group, hosted.partition.name)
        running = self._tasks.get(place)
        if self._is_stopped or (running is not None and not running.done()):
            return
        task = asyncio.get_running_loop().create_task(_Burial(self, hosted).run())
        self._tasks[place] = task
        task.add_done_callback(lambda done: self._forget(place, done))

    def _forget(self, place: tuple[str, TopicPartition], task: asyncio.Task[None]) -> None:
        if self._tasks.get(place) is task:
            del self._tasks[place]

    def drop(self, ledgers: Sequence[Hosted]) -> list[asyncio.Task[None]]:
        """Stop moving for ledgers that are not hosted here any more; return what ends then."""
        places = {(hosted.group, hosted.partition.name) for hosted in ledgers}
        gone = [task for place, task in self._tasks.items() if place in places]
        for task in gone:
            task.cancel()
        return gone

    async def wait_for(self, hosted: Hosted) -> None:
        """Return when nothing of a ledger is under way."""
        task = self._tasks.get((hosted.group, hosted.partition.name))
        if task is not None:
            await asyncio.wait([task])

    async def idle(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def stop(self) -> None:
        """Leave everything where it is; the next start goes on."""
        self._is_stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Burial:
    """The doomed messages of one ledger on their way."""

    def __init__(self, owner: DeadLetters, hosted: Hosted) -> None:
        self._owner = owner
        self._hosted = hosted
        self._unknown = BitMap64()
        self._must_look = True
        self._is_failing = False
        self._is_creating = False

    async def run(self) -> None:
        """Move until nothing is left."""
        pause_ms = MOVE_BACKOFF_MS_MIN
        while self._hosted.ledger.dooms and not self._hosted.is_closed:
            try:
                await self._move_some()
            except ShuttingDownError:
                return
            except GoQueueError as error:
                self._note(error.code, error.message)
            except Exception as error:
                # A bug must not silence this ledger until the next start.
                log.exception(
                    LogEvent.DEAD_LETTER_MOVE_CRASHED, partition=str(self._hosted.partition.name)
                )
                self._note("internal", repr(error))
            else:
                pause_ms, self._is_failing = MOVE_BACKOFF_MS_MIN, False
                continue
            self._must_look = True
            await self._owner.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, MOVE_BACKOFF_MS_MAX)

    def _note(self, code: str, text: str) -> None:
        """Count every failure; log the first of a row."""
        self._owner.meter.failed(
            self._hosted.partition.name.topic, code, is_create=self._is_creating
        )
        if not self._is_failing:
            log.warning(
                LogEvent.DEAD_LETTER_MOVE_FAILED,
                group=self._hosted.group,
                partition=str(self._hosted.partition.name),
                messages=len(self._hosted.ledger.dooms),
                error=text,
            )
        self._is_failing = True

    async def _move_some(self) -> None:
        """Move one batch."""
        self._is_creating = False
        owner, hosted = self._owner, self._hosted
        if is_dlq(hosted.partition.name.topic):
            await self._spare()
            return
        if self._must_look:
            self._unknown = await owner.mover.look(hosted)
            self._must_look = False
        sure = (offset for offset in hosted.ledger.dooms if offset not in self._unknown)
        wanted = BitMap64(islice(sure, MOVE_MESSAGES_MAX))
        if not wanted:
            raise StorageFailedError("nobody can tell whether the last ones were written")
        partition = hosted.partition
        plucked = await read_offsets(partition, wanted, end_offset=partition.log.end_offset)
        if plucked.gone:
            await self._drop(plucked.gone)
        if plucked.messages and not hosted.is_closed:
            await self._bury(plucked.messages)

    async def _bury(self, messages: list[Message]) -> None:
        owner, hosted = self._owner, self._hosted
        offsets = BitMap64([message.offset for message in messages])
        callers = await find_callers(hosted.partition, offsets)
        source = owner.topics.topic(hosted.partition.name.topic)
        dlq = await self._find_dlq(source)
        number = PartitionId(hosted.partition.name.partition % len(dlq.partitions))
        target = TopicPartition(dlq.record.name, number)
        # From here to the first step of the move nothing awaits: what is doomed stays so.
        dooms = hosted.ledger.dooms
        parcels: list[MovedMessage] = []
        size = 0
        for message in messages:
            if message.offset not in dooms:
                continue
            size += len(message.value or b"")
            if parcels and size > MOVE_BYTES_MAX:
                break
            origin = origin_of(hosted.group, hosted.partition.name, message.offset)
            trace = trace_on(hosted.partition.trace, message, callers)
            draft = bury(message, self._story(message), origin=origin, trace=trace)
            parcels.append(MovedMessage(message.offset, draft, target))
        reasons = {parcel.offset: dooms[parcel.offset].reason for parcel in parcels}
        delivered = await owner.mover.move(hosted, parcels)
        moved = Counter(reasons[offset] for offset in reasons if offset in delivered.offsets)
        owner.meter.buried(source.record.name, moved)
        for error in delivered.errors:
            raise error

    async def _find_dlq(self, source: Topic) -> Topic:
        """Return the topic of the dead letters, made when it is first needed."""
        topics, name = self._owner.topics, dlq_of(source.record.name)
        try:
            return topics.topic(name)
        except TopicNotFoundError:
            pass
        self._is_creating = True
        settings: dict[str, object] = {"retention_ms": DLQ_RETENTION_MS}
        dlq = await topics.ensure_topic(name, partitions=len(source.partitions), settings=settings)
        self._is_creating = False
        return dlq

    def _story(self, message: Message) -> Story:
        hosted = self._hosted
        histories = hosted.ledger.histories
        attempts = histories.attempts(message.offset)
        log_of = [
            Attempt(at_ms=one.at_ms, consumer=one.member, error=one.error) for one in attempts
        ]
        return Story(
            original_topic=message.topic,
            original_partition=message.partition,
            original_offset=message.offset,
            original_timestamp_us=message.timestamp_us,
            delivery_attempts=histories.count(message.offset),
            first_delivery_ms=attempts[0].at_ms if attempts else 0,
            last_delivery_ms=attempts[-1].at_ms if attempts else 0,
            last_consumer=attempts[-1].member if attempts else "",
            last_group=hosted.group,
            reason=hosted.ledger.dooms[message.offset].reason,
            last_error=attempts[-1].error if attempts else "",
            dlq_time_ms=self._owner.clock.now_ms(),
            receipt_log=log_of,
        )

    async def _drop(self, gone: BitMap64) -> None:
        """Settle what is no longer in the log, or cannot be read there."""
        left = BitMap64(offset for offset in each(gone) if offset in self._hosted.ledger.dooms)
        if left and not self._hosted.is_closed:
            log.error(
                LogEvent.DEAD_LETTERS_EXPIRED,
                group=self._hosted.group,
                partition=str(self._hosted.partition.name),
                offsets=runs_of(left),
            )
            self._hosted.commit([Dropped(offsets=runs_of(left), outcome=GONE)])
            await self._hosted.durable()

    async def _spare(self) -> None:
        """Let doomed dead letters wait: they have no dead letters of their own."""
        offsets = BitMap64(self._hosted.ledger.dooms)
        due_ms = self._owner.clock.monotonic_ms() + MOVE_BACKOFF_MS_MAX
        spared = Spared(offsets=runs_of(offsets), due_ms=due_ms, backoff_ms=MOVE_BACKOFF_MS_MAX)
        self._hosted.commit([spared])
        await self._hosted.durable()
