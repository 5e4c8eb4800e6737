"""Lanes and delays of a partition: noted at append, the same after any restart."""

import numpy as np
import pytest
from pyroaring import BitMap64

from goqueue.base.errors import DelayedFullError
from goqueue.base.ids import Offset
from goqueue.base.units import DAY_MS, HOUR_MS
from goqueue.core.record.control import Control
from goqueue.core.record.message import Draft, Priority
from goqueue.core.record.queue_rows import Delays, QueueRows
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.queue.lane_counts import total_lanes
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage.disk import write_atomically
from goqueue.storage.queue_blocks import SNAPSHOT_NAME
from goqueue.testing.clock import FakeClock
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

MINUTE_MS = 60_000


def drafts(rig: Rig, *delays_ms: int | None, priority: int = Priority.NORMAL) -> list[Draft]:
    """Return messages with these delays."""
    return [
        Draft(
            value=b"v",
            timestamp_us=rig.clock.now_us(),
            priority=priority,
            deliver_at_us=None if delay is None else rig.clock.now_us() + delay * 1_000,
        )
        for delay in delays_ms
    ]


async def publish(rig: Rig, messages: list[Draft], stamp: ProducerStamp | None = None) -> None:
    frames = frame_drafts(messages) if stamp is None else frame_drafts(messages, stamp)
    await rig.broker.topic("t").publish(PUBLISHING, 0, memoryview(frames))


def queue_of(rig: Rig) -> PartitionVisibility:
    return rig.broker.topic("t").partition(0).queue


def test_lanes_are_noted_by_priority() -> None:
    """A message that is not normal is found in the lane of its priority, in rows and batches."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("t", partitions=1)
        await publish(rig, drafts(rig, None))
        await publish(rig, drafts(rig, None, priority=Priority.CRITICAL))
        mixed = [draft for lane in (0, 2, 4, 4, 1, 2) for draft in drafts(rig, None, priority=lane)]
        await publish(rig, mixed)
        lanes = queue_of(rig).lanes

        assert [list(lane) for lane in lanes] == [[1, 2], [6], [], [], [4, 5]]
        assert total_lanes(rig.broker.topic("t").partition(0)) == [2, 1, 3, 0, 2]
        await rig.stop()

    run(main())


def ends(rig: Rig) -> tuple[Offset, Offset]:
    log = rig.broker.topic("t").partition(0).log
    return log.start_offset, log.end_offset


def test_delayed_messages_are_hidden_until_due_and_watchers_are_told() -> None:
    """Hidden from the append on; at its time each is released once, and whoever watches hears."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("t", partitions=1)
        queue = queue_of(rig)
        told: list[list[int]] = []
        watch = lambda due: told.append(list(due))  # noqa: E731
        queue.watch_due(watch)
        await publish(rig, drafts(rig, 100, None, 50, MINUTE_MS, -5, 0))

        assert list(queue.hidden) == [0, 2, 3]
        rig.clock.advance(49)
        rig.broker.delays.timer.tick()
        assert told == []
        rig.clock.advance(61)
        rig.broker.delays.timer.tick()
        assert told == [[0, 2]]
        assert list(queue.hidden) == [3]
        queue.unwatch_due(watch)
        rig.clock.advance(MINUTE_MS)
        rig.broker.delays.timer.tick()
        assert told == [[0, 2]]
        assert not queue.hidden
        await rig.stop()

    run(main())


