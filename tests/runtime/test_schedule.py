"""Delayed messages in a broker: cancelled for ever, moved for good, whatever the clock does."""

import asyncio
import logging
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from pyroaring import BitMap64

from goqueue.base.errors import DelayedNotFoundError, GoQueueError, InvalidRequestError
from goqueue.base.ids import Offset
from goqueue.base.units import DAY_MS, HOUR_MS
from goqueue.core.record.message import Draft
from goqueue.core.record.queue_rows import DELAY_ID, Delays, QueueRows
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime import broker as broker_module
from goqueue.runtime.clock import SystemClock
from goqueue.runtime.log import partition_snapshots
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.runtime.schedule.delays import CANCELLED, DELIVERED, PENDING
from goqueue.runtime.schedule.timer import DueTimer
from goqueue.testing.disk import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

pytestmark = pytest.mark.usefixtures("both_places")

MINUTE_MS = 60_000
OPERATIONS_MIN = 60


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make snapshots happen in a short life, and the state small enough to crash in often."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    monkeypatch.setattr(partition_snapshots, "SNAPSHOT_EVERY_FRAMES", 3)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


async def publish(rig: Rig, *delays_ms: int | None, number: int = 0, name: str = "") -> None:
    drafts = [
        Draft(
            value=b"%d" % row,
            timestamp_us=rig.clock.now_us(),
            headers={DELAY_ID: name.encode()} if name else None,
            deliver_at_us=None if delay is None else rig.clock.now_us() + delay * 1_000,
        )
        for row, delay in enumerate(delays_ms)
    ]
    await rig.broker.topic("t").publish(PUBLISHING, number, memoryview(frame_drafts(drafts)))


def queue_of(rig: Rig, number: int = 0) -> PartitionVisibility:
    return rig.broker.topic("t").partition(number).queue


async def begin(*, partitions: int = 1, **settings: object) -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("t", partitions=partitions, settings=settings)
    return rig


class Life:
    """A short life whose promises are checked after a crash anywhere in it."""

    def __init__(self) -> None:
        self.published = 0
        self.cancelled: set[int] = set()
        self.doubtful: set[int] = set()
        self.due_ms: dict[int, int] = {}

    async def run(self, rig: Rig) -> None:
        await rig.start()
        rig.broker.create_topic("t", partitions=1)
        start_ms = rig.clock.now_ms()
        for _ in range(4):
            await publish(rig, HOUR_MS, HOUR_MS, HOUR_MS, HOUR_MS, HOUR_MS)
            for offset in range(self.published, self.published + 5):
                self.due_ms[offset] = start_ms + HOUR_MS
            self.published += 5
            first = self.published - 5
            await self._cancel(rig, first)
            await self._move(rig, first + 1, start_ms + 2 * HOUR_MS)
            await self._move(rig, first + 2, start_ms + MINUTE_MS)
        await self._cancel(rig, 1)
        await rig.stop()

    async def _cancel(self, rig: Rig, offset: int) -> None:
        self.doubtful.add(offset)
        await rig.broker.delays.cancel("t", 0, offset)
        self.doubtful.remove(offset)
        self.cancelled.add(offset)
        del self.due_ms[offset]

    async def _move(self, rig: Rig, offset: int, due_ms: int) -> None:
        self.doubtful.add(offset)
        await rig.broker.delays.reschedule("t", 0, offset, due_ms=due_ms)
        self.doubtful.remove(offset)
        self.due_ms[offset] = due_ms

    def check(self, queue: PartitionVisibility) -> None:
        assert set(queue.cancelled) - self.doubtful == self.cancelled
        assert not set(queue.cancelled) & set(queue.hidden)
        for offset, due_ms in self.due_ms.items():
            if offset not in self.doubtful:
                assert queue.schedule.find(offset).due_ms == due_ms


async def die_at(operation: int, seed: int) -> bool:
    """Live, die at an operation, recover twice; tell whether the life was over before."""
    rig, life = Rig(), Life()
    rig.die_in(operation)
    is_over = False
    try:
        await life.run(rig)
        is_over = True
    except (CrashError, GoQueueError):
        # An error that is told is told by a process that dies.
        with pytest.raises(CrashError):
            rig.check_alive()
    torn = Random(seed)
    for _ in range(2):
        rig.recover_with(rig.disk.crash(torn=torn) if seed % 2 else rig.disk.kill())
        await rig.start()
        if "t" in rig.broker.topics:
            life.check(queue_of(rig))
    rig.clock.advance(MINUTE_MS)
    if "t" in rig.broker.topics:
        queue = queue_of(rig)
        due = set(queue.advance())
        early = {at for at, due_ms in life.due_ms.items() if due_ms > rig.clock.now_ms()}
        assert not due & life.cancelled
        assert not (due - life.doubtful) & early
    await rig.stop()
    return is_over


