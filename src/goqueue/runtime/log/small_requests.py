"""Publish requests of one frame, without a task: alone at once, or with others of the same moment.

A request that comes alone is appended, synced and answered in one go. While others are about, the
requests of one turn of the event loop are put together by partition: one write, one sync, and every
answer from the end of that sync. Frames are checked when they come; they are judged and appended in
one step without ``await``, in the order they came, so that a write which fails fails all of them
and changes nothing. Whatever needs more than that (dedup ids, schemas, a segment that is full,
several frames) goes the general way, ``Topic.publish_all``.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.base.deeds import Deed
from goqueue.base.errors import DiskFullError, GoQueueError, ShuttingDownError
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset
from goqueue.base.names import is_internal
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.single_row import check_single_row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.core.topics.settings import TopicSettings
from goqueue.runtime.log.acks import counted
from goqueue.runtime.log.delay_names import conflicts_of
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published, trace_published
from goqueue.runtime.log.ticket import NO_TICKET

if TYPE_CHECKING:
    from goqueue.runtime.log.topic import Topic

Outcome = Published | GoQueueError
Done = Callable[[Outcome], None]


class SmallRequest(NamedTuple):
    """A request that waits for its turn to be appended."""

    grant: Grant
    done: Done
    frame: CheckedFrame


class SmallRequests:
    """Belongs to a topic. Only the event loop's thread calls it."""

    def __init__(self, topic: "Topic") -> None:
        self._topic = topic
        self._settings: TopicSettings | None = None
        """As last looked at; frozen, so that another object means a change."""
        self._is_plain = False
        self._waiting: dict[int, list[SmallRequest]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<SmallRequests of {self._topic.record.name}: {waiting} waiting>"

    @fast_path(
        of="Topic.publish_all", bench="clients", test="tests/transport/test_fast_requests.py"
    )
    def begin(self, grant: Grant, partition: int, frames: memoryview, done: Done) -> Outcome | bool:
        """Publish with others of this moment: return True if ``done`` will be called.

        An error means that the request was refused; False means that nothing was done, and the
        request is one for the general way.
        """
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        target = self._target(partition)
        if target is None or target.rolling is not None:
            return False
        topic = self._topic
        try:
            topic.check_room()
            checked = _checked(frames, topic.clock.latest_ms())
        except GoQueueError as error:
            topic.note_room(is_full=isinstance(error, DiskFullError))
            topic.note_failed(error)
            return error
        if len(checked) > 1 or has_delays(checked[0]):
            return False
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = []
            asyncio.get_running_loop().call_soon(self._append_waiting, partition)
        waiting.append(SmallRequest(grant, done, checked[0]))
        return True

    def publish_at_once(self, grant: Grant, partition: int, frames: memoryview) -> Outcome | None:
        """Publish where only one quick sync is to be waited for; otherwise return None."""
        assert grant.deed is Deed.PUBLISH, "a grant to publish"
        target = self._target(partition)
        if target is None or self._waiting or not target.is_free(len(frames)):
            return None
        topic = self._topic
        started, received_us = time.perf_counter(), topic.clock.now_us()
        outcome: Outcome
        appended: Published | None = None
        try:
            topic.check_room()
            checked = _checked(frames, topic.clock.latest_ms())
            if checked[0].queue is not None and conflicts_of(checked):
                return None
            topic.check_stamp(checked[0].stamp, NO_TICKET)
            outcome = appended = self._append(target, checked)
            if appended.written:
                target.sync_here()
        except GoQueueError as error:
            outcome = error
        topic.note_room(is_full=isinstance(outcome, DiskFullError))
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - started
        asyncio.get_running_loop().call_soon(
            self._count_one, appended, outcome, received_us, seconds
        )
        return outcome

    def _append(self, target: Partition, frames: list[CheckedFrame]) -> Published:
        """Judge and append the frames of a request that comes alone."""
        target.check_writable()
        if len(frames) > 1 or has_delays(frames[0]) or target.ledger.judge_all(frames):
            return self._topic.append_judged(target, frames, {}, NO_TICKET)
        base = target.append(frames)
        traced = target.trace_of(frames, base)
        number = target.name.partition
        return Published(partition=number, base_offset=base, written=frames, traced=traced)

    def _count_one(
        self, appended: Published | None, outcome: Outcome, received_us: int, seconds: float
    ) -> None:
        """Count and trace a request that was answered at once."""
        topic = self._topic
        if appended is not None and appended.written:
            topic.count_frames(appended.written)
        topic.note_all([outcome], received_us, topic.settings.ack_durability, seconds)

    def _target(self, partition: int) -> Partition | None:
        """Return where a request may be appended as it comes, or None if it needs more."""
        topic = self._topic
        settings, partitions = topic.record.settings, topic.partitions
        if settings is not self._settings:
            self._settings = settings
            self._is_plain = settings.is_fsync and not (
                settings.dedup_window_ms
                or topic.is_checked_by_schema
                or is_internal(topic.record.name)
            )
        is_open = self._is_plain and not topic.has_turn_taken
        return partitions[partition] if is_open and 0 <= partition < len(partitions) else None

    # Together.

    def _append_waiting(self, partition: int) -> None:
        """Append the requests that came for a partition, and have them synced."""
        waiting = self._waiting.pop(partition)
        target = self._target(partition)
        size = sum([len(one.frame.frame) for one in waiting])
        if target is None or target.rolling is not None or not target.log.fits(size):
            # Something has changed, or the segment is full: each goes the general way.
            for one in waiting:
                task = asyncio.get_running_loop().create_task(self._publish(partition, one))
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)
            return
        _Group(self._topic, target).publish(waiting)

    async def _publish(self, partition: int, request: SmallRequest) -> None:
        """Take the general way with a request; its frame is checked once more."""
        frame = memoryview(request.frame.frame)
        outcome: Outcome
        try:
            outcome = await self._topic.publish(request.grant, partition, frame)
        except GoQueueError as error:
            outcome = error
        request.done(outcome)


