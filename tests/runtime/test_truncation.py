"""A partition that was cut is one that never had what was cut off, in bytes and in state."""

import asyncio
from random import Random

import pytest

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Epoch, Offset, PartitionId, Sequence, TopicName, TopicPartition
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.topics.settings import TopicSettings
from goqueue.observability.metrics import Metrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.commit import Committer
from goqueue.runtime.log import partition_snapshots
from goqueue.runtime.log.dedup_recall import recall
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage.segment import Segment
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.process import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run
from tests.runtime.test_leadership import Replicas, frames_of
from tests.runtime.test_replica import SETTINGS, Follower, Leader, files_of, state_of

MIN_OPERATIONS = 8


class Cuttable(Leader):
    """A partition that takes traffic of all kinds, and loses the end of its log now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.replicas: Replicas | None = None
        self.borders: list[int] = []

    def lead(self) -> None:
        """Take traffic, as far as other replicas are concerned up to here."""
        self.replicas = Replicas(self.partition, is_alone=False)
        self.partition.leadership.lead(Epoch(self.partition.leadership.epoch + 1), self.replicas)

    async def send(self, raw: memoryview) -> object:  # type: ignore[override]
        """Publish without waiting for other replicas, of which there are none."""
        return await self.rig.broker.topic("orders").publish(PUBLISHING, 0, raw, wait=False)

    async def repeat(self) -> None:
        """Send something again that the partition knows, or does not know any more."""

    def follow(self) -> Replica:
        """Take no traffic from now on."""
        assert self.replicas is not None
        epoch = Epoch(self.partition.leadership.epoch + 1)
        self.partition.leadership.follow(epoch, self.replicas)
        return Replica(self.rig.broker.topic("orders"), self.partition, self.rig.clock)

    async def cut(self, end_offset: int) -> None:
        """Become a follower, cut, and lead again."""
        replica = self.follow()
        await replica.truncate(Offset(end_offset), epoch=self.partition.leadership.epoch)
        assert self.partition.log.end_offset == end_offset
        self.rewind()

    def rewind(self) -> None:
        """Let clients know what the partition knows."""
        known = {life[0]: life[1:3] for life in self.partition.ledger.snapshot()}
        for place, stamp in enumerate(self.stamps):
            if stamp.is_idempotent:
                epoch, sequence = known.get(stamp.producer_id, (stamp.epoch, 0))
                self.stamps[place] = ProducerStamp(
                    stamp.producer_id, Epoch(epoch), Sequence(sequence)
                )
        self.open = set(self.partition.queue.tx)

    def places(self, behind: int) -> list[int]:
        """Return the borders of frames from an offset on, the end included."""
        ends = [header.offset for header, _ in self.partition.log.frames_from(Offset(behind))]
        return sorted({one for one in ends if one >= behind} | {self.partition.log.end_offset})


def dedup_of(leader: Leader | Follower) -> dict[bytes, int]:
    seen = leader.rig.broker.topic("orders")._dedup._seen  # noqa: SLF001 - not shown otherwise
    return {one.dedup_id: one.offset for one in seen.values()}


async def check_like_new(leader: Leader) -> None:
    """Compare with a partition that only ever received what survived."""
    fresh = Follower(leader)
    replica = await fresh.start()
    await fresh.copy(leader, replica)
    fresh.compare(leader)
    assert dedup_of(fresh) == dedup_of(leader)


def reopened(disk: MemoryDisk, clock: Clock) -> Partition:
    """Open the partition by itself, as a start does before it looks for anything else."""
    topic = TopicName("orders")
    return Partition(
        disk,
        TopicPartition(topic, PartitionId(0)),
        TopicSettings(segment_bytes=SETTINGS["segment_bytes"]),  # type: ignore[arg-type]
        committer=Committer(threads=0),
        meter=Metrics().meter(topic),
        queue=PartitionVisibility(clock, life=0),
    )


@pytest.fixture
def _snapshots_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_snapshots, "SNAPSHOT_EVERY_FRAMES", 7)


@pytest.mark.usefixtures("_snapshots_often")
@pytest.mark.parametrize("seed", range(15))
def test_what_was_cut_off_leaves_no_trace(seed: int) -> None:
    """Batches, rows, repeats, dedup ids, priorities, delays, transactions; over restarts."""

    async def main() -> None:
        random, leader = Random(seed), Cuttable(seed)
        await leader.start()
        for _ in range(6):
            leader.lead()
            assert leader.replicas is not None
            await leader.work(random.randrange(30))
            places = leader.places(leader.replicas.high_watermark)
            leader.replicas.reach(random.choice(places))
            await leader.work(random.randrange(10))
            await leader.cut(random.choice(leader.places(leader.replicas.high_watermark)))
            await check_like_new(leader)
            if random.random() < 0.5:
                # A broker on its own ends transactions that nobody has open when it starts.
                leader.partition.leadership.lead(Epoch(99), None)
                while leader.open:
                    await leader.end()
                await leader.partition.durable()
                leader.rig.recover_with(leader.rig.disk.crash(torn=random))
                await leader.rig.start()
                leader.rewind()
                await check_like_new(leader)

    run(main())


@pytest.mark.usefixtures("_snapshots_often")
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_operation_leaves_a_log_cut_in_part_or_not(seed: int) -> None:
    """What opens it finds no gap, the committed messages, and state that fits what is there."""

    async def attempt(operation: int) -> bool:
        leader = Cuttable(seed)
        await leader.start()
        leader.lead()
        assert leader.replicas is not None
        await leader.work(20)
        committed = leader.partition.log.end_offset
        await leader.partition.durable()
        leader.replicas.reach(committed)
        if seed % 2:
            # Snapshots of a node on its own are as long as its log.
            leader.partition.leadership.lead(leader.partition.leadership.epoch, None)
        await leader.work(25)
        await leader.partition.durable()
        random = Random(seed)
        end = random.choice(leader.places(committed))
        before, clock = files_of(leader.partition), leader.rig.clock
        ended = asyncio.get_running_loop().create_future()
        disk = leader.rig.disk
        replica = leader.follow()
        disk.fail_at(disk.operations + operation)
        try:
            await replica.truncate(Offset(end), epoch=leader.partition.leadership.epoch)
        except CrashError:
            ended.cancel()
        for torn in (None, random):
            check_left(disk.crash(torn=torn), end, before, clock)
        check_left(disk.kill(), end, before, clock)
        return not ended.cancelled()

    async def main() -> None:
        operation = 1
        while not await attempt(operation):
            operation += 1
        assert operation > MIN_OPERATIONS

    run(main())


def check_left(disk: MemoryDisk, end: int, before: dict[int, bytes], clock: Clock) -> None:
    partition = reopened(disk, clock)
    assert partition.log.recovery.gaps == []
    assert partition.log.end_offset >= end
    left = b"".join(files_of(partition).values())
    whole = b"".join(before.values())
    assert whole.startswith(left)
    state, now_ms = state_of(partition, clock.now_ms()), clock.now_ms()
    for name in ("producers.snapshot", "queue.snapshot"):
        disk.remove(f"logs/orders/0/{name}")
    assert state_of(reopened(disk, clock), now_ms) == state


def test_what_is_committed_stays() -> None:
    """Nor is a leader cut, nor by another epoch, nor inside a batch."""

    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        await leader.send(frames_of(b"a", b"b"))
        await leader.send(frames_of(*[b"c"] * 70))
        await leader.partition.durable()
        assert leader.replicas is not None
        leader.replicas.reach(2)
        replica = leader.follow()
        epoch = leader.partition.leadership.epoch
        files = files_of(leader.partition)
        for end, by in ((1, epoch), (73, epoch), (3, epoch), (2, Epoch(epoch + 1))):
            with pytest.raises(InvalidRequestError):
                await replica.truncate(Offset(end), epoch=by)
        leader.lead()
        with pytest.raises(InvalidRequestError):
            await replica.truncate(Offset(2), epoch=epoch)
        assert leader.partition.leadership.role is Role.LEADER
        assert files_of(leader.partition) == files

    run(main())


def test_a_delay_that_was_cut_off_does_not_wake_its_successor() -> None:
    """P6: the offset is given again, to a message that is due later."""

    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        clock, queue = leader.rig.clock, leader.partition.queue

        async def delayed(seconds: int) -> None:
            draft = Draft(value=b"v", deliver_at_us=clock.now_us() + seconds * 10**6)
            await leader.send(memoryview(frame_drafts([draft], NO_STAMP)))

        await delayed(10)
        await leader.cut(0)
        assert queue.schedule.pending == 0
        leader.lead()
        await delayed(100)
        clock.advance(50_000)
        assert not queue.advance()
        clock.advance(51_000)
        assert list(queue.advance()) == [0]

    run(main())


def test_a_transaction_whose_end_was_cut_off_is_open_again() -> None:
    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        await leader.begin()
        end = leader.partition.log.end_offset
        await leader.end()
        await leader.cut(end)
        assert list(leader.partition.queue.tx) == [1]
        assert leader.partition.queue.tx.last_offset_of(1) == end - 1
        assert leader.partition.leadership.is_end_committed(1)
        await check_like_new(leader)

    run(main())


def test_sequences_and_dedup_ids_that_were_cut_off_are_free_again() -> None:
    """P3: a retry of what the new leader never had is written, and is no duplicate."""

    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        stamped = memoryview(frame_drafts([Draft(value=b"v")], leader.stamps[1]))
        named = memoryview(frame_drafts([Draft(value=b"v", dedup_id=b"id")], NO_STAMP))
        topic = leader.rig.broker.topic("orders")
        for raw in (stamped, named):
            await leader.send(raw)
        await leader.cut(0)
        leader.lead()
        first = await topic.publish(PUBLISHING, 0, stamped, wait=False)
        second = await topic.publish(PUBLISHING, 0, named, wait=False)
        assert (first.is_duplicate, first.base_offset) == (False, 0)
        assert (second.repeats, second.base_offset) == ((), 1)

    run(main())


@pytest.mark.usefixtures("_snapshots_often")
def test_snapshots_wait_until_they_are_committed() -> None:
    """Those on disk never know of what may be cut off; also not at a clean end."""

    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        path = "logs/orders/0/producers.snapshot"
        for number in range(30):
            await leader.send(frames_of(b"%d" % number))
            await leader.partition.durable()
        assert not leader.rig.disk.exists(path)
        assert leader.replicas is not None
        leader.replicas.reach(20)
        await leader.send(frames_of(b"more"))
        await leader.partition.durable()
        assert leader.rig.disk.exists(path)
        await leader.cut(20)
        await check_like_new(leader)
        leader.lead()
        await leader.send(frames_of(b"last"))
        await leader.rig.stop()
        assert reopened(leader.rig.disk.kill(), leader.rig.clock).log.recovery.lost_tail is None

    run(main())


@pytest.mark.usefixtures("_snapshots_often")
def test_frames_without_messages_at_the_cut_go_with_all_that_is_known_of_them() -> None:
    """They have no offset of their own, so a snapshot of the same offset may know of them."""

    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        assert leader.replicas is not None
        stamp, drafts = leader.stamps[1], [Draft(value=b"v", dedup_id=b"id")]
        for _ in range(9):
            await leader.send(memoryview(frame_drafts(drafts, stamp)))
            stamp = stamp.after(1)
        assert leader.partition.log.end_offset == 1
        leader.replicas.reach(1)
        for _ in range(2):
            await leader.send(memoryview(frame_drafts(drafts, stamp)))
            await leader.partition.durable()
            stamp = stamp.after(1)
        assert leader.rig.disk.exists("logs/orders/0/producers.snapshot")
        await leader.cut(1)
        assert leader.stamps[1].sequence == 1
        await check_like_new(leader)

    run(main())


def test_a_clock_that_was_set_is_remembered_for_the_messages_that_stay() -> None:
    """P6: leads of delays are kept by ranges of offsets, of which the last are cut."""

    async def main() -> None:
        leader = Cuttable(0)
        await leader.start()
        leader.lead()
        clock, queue = leader.rig.clock, leader.partition.queue
        schedule = queue.schedule

        async def delayed() -> int:
            draft = Draft(value=b"v", timestamp_us=clock.now_us(),
                          deliver_at_us=clock.now_us() + 100 * 10**6)  # fmt: skip
            await leader.send(memoryview(frame_drafts([draft], NO_STAMP)))
            return schedule.find(leader.partition.log.end_offset - 1).release_ms

        first_ms = await delayed()
        await leader.send(frames_of(b"a", b"b"))
        clock.jump(3_600_000)
        await delayed()
        await leader.cut(1)
        assert schedule.find(0).release_ms == first_ms
        leader.lead()
        clock.jump(-3_600_000)
        assert await delayed() == first_ms
        clock.jump(60_000)
        queue.turn()
        assert [one.release_ms for one in schedule.page(skip=0, limit=9)] == [first_ms] * 2
        assert [one.offset for one in schedule.page(skip=0, limit=9)] == [0, 1]

    run(main())


def test_compaction_and_retention_leave_alone_what_is_not_committed() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.start()
        settings = {"segment_bytes": 4_096, "cleanup_policy": "compact", "retention_ms": 1}
        topic = rig.broker.create_topic("orders", partitions=1, settings=settings)
        partition = topic.partition(0)
        replicas = Replicas(partition)
        partition.leadership.lead(Epoch(1), replicas)
        segments: list[Segment] = []
        for number in range(4):
            draft = Draft(key=b"k", value=b"%d" % number, timestamp_us=rig.clock.now_us())
            raw = memoryview(frame_drafts([draft] * 3, rig.broker.init_producer()))
            await topic.publish(PUBLISHING, 0, raw, wait=False)
            await partition.roll()
            segments = list(partition.log.segments)
        replicas.reach(4)
        (found,) = await rig.broker.compactor.compact(topic)
        assert (found.error, found.records_removed) == (None, 2)
        assert list(partition.queue.empty) == [0, 1]
        assert len(partition.ledger) == 4
        assert [one.base_offset for one in partition.log.segments] == [
            one.base_offset for one in segments
        ]
        rig.clock.advance(10**6)
        assert partition.log.expire(
            now_ms=rig.clock.now_ms(), retention_ms=1, retention_bytes=0, end_max=4
        ) == 1  # fmt: skip
        assert partition.log.start_offset == 3
        again = reopened(rig.disk.kill(), rig.clock)
        assert {life[0] for life in again.ledger.snapshot()} == {
            life[0] for life in partition.ledger.snapshot()
        }

    run(main())


def test_ids_in_the_window_are_those_of_the_log() -> None:
    async def main() -> None:
        leader = Cuttable(5)
        await leader.start()
        leader.lead()
        await leader.work(40)
        await leader.cut(leader.places(0)[len(leader.places(0)) // 2])
        found = recall(leader.partition, leader.rig.clock, 3_600_000)
        assert dedup_of(leader) == {one.dedup_id: one.offset for one in found}

    run(main())
