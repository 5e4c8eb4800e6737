"""Parts of small publish requests for one partition: one write, one sync, every answer at its end.

They are judged and appended in one step without ``await``, in the order they came, so that a write
which fails fails all of them and changes nothing.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from goqueue.base.errors import DiskFullError, GoQueueError, ShuttingDownError
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.stamp import NO_STAMP
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.acks import counted
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published, trace_published
from goqueue.runtime.log.ticket import NO_TICKET

log = get_logger("goqueue.broker")

if TYPE_CHECKING:
    from goqueue.runtime.log.topic import Topic

Outcome = Published | GoQueueError
Done = Callable[[Outcome], None]
"""Takes what became of a part; it must not raise."""
AllDone = Callable[[list[Outcome]], None]
"""Takes what became of each part of a request; it must not raise."""

_NO_OUTCOME: Final = GoQueueError("not published yet")


class Whole:
    """A request whose parts are published with others of their partitions."""

    __slots__ = ("_done", "_left", "_outcomes")

    def __init__(self, done: AllDone, parts: int) -> None:
        self._done = done
        self._left = parts
        self._outcomes: list[Outcome] = [_NO_OUTCOME] * parts

    def settle(self, place: int, outcome: Outcome) -> None:
        """Take what became of a part; the last one answers the request."""
        self._outcomes[place] = outcome
        self._left -= 1
        if not self._left:
            self._done(self._outcomes)


class SmallPart(NamedTuple):
    """A request for one partition, or a part of one, that waits for its turn to be appended."""

    grant: Grant
    done: Done
    frames: list[CheckedFrame]
    is_first: bool
    """Whether it is the one that is counted for its request."""


class SmallGroup:
    """Parts for one partition that are appended and synced together."""

    def __init__(self, topic: "Topic", target: Partition) -> None:
        self._topic = topic
        self._target = target
        self._started, self._received_us = time.perf_counter(), topic.clock.now_us()
        self._appended: list[tuple[SmallPart, Published]] = []
        self._unwritten: list[SmallPart] = []
        self._producers: set[int] = set()
        self._refused: dict[int, SmallPart] = {}
        """Parts that were answered with an error, by the identities of their objects."""
        self._unwritable: GoQueueError | None = None
        """Why nothing can be appended."""

    def __repr__(self) -> str:
        return f"<SmallGroup for {self._target.name}: {len(self._appended)} appended>"

    def publish(self, parts: Sequence[SmallPart]) -> None:
        """Judge, append and sync; each part hears of its outcome."""
        try:
            self._publish(parts)
        except Exception as error:
            # A bug must not leave a publisher to its deadline.
            log.exception(LogEvent.REQUEST_CRASHED, partition=str(self._target.name))
            self._appended.clear()
            self._fail([one for one in parts if id(one) not in self._refused], crash_of(error))

    def _publish(self, parts: Sequence[SmallPart]) -> None:
        try:
            self._target.check_writable()
        except GoQueueError as error:
            self._unwritable = error
        for part in parts:
            self._take(part)
        self._write()
        if not self._appended:
            return
        try:
            synced = self._target.committed(self._requests)
        except GoQueueError as error:
            self._fail_all(error)
        else:
            synced.add_done_callback(self._acknowledge)

    @property
    def _requests(self) -> int:
        """How many requests are counted here: those of several parts in one of their groups."""
        return sum([part.is_first for part, _ in self._appended])

    def _take(self, part: SmallPart) -> None:
        """Judge a part, and keep it for the next write unless it is known or refused."""
        frames = part.frames
        stamp = frames[0].stamp
        if stamp is not NO_STAMP:
            if stamp.producer_id in self._producers:
                # Its sequence follows one that is not applied yet.
                self._write()
            self._producers.add(stamp.producer_id)
        try:
            self._topic.check_stamp(stamp, NO_TICKET)
            if self._unwritable is not None:
                raise self._unwritable
            known = self._target.ledger.judge_all(frames)
            if known:
                self._append_rest(part, is_whole=len(known) == len(frames))
                return
        except GoQueueError as error:
            self._refuse(part, error)
            return
        self._unwritten.append(part)

    def _append_rest(self, part: SmallPart, *, is_whole: bool) -> None:
        """Take a part that is known from its beginning on; what is not known of it is appended."""
        topic = self._topic
        if is_whole:
            published = topic.append_judged(self._target, part.frames, {}, NO_TICKET)
        else:
            # Those that came before it are in the log first.
            self._write()
            try:
                published = topic.append_judged(self._target, part.frames, {}, NO_TICKET)
            except DiskFullError:
                topic.note_room(is_full=True)
                raise
            topic.note_room(is_full=False)
            topic.count_frames(published.written)
        self._appended.append((part, published))

    def _write(self) -> None:
        """Append what was judged in one write."""
        parts, self._unwritten = self._unwritten, []
        self._producers.clear()
        if not parts:
            return
        target, frames = self._target, [frame for part in parts for frame in part.frames]
        try:
            base = target.append(frames)
        except GoQueueError as error:
            self._topic.note_room(is_full=isinstance(error, DiskFullError))
            for part in parts:
                self._refuse(part, error)
            return
        self._topic.note_room(is_full=False)
        self._topic.count_frames(frames)
        # Traces are chosen for all of them together, and noted with the first.
        traced = target.trace_of(frames, base)
        number, offset = target.name.partition, base
        for part in parts:
            published = Published(
                partition=number, base_offset=offset, written=part.frames, traced=traced
            )
            self._appended.append((part, published))
            traced = None
            for frame in part.frames:
                offset = Offset(offset + frame.rows)

    def _acknowledge(self, synced: asyncio.Future[None]) -> None:
        """Answer every request: the sync that covers them is over."""
        error = ShuttingDownError("not synced") if synced.cancelled() else synced.exception()
        if error is not None:
            # Every request is answered: its connection waits for that before it closes.
            self._fail_all(error if isinstance(error, GoQueueError) else GoQueueError(str(error)))
            return
        appended, self._appended = self._appended, []
        try:
            self._answer(appended)
        except Exception as crash:
            log.exception(LogEvent.REQUEST_CRASHED, partition=str(self._target.name))
            self._fail([part for part, _ in appended], crash_of(crash))

    def _answer(self, appended: list[tuple[SmallPart, Published]]) -> None:
        """Answer parts that are durable; those that are answered leave the list."""
        topic, target = self._topic, self._target
        durability = topic.settings.ack_durability
        is_single = target.leadership.replication is None
        requests = sum([part.is_first for part, _ in appended])
        topic.meter.publish_seconds.observe(time.perf_counter() - self._started, requests)
        appended.reverse()
        while appended:
            part, published = appended[-1]
            if published.traced is not None:
                trace_published(target.trace, published, self._received_us, durability)
            outcome = published if is_single else counted(topic.partitions, published)
            appended.pop()
            part.done(outcome)

    def _fail_all(self, error: GoQueueError) -> None:
        self._fail([part for part, _ in self._appended], error)

    def _fail(self, parts: Sequence[SmallPart], error: GoQueueError) -> None:
        for part in parts:
            self._refuse(part, error)

    def _refuse(self, part: SmallPart, error: GoQueueError) -> None:
        self._refused[id(part)] = part
        self._topic.note_failed(error)
        part.done(error)


def crash_of(error: Exception) -> GoQueueError:
    """Return what a publisher is answered where something went wrong that is not foreseen."""
    return GoQueueError(f"internal error: {type(error).__name__}")
