"""What is not committed is neither acknowledged nor shown; on one node the disk alone commits."""

import asyncio

import pytest

from goqueue.base.errors import NotLeaderError, ShuttingDownError
from goqueue.base.ids import Epoch, Offset
from goqueue.core.record.check import check_frames
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.replication.epochs import EpochHistory
from goqueue.runtime.log.leadership import Mending, Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.topic import Topic
from goqueue.storage.log_notes import Gap
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run


class Replicas:
    """Other replicas in sync, whose durable offset a test sets; or none of them."""

    def __init__(self, partition: Partition, *, is_alone: bool = False) -> None:
        self._partition = partition
        self.high_watermark = Offset(partition.log.end_offset)
        self.is_alone = is_alone
        self.reported: list[int] = []

    def check_append(self) -> None:
        pass

    def check_live(self) -> None:
        pass

    def appended(self, end_offset: Offset) -> None:
        pass

    def trimmed(self, start_offset: Offset) -> None:
        pass

    def replicas_with(self, end_offset: Offset) -> int:
        return 1 + (end_offset <= self.high_watermark)

    @property
    def epochs(self) -> EpochHistory:
        """Know of none."""
        return EpochHistory()

    async def mend(self, gap: Gap) -> Mending:
        """Have nothing of what is damaged."""
        assert gap.start_offset < gap.end_offset
        return Mending.LOST

    def synced(self, durable_offset: Offset) -> None:
        self.reported.append(durable_offset)
        if self.is_alone:
            self.high_watermark = durable_offset

    def reach(self, offset: int) -> None:
        self.high_watermark = Offset(offset)
        self._partition.note_high_watermark()


def frames_of(*values: bytes, stamp: ProducerStamp = NO_STAMP) -> memoryview:
    return memoryview(frame_drafts([Draft(value=value) for value in values], stamp))


async def orders(rig: Rig, **settings: object) -> Topic:
    await rig.start()
    return rig.broker.create_topic("orders", partitions=1, settings=settings)


async def settle() -> None:
    """Let everything run that is ready, syncs included."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_on_one_node_what_is_synced_is_committed() -> None:
    async def main() -> None:
        topic = await orders(Rig())
        partition = topic.partition(0)
        await topic.publish(PUBLISHING, 0, frames_of(b"a", b"b"))

        assert partition.leadership.role is Role.LEADER
        assert partition.leadership.epoch == 0
        assert partition.committed_offset == partition.log.durable_offset == 2

    run(main())


def test_an_ack_waits_for_the_high_watermark() -> None:
    """And so do readers, whom its move wakes."""

    async def main() -> None:
        topic = await orders(Rig())
        partition = topic.partition(0)
        replicas = Replicas(partition)
        partition.leadership.lead(Epoch(1), replicas)
        first = asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames_of(b"a")))
        second = asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames_of(b"b")))
        await settle()
        assert partition.log.durable_offset == replicas.reported[-1] == 2
        assert partition.visible_offset == partition.committed_offset == 0
        assert not first.done()

        news = partition.watch()
        replicas.reach(1)
        await settle()
        assert news.done()
        assert first.done()
        assert not second.done()
        assert partition.visible_offset == 1

        replicas.reach(5)
        await settle()
        assert (await second).base_offset == 1
        assert partition.visible_offset == partition.committed_offset == 2

    run(main())


def test_an_ack_waits_for_the_own_disk_too() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        partition = topic.partition(0)
        replicas = Replicas(partition)
        partition.leadership.lead(Epoch(1), replicas)
        replicas.reach(10)
        rig.disk.fail_sync("logs/orders/0/*.log", drops_pages=True)
        # In doubt: another replica leads from now on, and may have it.
        with pytest.raises(NotLeaderError):
            await topic.publish(PUBLISHING, 0, frames_of(b"lost"))
        assert partition.committed_offset == 0

    run(main())


def test_what_is_answered_at_once_needs_nobody_else() -> None:
    """The quick paths are taken only while no other replica is in sync."""

    async def main() -> None:
        topic = await orders(Rig())
        partition = topic.partition(0)
        replicas = Replicas(partition)
        partition.leadership.lead(Epoch(1), replicas)
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"a")) is None
        assert not partition.sync_at_once()

        replicas.is_alone = True
        outcome = topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"a"))
        assert isinstance(outcome, Published)
        assert partition.committed_offset == partition.visible_offset == 1
        await settle()
        await topic.publish(PUBLISHING, 0, frames_of(b"b"))

    run(main())


def test_a_follower_takes_nothing_from_clients() -> None:
    """Not even a repeat: it may be cut off here. Whoever waits is in doubt and asks again."""

    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        partition = topic.partition(0)
        stamp = rig.broker.init_producer()
        await topic.publish(PUBLISHING, 0, frames_of(b"a", stamp=stamp))
        replicas = Replicas(partition)
        partition.leadership.lead(Epoch(1), replicas)
        waiting = asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames_of(b"b")))
        await settle()

        partition.leadership.follow(Epoch(2), replicas)
        with pytest.raises(NotLeaderError):
            await waiting
        for frames in (frames_of(b"a", stamp=stamp), frames_of(b"c")):
            assert isinstance(
                topic.small.publish_at_once(PUBLISHING, 0, frames), NotLeaderError | None
            )
            with pytest.raises(NotLeaderError):
                await topic.publish(PUBLISHING, 0, frames)
        with pytest.raises(NotLeaderError):
            partition.committed()
        await partition.durable()
        assert partition.log.end_offset == partition.log.durable_offset == 2

        partition.leadership.lead(Epoch(3), None)
        assert partition.committed_offset == 2
        await topic.publish(PUBLISHING, 0, frames_of(b"c"))

    run(main())


def test_who_waits_is_told_that_the_broker_stops() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        partition = topic.partition(0)
        partition.leadership.lead(Epoch(1), Replicas(partition))
        waiting = asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames_of(b"a")))
        await settle()
        await rig.stop()
        with pytest.raises(ShuttingDownError):
            await waiting

    run(main())


def test_without_a_sync_readers_wait_for_the_high_watermark_alone() -> None:
    async def main() -> None:
        topic = await orders(Rig(), durability="os")
        partition = topic.partition(0)
        replicas = Replicas(partition)
        partition.leadership.lead(Epoch(1), replicas)
        partition.append(check_frames(frames_of(b"a", b"b"), now_ms=0, by_broker=True))
        assert partition.visible_offset == 0
        replicas.reach(1)
        assert partition.visible_offset == 1
        partition.leadership.lead(Epoch(1), None)
        assert partition.visible_offset == 2

    run(main())
