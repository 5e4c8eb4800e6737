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
from typing import TYPE_CHECKING, Final, NamedTuple

from goqueue.base.deeds import Deed
from goqueue.base.errors import DiskFullError, GoQueueError
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.names import is_internal
from goqueue.base.units import KiB
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.single_row import check_single_row, check_single_rows
from goqueue.core.topics.settings import TopicSettings
from goqueue.runtime.log.delay_names import conflicts_of
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.small_group import Done, Outcome, SmallGroup, SmallPart, Whole
from goqueue.runtime.log.ticket import NO_TICKET

if TYPE_CHECKING:
    from goqueue.runtime.log.topic import Topic

PARTS_BYTES_MAX: Final = 64 * KiB
"""Requests of several parts that have more bytes are batches, which gain nothing here."""

Part = tuple[int, memoryview]
"""A partition, and frames for it."""
CheckedPart = list[CheckedFrame] | GoQueueError
"""The frames of a part, or why they are refused."""


class Checked(NamedTuple):
    """A request that was looked at."""

    parts: list[CheckedPart]
    are_delayed: bool
    """Whether messages of it wait for their time."""
    are_named: bool
    """Whether some do not want to wait beside others of their name."""


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

    def publish_at_once(self, grant: Grant, parts: Sequence[Part]) -> list[Outcome] | None:
        """Publish where only quick syncs are to be waited for; otherwise return None."""
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        targets = None if self._waiting else self._targets(parts)
        if targets is None or not _are_free(targets, parts):
            return None
        topic = self._topic
        started, received_us = time.perf_counter(), topic.clock.now_us()
        checked = self._check_all(parts)
        if checked.are_named:
            return None
        outcomes: list[Outcome] = []
        appended: list[Published] = []
        for target, frames in zip(targets, checked.parts, strict=True):
            outcome = self._append(target, frames, are_delayed=checked.are_delayed)
            outcomes.append(outcome)
            if isinstance(outcome, Published) and outcome.written:
                appended.append(outcome)
        for published in appended:
            try:
                topic.partitions[published.partition].sync_here()
            except GoQueueError as error:
                outcomes[outcomes.index(published)] = error
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - started
        asyncio.get_running_loop().call_soon(
            self._count_one, appended, outcomes, received_us, seconds
        )
        return outcomes

    def _append(self, target: Partition, frames: CheckedPart, *, are_delayed: bool) -> Outcome:
        """Judge and append the frames of a request that comes alone."""
        topic = self._topic
        try:
            if isinstance(frames, GoQueueError):
                raise frames
            topic.check_stamp(frames[0].stamp, NO_TICKET)
            target.check_writable()
            if are_delayed or target.ledger.judge_all(frames):
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

    def _targets(self, parts: Sequence[Part]) -> list[Partition] | None:
        """Return where a request may be appended as it comes, or None if it needs more."""
        if not self._is_open or (len(parts) > 1 and not _is_small(parts)):
            return None
        partitions = self._topic.partitions
        targets: list[Partition] = []
        for number, _ in parts:
            if not 0 <= number < len(partitions):
                return None
            targets.append(partitions[number])
        return targets

    @property
    def _is_open(self) -> bool:
        """Whether requests may be appended as they come."""
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

    def _check_all(self, parts: Sequence[Part]) -> Checked:
        topic, now_ms = self._topic, self._topic.clock.latest_ms()
        checked: list[CheckedPart] = []
        are_delayed = are_named = False
        for _, buffer in parts:
            try:
                topic.check_room()
                single = check_single_row(buffer, now_ms=now_ms)
                if single is not None:
                    checked.append([single])
                    continue
                frames = check_single_rows(buffer, now_ms=now_ms) or check_frames(
                    buffer, now_ms=now_ms
                )
            except GoQueueError as error:
                checked.append(error)
                continue
            checked.append(frames)
            if has_delays(frames):
                are_delayed, are_named = True, are_named or bool(conflicts_of(frames))
        return Checked(checked, are_delayed, are_named)

    # Together.

    @fast_path(
        of="Topic.publish_all", bench="clients", test="tests/transport/test_fast_requests.py"
    )
    def begin(self, grant: Grant, parts: Sequence[Part], done: Done) -> list[Outcome] | bool:
        """Publish with others of this moment: return True if ``done`` will be called.

        Outcomes mean that all of the request was refused; False means that nothing was done, and
        the request is one for the general way.
        """
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        targets = self._targets(parts)
        if targets is None or _is_one_rolling(targets):
            return False
        checked, are_delayed, _ = self._check_all(parts)
        if are_delayed:
            return False
        refused = [one for one in checked if isinstance(one, GoQueueError)]
        for error in refused:
            self._topic.note_room(is_full=isinstance(error, DiskFullError))
            self._topic.note_failed(error)
        if len(refused) == len(parts):
            return list(refused)
        whole, is_first = Whole(done, len(parts)), True
        for place, frames in enumerate(checked):
            if isinstance(frames, GoQueueError):
                whole.settle(place, frames)
            else:
                self._queue(parts[place][0], SmallPart(grant, frames, whole, place, is_first))
                is_first = False
        return True

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
        target = self._topic.partitions[partition]
        size = sum([len(frame.frame) for part in waiting for frame in part.frames])
        if not self._is_open or target.rolling is not None or not target.log.fits(size):
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
        part.whole.settle(part.place, outcome)


def _is_small(parts: Sequence[Part]) -> bool:
    """Return True if several parts are for different partitions, and not much."""
    size = sum([len(frames) for _, frames in parts])
    return size <= PARTS_BYTES_MAX and len({number for number, _ in parts}) == len(parts)


def _are_free(targets: Sequence[Partition], parts: Sequence[Part]) -> bool:
    """Return True if all can be appended and synced without waiting for anybody."""
    for target, (_, frames) in zip(targets, parts, strict=True):
        if not target.is_free(len(frames), len(parts)):
            return False
    return True


def _is_one_rolling(targets: Sequence[Partition]) -> bool:
    return any([target.rolling for target in targets])  # noqa: C419 - half the time of a generator


def has_delays(frames: Sequence[CheckedFrame]) -> bool:
    """Return True if messages are delayed: how many may be is counted one by one."""
    return any(frame.queue is not None and frame.queue.delays is not None for frame in frames)