@pytest.mark.parametrize("damage", ["none", "no snapshot", "bad snapshot", "old snapshot"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_brings_everything_back(damage: str, *, is_clean: bool) -> None:
    """Lanes and delays are the same after a stop or a crash, with any snapshot or none (A9)."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("t", partitions=1)
        await publish(rig, drafts(rig, *[HOUR_MS, None, 10] * 5))
        if damage == "old snapshot":
            await rig.stop()
            await rig.start()
        await publish(rig, drafts(rig, 3 * HOUR_MS, priority=Priority.LOW))
        await publish(rig, drafts(rig, *[2 * HOUR_MS] * 6, priority=Priority.HIGH))
        before = queue_of(rig)
        hidden = [*range(0, 15, 3), *range(15, 22)]
        lanes = [list(lane) for lane in before.lanes]
        if is_clean:
            await rig.stop()
        else:
            rig.recover_with(rig.disk.crash())
        if damage == "no snapshot" and rig.disk.exists(f"logs/t/0/{SNAPSHOT_NAME}"):
            rig.disk.remove(f"logs/t/0/{SNAPSHOT_NAME}")
        elif damage == "bad snapshot":
            write_atomically(rig.disk, f"logs/t/0/{SNAPSHOT_NAME}", b"x" * 99)
        rig.clock.advance(20)
        await rig.start()
        after = queue_of(rig)

        assert list(after.hidden) == hidden
        assert [list(lane) for lane in after.lanes] == lanes
        rig.clock.advance(HOUR_MS + 10)
        assert list(after.advance()) == list(range(0, 15, 3))
        await rig.stop()

    run(main())


def test_what_became_due_while_the_broker_was_down_is_there_at_once() -> None:
    """Delays that ended in between are over before anything is served."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("t", partitions=1)
        await publish(rig, drafts(rig, *[MINUTE_MS] * 10, HOUR_MS))
        await rig.stop()
        rig.clock.advance(MINUTE_MS)
        await rig.start()

        assert list(queue_of(rig).hidden) == [10]
        await rig.stop()

    run(main())


def test_retention_trims_lanes_and_delays() -> None:
    """What retention deleted is in no lane and waits for nothing."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        settings = {"segment_bytes": 4_096, "retention_ms": HOUR_MS, "retention_bytes": 4_096}
        rig.broker.create_topic("t", partitions=1, settings=settings)
        for _ in range(40):
            await publish(rig, drafts(rig, *[DAY_MS] * 10, priority=Priority.HIGH))
        rig.keep("t")
        start, end = ends(rig)
        queue = queue_of(rig)

        assert start > 0
        assert queue.hidden == BitMap64(range(start, end))
        assert queue.lanes[Priority.HIGH] == BitMap64(range(start, end))
        assert queue.schedule.pending == end - start
        await rig.stop()

    run(main())


def test_a_delay_longer_than_retention_is_kept_until_it_is_due_and_then_as_long_again() -> None:
    """Time retention counts from when a message may be read, not from when it was published."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("t", partitions=1, settings={"retention_ms": HOUR_MS})
        await publish(rig, drafts(rig, 3 * HOUR_MS))
        for _ in range(3):
            rig.clock.advance(HOUR_MS)
            rig.broker.delays.timer.tick()
            rig.keep("t")
            assert ends(rig) == (0, 1)
        assert not queue_of(rig).hidden
        rig.clock.advance(HOUR_MS - MINUTE_MS)
        rig.keep("t")
        assert ends(rig) == (0, 1)
        rig.clock.advance(3 * MINUTE_MS)
        rig.keep("t")
        assert ends(rig) == (1, 1)
        await rig.stop()

    run(main())


def test_a_full_schedule_refuses_and_takes_again() -> None:
    """A topic holds so many delayed messages; one more is refused, until some are due."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        topic = rig.broker.create_topic("t", partitions=1)
        topic.delayed_max = 10
        await publish(rig, drafts(rig, *[MINUTE_MS] * 10))
        with pytest.raises(DelayedFullError) as refusal:
            await publish(rig, drafts(rig, MINUTE_MS))
        await publish(rig, drafts(rig, None))
        rig.clock.advance(MINUTE_MS)
        rig.broker.delays.timer.tick()
        await publish(rig, drafts(rig, MINUTE_MS))

        assert refusal.value.retryable
        assert topic.delayed == 1
        await rig.stop()

    run(main())


def test_a_million_delays_are_small_on_disk() -> None:
    """A snapshot is columns of numbers: sixteen bytes for each message that waits."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("t", partitions=1)
        for _ in range(10):
            await publish(rig, drafts(rig, *np.arange(DAY_MS, DAY_MS + 1_000).tolist()))
        await rig.stop()
        file = rig.disk.open(f"logs/t/0/{SNAPSHOT_NAME}")

        assert file.size() < 10_000 * 16 + 1_000
        await rig.start()
        assert queue_of(rig).schedule.pending == 10_000
        await rig.stop()

    run(main())


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_becomes_due_in_an_open_transaction_waits_for_its_end(*, is_commit: bool) -> None:
    """Nobody is told of an uncommitted message; the end tells of those whose time has come."""
    clock = FakeClock()
    queue = PartitionVisibility(clock, life=1)
    due_ms = clock.due_ms() + np.array([50, 90_000])
    told: list[list[int]] = []
    queue.watch_due(lambda offsets: told.append(list(offsets)))
    queue.note(Offset(0), QueueRows(None, Delays(np.arange(2), due_ms)))
    queue.tx.note(7, 0, 2)
    clock.advance(60)
    queue.advance()

    assert told == []
    queue.end_transaction(Control(7, is_commit=is_commit))
    assert told == ([[0]] if is_commit else [])
    clock.advance(100_000)
    queue.advance()
    assert told == ([[0], [1]] if is_commit else [])
