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
            checked = check_frames(frames, now_ms=topic.clock.latest_ms())
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
            checked = check_frames(frames, now_ms=topic.clock.latest_ms())
            topic.check_stamp(checked[0].stamp, NO_TICKET)
            outcome = appended = topic.append_judged(target, checked, {}, NO_TICKET)
            if appended.written:
                target.sync_here()
        except GoQueueError as error:
            outcome = error
        topic.note_room(is_full=isinstance(outcome, DiskFullError))
        # Counted when the answer has left, and before anybody else is listened to.
        seconds = time.perf_counter() - started
        call_soon = asyncio.get_running_loop().call_soon
        call_soon(topic.count, [appended or outcome])
        durability = topic.settings.ack_durability
        call_soon(topic.note_all, [outcome], received_us, durability, seconds)
        return outcome

    def _target(self, partition: int) -> Partition | None:
        """Return where a request may be appended as it comes, or None if it needs more."""
        topic = self._topic
        is_plain = topic.settings.is_fsync and not (
            topic.has_turn_taken
            or topic.settings.dedup_window_ms
            or topic.is_checked_by_schema
            or is_internal(topic.record.name)
        )
        if not is_plain or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

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

    def publish(self, requests: Sequence[SmallRequest]) -> None:
        """Judge, append and sync; each request hears of its outcome."""
        for request in requests:
            self._take(request)
        self._write()
        if not self._appended:
            return
        self._topic.count([outcome for _, outcome in self._appended])
        try:
            self._target.committed().add_done_callback(self._acknowledge)
        except GoQueueError as error:
            self._fail_all(error)

    def _take(self, request: SmallRequest) -> None:
        """Judge a request, and keep it for the next write unless it is known or refused."""
        stamp = request.frame.stamp
        if stamp.is_idempotent:
            if stamp.producer_id in self._producers:
                # Its sequence follows one that is not applied yet.
                self._write()
            self._producers.add(stamp.producer_id)
        topic, target = self._topic, self._target
        try:
            topic.check_stamp(stamp, NO_TICKET)
            target.check_writable()
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
        durability, observe = topic.settings.ack_durability, topic.meter.publish_seconds.observe
        seconds = time.perf_counter() - self._started
        for done, published in self._appended:
            if published.traced is not None:
                trace_published(target.trace, published, self._received_us, durability)
            done(published)
            observe(seconds)

    def _fail_all(self, error: GoQueueError) -> None:
        for done, _ in self._appended:
            self._refuse(done, error)

    def _refuse(self, done: Done, error: GoQueueError) -> None:
        self._topic.note_failed(error)
        done(error)


def has_delays(frame: CheckedFrame) -> bool:
    """Return True if messages of a frame are delayed: how many may be is counted one by one."""
    return frame.queue is not None and frame.queue.delays is not None