@pytest.mark.parametrize("seed", [0, 1])
def test_what_was_cancelled_or_moved_stays_so_over_a_crash_at_any_operation(seed: int) -> None:
    """An answered cancel or move holds after a kill or a power cut at every step of the disk."""

    async def main() -> None:
        operation = 1
        while not await die_at(operation, seed):
            operation += 1

        assert operation > OPERATIONS_MIN

    run(main())


def test_cancelled_is_never_delivered_not_even_after_a_restart() -> None:
    """Watchers hear of it, its time comes and nothing happens, in this life and in the next."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, MINUTE_MS, MINUTE_MS)
        told: list[list[int]] = []
        queue_of(rig).watch_cancelled(lambda offsets: told.append(list(offsets)))
        done = await rig.broker.delays.cancel("t", 0, 0)

        assert (done.partition, done.offset, done.state) == (0, 0, CANCELLED)
        assert told == [[0]]
        await rig.stop()
        await rig.start()
        rig.clock.advance(MINUTE_MS)
        assert list(queue_of(rig).advance()) == [1]
        with pytest.raises(DelayedNotFoundError):
            await rig.broker.delays.cancel("t", 0, 0)
        await rig.stop()

    run(main())


def test_a_wall_clock_set_forward_releases_nothing_early() -> None:
    """A day forward on the wall is no day that passed: delays take as long as they were told."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, HOUR_MS)
        rig.clock.jump(DAY_MS)
        rig.broker.delays.timer.tick()

        assert list(queue_of(rig).hidden) == [0]
        rig.clock.advance(HOUR_MS - 1)
        rig.broker.delays.timer.tick()
        assert list(queue_of(rig).hidden) == [0]
        rig.clock.advance(1)
        rig.broker.delays.timer.tick()
        assert not queue_of(rig).hidden
        await rig.stop()

    run(main())


def test_a_wall_clock_set_back_loses_nothing() -> None:
    """A day back on the wall makes delays wait a day longer; none is lost or comes twice."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, MINUTE_MS, HOUR_MS)
        rig.clock.advance(MINUTE_MS)
        rig.broker.delays.timer.tick()
        rig.clock.jump(-DAY_MS)
        due: list[int] = []
        queue_of(rig).watch_due(due.extend)
        rig.clock.advance(HOUR_MS)
        rig.broker.delays.timer.tick()

        assert due == []
        rig.clock.jump(DAY_MS)
        rig.broker.delays.timer.tick()
        assert due == [1]
        await rig.stop()

    run(main())


def test_the_timer_wakes_by_itself_and_only_when_needed() -> None:
    """A real loop releases a message shortly after its time without anybody asking."""

    async def main() -> None:
        clock = SystemClock()
        timer = DueTimer(clock)
        queue = PartitionVisibility(clock, life=1, timer=timer)
        woken = asyncio.get_running_loop().create_future()
        queue.watch_due(lambda due: woken.set_result((list(due), clock.due_ms())))
        timer.start()
        due_ms = clock.due_ms() + 30
        queue.note(Offset(5), QueueRows(None, Delays(np.zeros(1, int), np.array([due_ms]))))
        offsets, now_ms = await woken
        timer.stop()

        assert offsets == [5]
        assert now_ms >= due_ms

    run(main())


def test_the_same_offset_in_two_partitions_is_two_messages() -> None:
    """Cancelling one leaves the other alone, and all of them are listed (A7)."""

    async def main() -> None:
        rig = await begin(partitions=3)
        for number in range(3):
            await publish(rig, MINUTE_MS, HOUR_MS, number=number)
        await rig.broker.delays.cancel("t", 1, 0)
        listed = [
            (one.partition, one.offset) for one in rig.broker.delays.page("t", skip=0, limit=9)
        ]

        assert listed == [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
        paged = [
            (one.partition, one.offset) for one in rig.broker.delays.page("t", skip=2, limit=2)
        ]
        assert paged == [(1, 1), (2, 0)]
        found = [await rig.broker.delays.find("t", number, 0) for number in range(3)]
        assert [one.state for one in found] == [PENDING, CANCELLED, PENDING]
        rig.clock.advance(MINUTE_MS)
        rig.broker.delays.timer.tick()
        assert (await rig.broker.delays.find("t", 2, 0)).state == DELIVERED
        assert [list(queue_of(rig, number).hidden) for number in range(3)] == [[1], [1], [1]]
        await rig.stop()

    run(main())


def test_a_name_finds_all_messages_that_wait_under_it() -> None:
    """By the name its sender chose, over all partitions and over a restart."""

    async def main() -> None:
        rig = await begin(partitions=2)
        await publish(rig, MINUTE_MS, number=0, name="reminder-1")
        await publish(rig, HOUR_MS, number=1, name="reminder-1")
        await publish(rig, *[HOUR_MS] * 5, number=1, name="reminder-2")
        await rig.stop()
        await rig.start()
        found = await rig.broker.delays.find_id("t", "reminder-1")

        assert [(one.partition, one.offset) for one in found] == [(0, 0), (1, 0)]
        assert len(await rig.broker.delays.find_id("t", "reminder-2")) == 5
        rig.clock.advance(MINUTE_MS)
        rig.broker.delays.timer.tick()
        found = await rig.broker.delays.find_id("t", "reminder-1")
        assert [(one.partition, one.offset) for one in found] == [(1, 0)]
        with pytest.raises(DelayedNotFoundError):
            await rig.broker.delays.find_id("t", "reminder-3")
        await rig.stop()

    run(main())


def test_a_new_topic_of_an_old_name_begins_without_its_cancellations() -> None:
    """Offset 0 of the new topic is another message than offset 0 of the deleted one."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, MINUTE_MS)
        await rig.broker.delays.cancel("t", 0, 0)
        rig.broker.delete_topic("t")
        rig.clock.advance(1)
        rig.broker.create_topic("t", partitions=1)
        await publish(rig, MINUTE_MS)

        assert list(queue_of(rig).hidden) == [0]
        rig.recover_with(rig.disk.crash())
        await rig.start()
        assert list(queue_of(rig).hidden) == [0]
        assert not queue_of(rig).cancelled
        await rig.stop()

    run(main())


