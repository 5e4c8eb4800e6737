"""Small publish requests, without a task: alone at once, or with others of the same moment.

A request that comes alone is appended, synced and answered in one go. While others are about, the
requests of one turn of the event loop are put together by partition: one write, one sync, and every
answer from the end of the syncs it needs. Frames are checked when they come. Whatever needs more
than that (dedup ids, schemas, a segment that is full, delays while others are about) goes the
general way, ``Topic.publish_all``.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from goqueue.base.deeds import Deed
from goqueue.base.errors import DiskFullError, GoQueueError
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.names import is_internal
from goqueue.base.units import KiB
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.single_row import check_single_row, check_single_rows
from goqueue.core.topics.settings import TopicSettings
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.delay_names import conflicts_of
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.small_group import (
    AllDone,
    Done,
    Outcome,
    SmallGroup,
    SmallPart,
    Whole,
    crash_of,
)
from goqueue.runtime.log.ticket import NO_TICKET

if TYPE_CHECKING:
    from goqueue.runtime.log.topic import Topic

log = get_logger("goqueue.broker")

PARTS_BYTES_MAX: Final = 64 * KiB
"""Requests of several parts that have more bytes are batches, which gain nothing here."""

Part = tuple[int, memoryview]
"""A partition, and frames for it."""
Checked = list[CheckedFrame] | GoQueueError
"""The frames of a part, or why they are refused."""


class SmallRequests:
    """Belongs to a topic. Only the event loop's thread calls it."""

    def __init__(self, topic: "Topic") -> None:
        self._topic = topic
        self._settings: TopicSettings | None = None
        """As last looked at; frozen, so that another object means a change."""
        self._is_plain = False
        self._waiting: dict[int, list[SmallPart]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<SmallRequests of {self._topic.record.name}: {waiting} waiting>"

    @property
    def is_plain(self) -> bool:
        """Whether small requests may be appended as they come: nothing of the topic needs more."""
        topic = self._topic
        settings = topic.record.settings
        if settings is not self._settings:
            self._settings = settings
            self._is_plain = settings.is_fsync and not (
                settings.dedup_window_ms
                or topic.is_checked_by_schema
                or is_internal(topic.record.name)
            )
        return self._is_plain and not topic.has_turn_taken

    # One part.

    def publish_at_once(self, grant: Grant, partition: int, buffer: memoryview) -> Outcome | None:
        """Publish where only one quick sync is to be waited for; otherwise return None."""
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        target = self._target(partition)
        if target is None or self._waiting or not target.is_free(len(buffer)):
            return None
        topic = self._topic
        started, received_us = time.perf_counter(), topic.clock.now_us()
        frames = self._check(buffer)
        if has_conflicts(frames):
            return None
        outcome = self._append(target, frames)
        appended: Published | None = None
        if isinstance(outcome, Published) and outcome.written:
            appended = outcome
            try:
                target.sync_here()
            except GoQueueError as error:
                outcome = error
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - started
        appends = () if appended is None else (appended,)
        asyncio.get_running_loop().call_soon(
            self._count_one, appends, (outcome,), received_us, seconds
        )
        return outcome

    @fast_path(
        of="Topic.publish_all", bench="clients", test="tests/transport/test_fast_requests.py"
    )
    def begin(self, grant: Grant, partition: int, buffer: memoryview, done: Done) -> Outcome | bool:
        """Publish with others of this moment: return True if ``done`` will be called.

        An error means that the request was refused; False means that nothing was done, and the
        request is one for the general way.
        """
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        target = self._target(partition)
        if target is None or target.rolling is not None:
            return False
        frames = self._check(buffer)
        if isinstance(frames, GoQueueError):
            self._note_refused(frames)
            return frames
        if has_delays(frames):
            return False
        self._queue(partition, SmallPart(grant, done, frames, is_first=True))
        return True

    # Several parts.

    def publish_parts_at_once(self, grant: Grant, parts: Sequence[Part]) -> list[Outcome] | None:
        """Publish where only quick syncs are to be waited for; otherwise return None."""
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        targets = None if self._waiting else self._targets(parts)
        if targets is None or not _are_free(targets, parts):
            return None
        topic = self._topic
        started, received_us = time.perf_counter(), topic.clock.now_us()
        checked = [self._check(buffer) for _, buffer in parts]
        if any(map(has_conflicts, checked)):
            return None
        outcomes = list(map(self._append, targets, checked))
        places = [
            place
            for place, one in enumerate(outcomes)
            if isinstance(one, Published) and one.written
        ]
        appended = [one for one in outcomes if isinstance(one, Published) and one.written]
        errors = targets[0].committer.sync_all_here([targets[place] for place in places])
        for place, error in zip(places, errors, strict=True):
            if error is not None:
                outcomes[place] = error
        seconds = time.perf_counter() - started
        asyncio.get_running_loop().call_soon(
            self._count_one, appended, outcomes, received_us, seconds
        )
        return outcomes

    def begin_parts(
        self, grant: Grant, parts: Sequence[Part], done: AllDone
    ) -> list[Outcome] | bool:
        """Publish as ``begin`` does; outcomes mean that every part was refused."""
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        targets = self._targets(parts)
        if targets is None or any(target.rolling is not None for target in targets):
            return False
        checked = [self._check(buffer) for _, buffer in parts]
        if any(map(has_delays, checked)):
            return False
        refused = [one for one in checked if isinstance(one, GoQueueError)]
        for error in refused:
            self._note_refused(error)
        if len(refused) == len(parts):
            return list(refused)
        whole, is_first = Whole(done, len(parts)), True
        for place, frames in enumerate(checked):
            if isinstance(frames, GoQueueError):
                whole.settle(place, frames)
                continue
            settle = partial(whole.settle, place)
            self._queue(parts[place][0], SmallPart(grant, settle, frames, is_first))
            is_first = False
        return True

    # At once.

    def _append(self, target: Partition, frames: Checked) -> Outcome:
        """Judge and append the frames of a request that comes alone."""
        topic = self._topic
        try:
            if isinstance(frames, GoQueueError):
                raise frames
            topic.check_stamp(frames[0].stamp, NO_TICKET)
            target.check_writable()
            if has_delays(frames) or target.ledger.judge_all(frames):
                published = topic.append_judged(target, frames, {}, NO_TICKET)
            else:
                base = target.append(frames)
                traced = target.trace_of(frames, base)
                number = target.name.partition
                published = Published(
                    partition=number, base_offset=base, written=frames, traced=traced
                )
        except GoQueueError as error:
            topic.note_room(is_full=isinstance(error, DiskFullError))
            return error
        topic.note_room(is_full=False)
        return published

    def _count_one(
        self,
        appended: Sequence[Published],
        outcomes: Sequence[Outcome],
        received_us: int,
        seconds: float,
    ) -> None:
        """Count and trace a request that was answered at once."""
        topic = self._topic
        for one in appended:
            topic.count_frames(one.written)
        topic.note_all(outcomes, received_us, topic.settings.ack_durability, seconds)

    def _target(self, partition: int) -> Partition | None:
        """Return where a request may be appended as it comes, or None if it needs more."""
        partitions = self._topic.partitions
        return partitions[partition] if self.is_plain and 0 <= partition < len(partitions) else None

    def _targets(self, parts: Sequence[Part]) -> list[Partition] | None:
        """Return where a request of several parts may be appended, or None if it needs more."""
        size = sum([len(buffer) for _, buffer in parts])
        if size > PARTS_BYTES_MAX:
            return None
        found = [self._target(number) for number, _ in parts]
        targets = [one for one in found if one is not None]
        return targets if len(set(targets)) == len(parts) else None

    def _check(self, buffer: memoryview) -> Checked:
        """Return the frames of a part, or why they are refused."""
        topic = self._topic
        try:
            topic.check_room()
            now_ms = topic.clock.latest_ms()
            single = check_single_row(buffer, now_ms=now_ms)
            if single is not None:
                return [single]
            frames = check_single_rows(buffer, now_ms=now_ms)
            return check_frames(buffer, now_ms=now_ms) if frames is None else frames
        except GoQueueError as error:
            return error

    def _note_refused(self, error: GoQueueError) -> None:
        self._topic.note_room(is_full=isinstance(error, DiskFullError))
        self._topic.note_failed(error)

    # Together.

    def _queue(self, partition: int, part: SmallPart) -> None:
        """Have a part appended when this turn of the loop is over."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = []
            asyncio.get_running_loop().call_soon(self._append_waiting, partition)
        waiting.append(part)

    def _append_waiting(self, partition: int) -> None:
        """Append what came for a partition, and have it synced."""
        waiting = self._waiting.pop(partition)
        try:
            target = self._target(partition)
        except Exception as error:
            log.exception(LogEvent.REQUEST_CRASHED, topic=self._topic.record.name)
            for part in waiting:
                part.done(crash_of(error))
            return
        size = sum([len(frame.frame) for part in waiting for frame in part.frames])
        if target is None or target.rolling is not None or not target.log.fits(size):
            # Something has changed, or the segment is full: each goes the general way.
            for part in waiting:
                task = asyncio.get_running_loop().create_task(self._publish(partition, part))
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)
            return
        SmallGroup(self._topic, target).publish(waiting)

    async def _publish(self, partition: int, part: SmallPart) -> None:
        """Take the general way with a part; its frames are checked once more."""
        frames = memoryview(b"".join([frame.frame for frame in part.frames]))
        outcome: Outcome
        try:
            outcome = await self._topic.publish(part.grant, partition, frames)
        except GoQueueError as error:
            outcome = error
        except Exception as error:
            # A bug must not leave a publisher to its deadline.
            log.exception(LogEvent.REQUEST_CRASHED, topic=self._topic.record.name)
            outcome = crash_of(error)
        part.done(outcome)


def _are_free(targets: Sequence[Partition], parts: Sequence[Part]) -> bool:
    """Return True if all can be appended and synced without waiting for anybody."""
    return all(
        target.is_free(len(buffer), len(parts))
        for target, (_, buffer) in zip(targets, parts, strict=True)
    )


def has_delays(frames: Checked) -> bool:
    """Return True if messages are delayed: how many may be is counted one by one."""
    if isinstance(frames, GoQueueError):
        return False
    if len(frames) == 1:
        queue = frames[0].queue
        return queue is not None and queue.delays is not None
    return any(frame.queue is not None and frame.queue.delays is not None for frame in frames)


def has_conflicts(frames: Checked) -> bool:
    """Return True if messages do not want to wait beside others of their name."""
    return (
        has_delays(frames) and not isinstance(frames, GoQueueError) and bool(conflicts_of(frames))
    )
