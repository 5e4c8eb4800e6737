"""Delayed messages that take the place of waiting ones of their name.

A replacement has three steps, each durable before the next: the messages that wait are held, with
the place where the new one would be found; the new one is appended; the held ones are cancelled.
What is held is not delivered, so never both are. A replacement that was cut short is looked for: if
the new message is there the held ones are cancelled, and otherwise they wait on, so never none is.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from goqueue.base.errors import DelayedNotFoundError, GoQueueError, InvalidRequestError
from goqueue.base.ids import Offset, TopicName
from goqueue.base.limits import DELAYED_PAGE_MAX
from goqueue.core.record.queue_rows import DELAY_ID, ON_CONFLICT, REPLACE
from goqueue.core.schedule import schedule
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.delay_names import Waiting
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost, StateJournal
from goqueue.runtime.schedule.previews import read_from, read_messages

SCANNED: Final = 1_000
"""Messages read at once while a replacement is looked for."""

HostOf = Callable[[Partition], MachineHost[schedule.Event]]

log = get_logger("goqueue.schedule")


class DelayReplacements:
    """Finds, holds and cancels messages that wait under a name."""

    def __init__(self, state: StateJournal, host_of: HostOf) -> None:
        self._state = state
        self._host_of = host_of
        self._unsettled: dict[Waiting, Sequence[schedule.Event]] = {}
        """What was released and is not known to be durable, with what is still to be written."""
        self.on_unfinished: Callable[[TopicName], None] = _nothing
        """Is told of topics with replacements that could not be ended."""

    async def find(self, topic: Topic, name: bytes, target: Partition) -> list[Waiting]:
        """Return the messages of a topic that wait under a name, and that ``target`` may replace.

        What is kept beside a partition can be decided together with its own messages only.
        """
        self._state.check(self._state.home_of(topic.record.name, target.name))
        await self._settle_releases(topic)
        found: list[Waiting] = []
        for partition in [target] if self._state.is_beside else topic.partitions:
            offsets = partition.queue.schedule.named(name)
            if not offsets:
                continue
            if len(found) + len(offsets) > DELAYED_PAGE_MAX:
                raise InvalidRequestError(
                    f"delay_id: more than {DELAYED_PAGE_MAX} messages wait as"
                    f" {name.decode(errors='replace')!a}; cancel them first"
                )
            if offsets[-1] >= partition.committed_offset:
                await partition.committed()
            messages = await read_messages(topic, partition, offsets)
            found += [
                Waiting(partition, Offset(offset))
                for offset, message in messages.items()
                if (message.headers or {}).get(DELAY_ID) == name
                and offset in partition.queue.hidden
            ]
        return found

    async def hold(
        self, waiting: Iterable[Waiting], *, name: bytes, target: Partition
    ) -> list[Waiting]:
        """Keep messages from being delivered; return those that still waited, durably held."""
        held: list[Waiting] = []
        from_offset = target.log.end_offset
        try:
            for one in waiting:
                with contextlib.suppress(DelayedNotFoundError):
                    decision = one.partition.queue.schedule.hold(
                        one.offset,
                        name=name,
                        partition=target.name.partition,
                        from_offset=from_offset,
                    )
                    self._host_of(one.partition).commit(decision.events)
                    held.append(one)
            await self._durable(held)
        except BaseException:
            self.release(held)
            raise
        return held

    def release(self, held: Iterable[Waiting]) -> None:
        """Let messages be delivered after all: nothing has taken their place."""
        for one in held:
            queue = one.partition.queue
            events = queue.schedule.release(one.offset).events
            try:
                self._host_of(one.partition).commit(events)
                self._unsettled[one] = ()
            except GoQueueError as error:
                # Made true all the same; a start that finds no replacement says so again.
                for event in events:
                    queue.schedule.apply(event)
                self._unsettled[one] = events
                log.warning(LogEvent.REPLACEMENT_NOT_SETTLED, error=error.message)
            queue.arm()

    async def _settle_releases(self, topic: Topic) -> None:
        """Have it durable what was released in a topic, or raise.

        Otherwise a restart would take the next message of the name for the one that never came.
        """
        for one in [
            one for one in self._unsettled if one.partition.name.topic == topic.record.name
        ]:
            if one.partition in topic.partitions:
                host = self._host_of(one.partition)
                host.commit(self._unsettled[one])
                self._unsettled[one] = ()
                await host.durable()
            self._unsettled.pop(one, None)

    def forget(self, partition: Partition) -> None:
        """Forget releases of a partition that is not here any more; a load looks at them anew."""
        for one in [one for one in self._unsettled if one.partition is partition]:
            del self._unsettled[one]

    async def finish(self, held: Iterable[Waiting]) -> None:
        """Cancel messages whose places were taken, durably."""
        gone = list(held)
        for one in gone:
            self._cancel(one)
        await self._durable(gone)

    def finish_later(self, held: Iterable[Waiting]) -> None:
        """Find out what became of a replacement, and end it, as soon as that can be written."""
        for name in dict.fromkeys([one.partition.name.topic for one in held]):
            self.on_unfinished(name)

    def _cancel(self, one: Waiting) -> None:
        partition = one.partition
        decision = partition.queue.schedule.replace([one.offset])
        self._host_of(partition).commit(decision.events)
        if decision.reply:
            if partition.trace is not None:
                partition.trace.canceled(one.offset)
            partition.queue.tell_cancelled(decision.reply)
            partition.queue.arm()

    async def _durable(self, changed: Iterable[Waiting]) -> None:
        hosts = {one.partition.name: self._host_of(one.partition) for one in changed}
        await asyncio.gather(*[host.durable() for host in hosts.values()])

    async def resolve(self, topic: Topic) -> None:
        """Find out what became of replacements that were cut short."""
        for partition in topic.partitions:
            for held in list(partition.queue.schedule.held.values()):
                one = Waiting(partition, held.offset)
                if await self._is_there(topic, held):
                    await self.finish([one])
                else:
                    self.release([one])

    async def _is_there(self, topic: Topic, held: schedule.DelayHeld) -> bool:
        if held.partition >= len(topic.partitions):
            return False
        target = topic.partition(held.partition)
        await target.committed()
        offset, end = max(held.from_offset, target.log.start_offset), target.log.end_offset
        while offset < end:
            page = await read_from(topic, target, offset, count_max=SCANNED)
            for message in page.messages:
                headers = message.headers or {}
                is_named = headers.get(DELAY_ID) == held.name and message.deliver_at_us is not None
                if is_named and headers.get(ON_CONFLICT) == REPLACE:
                    return True
            if page.next_offset <= offset:
                break
            offset = page.next_offset
        return False


def _nothing(_: TopicName) -> None:
    """Do nothing."""