class _Group:
    """Requests for one partition that are appended and synced together."""

    def __init__(self, topic: "Topic", target: Partition) -> None:
        self._topic = topic
        self._target = target
        self._started, self._received_us = time.perf_counter(), topic.clock.now_us()
        self._appended: list[tuple[Done, Published]] = []
        self._unwritten: list[SmallRequest] = []
        self._producers: set[int] = set()
        self._unwritable: GoQueueError | None = None
        """Why nothing can be appended."""

    def publish(self, requests: Sequence[SmallRequest]) -> None:
        """Judge, append and sync; each request hears of its outcome."""
        try:
            self._target.check_writable()
        except GoQueueError as error:
            self._unwritable = error
        for request in requests:
            self._take(request)
        self._write()
        if not self._appended:
            return
        try:
            self._target.committed().add_done_callback(self._acknowledge)
        except GoQueueError as error:
            self._fail_all(error)

    def _take(self, request: SmallRequest) -> None:
        """Judge a request, and keep it for the next write unless it is known or refused."""
        stamp = request.frame.stamp
        if stamp is not NO_STAMP:
            if stamp.producer_id in self._producers:
                # Its sequence follows one that is not applied yet.
                self._write()
            self._producers.add(stamp.producer_id)
        topic, target = self._topic, self._target
        try:
            topic.check_stamp(stamp, NO_TICKET)
            if self._unwritable is not None:
                raise self._unwritable
            if target.ledger.judge_all([request.frame]):
                known = topic.append_judged(target, [request.frame], {}, NO_TICKET)
                self._appended.append((request.done, known))
                return
        except GoQueueError as error:
            self._refuse(request.done, error)
            return
        self._unwritten.append(request)

    def _write(self) -> None:
        """Append what was judged in one write."""
        requests, self._unwritten = self._unwritten, []
        self._producers.clear()
        if not requests:
            return
        target, frames = self._target, [request.frame for request in requests]
        try:
            base = target.append(frames)
        except GoQueueError as error:
            self._topic.note_room(is_full=isinstance(error, DiskFullError))
            for request in requests:
                self._refuse(request.done, error)
            return
        self._topic.note_room(is_full=False)
        self._topic.count_frames(frames)
        # Traces are chosen for all of them together, and noted with the first.
        traced = target.trace_of(frames, base)
        number, offset = target.name.partition, base
        for _, done, frame in requests:
            published = Published(
                partition=number, base_offset=offset, written=(frame,), traced=traced
            )
            self._appended.append((done, published))
            offset, traced = Offset(offset + frame.rows), None

    def _acknowledge(self, synced: asyncio.Future[None]) -> None:
        """Answer every request: the sync that covers them is over."""
        error = ShuttingDownError("not synced") if synced.cancelled() else synced.exception()
        if error is not None:
            # Every request is answered: its connection waits for that before it closes.
            self._fail_all(error if isinstance(error, GoQueueError) else GoQueueError(str(error)))
            return
        topic, target = self._topic, self._target
        durability, appended = topic.settings.ack_durability, self._appended
        seconds = time.perf_counter() - self._started
        is_single = target.leadership.replication is None
        topic.meter.publish_seconds.observe(seconds, len(appended))
        for done, published in appended:
            if published.traced is not None:
                trace_published(target.trace, published, self._received_us, durability)
            done(published if is_single else counted(topic.partitions, published))

    def _fail_all(self, error: GoQueueError) -> None:
        for done, _ in self._appended:
            self._refuse(done, error)

    def _refuse(self, done: Done, error: GoQueueError) -> None:
        self._topic.note_failed(error)
        done(error)


def _checked(frames: memoryview, now_ms: int) -> list[CheckedFrame]:
    """Return the frames of a request, or raise why they are refused."""
    single = check_single_row(frames, now_ms=now_ms)
    return check_frames(frames, now_ms=now_ms) if single is None else [single]


def has_delays(frame: CheckedFrame) -> bool:
    """Return True if messages of a frame are delayed: how many may be is counted one by one."""
    return frame.queue is not None and frame.queue.delays is not None