def test_an_offset_lost_with_the_power_is_not_cancelled_for_its_successor() -> None:
    """Where acks do not wait for the disk, a cancel does: its message is there before it is."""

    async def main() -> None:
        rig = await begin(durability="os")
        await publish(rig, MINUTE_MS)
        await rig.broker.delays.cancel("t", 0, 0)
        rig.recover_with(rig.disk.crash())
        await rig.start()
        log = rig.broker.topic("t").partition(0).log

        assert log.end_offset == 1
        assert list(queue_of(rig).cancelled) == [0]
        await rig.stop()

    run(main())


def test_a_new_time_is_within_a_century() -> None:
    """A mistake in the unit is refused and changes nothing."""

    async def main() -> None:
        rig = await begin()
        await publish(rig, MINUTE_MS)
        now_ms = rig.clock.now_ms()
        with pytest.raises(InvalidRequestError, match="exceeds maximum 876000h0m0s"):
            await rig.broker.delays.reschedule("t", 0, 0, due_ms=now_ms + 101 * 365 * DAY_MS)
        moved = await rig.broker.delays.reschedule("t", 0, 0, due_ms=now_ms + 99 * 365 * DAY_MS)

        assert moved.due_ms == now_ms + 99 * 365 * DAY_MS
        rig.clock.advance(99 * 365 * DAY_MS - 1)
        rig.broker.delays.timer.tick()
        assert list(queue_of(rig).hidden) == [0]
        rig.clock.advance(10)
        rig.broker.delays.timer.tick()
        assert not queue_of(rig).hidden
        await rig.stop()

    run(main())


def test_a_name_of_which_some_became_due_still_names_the_others() -> None:
    """By name, what is still waiting is changed; when nothing is, nothing is found."""

    async def main() -> None:
        rig = await begin(partitions=2)
        await publish(rig, MINUTE_MS, number=0, name="n")
        await publish(rig, HOUR_MS, HOUR_MS, number=1, name="n")
        moved = await rig.broker.delays.reschedule_id("t", "n", due_ms=-5)
        assert len(moved) == 3
        rig.clock.advance(10)
        rig.broker.delays.timer.tick()
        with pytest.raises(DelayedNotFoundError):
            await rig.broker.delays.cancel_id("t", "n")
        await publish(rig, HOUR_MS, number=1, name="n")
        (done,) = await rig.broker.delays.cancel_id("t", "n")

        assert (done.partition, done.offset, done.state) == (1, 2, CANCELLED)
        await rig.stop()

    run(main())


def test_one_who_fails_does_not_keep_the_news_from_the_others() -> None:
    """A watcher that raises is logged; the next one hears all the same."""

    async def main() -> None:
        rig = await begin()
        queue = queue_of(rig)
        told: list[int] = []

        def fail(_: BitMap64) -> None:
            raise RuntimeError("a bug of somebody else")

        queue.watch_due(fail)
        queue.watch_due(told.extend)
        await publish(rig, 50)
        rig.clock.advance(60)
        rig.broker.delays.timer.tick()

        assert told == [0]
        await rig.stop()

    run(main())
