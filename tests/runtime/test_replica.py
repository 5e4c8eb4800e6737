"""A follower's log is its leader's, byte for byte, and so is all that is known beside it."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from goqueue.base.errors import CorruptFrameError, GoQueueError, InvalidRequestError
from goqueue.base.ids import Epoch, Offset, Position
from goqueue.core.log.scan import Walk
from goqueue.core.record.check import check_frames
from goqueue.core.record.control import Control, control_frame
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.schedule.wheel import TICK_MS
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.replica import Replica
from goqueue.storage.segment import Segment
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run
from tests.runtime.test_leadership import Replicas, frames_of
from tests.runtime.test_transactions import frames as tx_frames

EPOCH = Epoch(1)
SETTINGS = {"segment_bytes": 4_096, "dedup_window_ms": "1h"}


class Leader:
    """A partition that takes traffic of all kinds."""

    def __init__(self, seed: int) -> None:
        self.rig = Rig()
        self.random = Random(seed)
        self.stamps: list[ProducerStamp] = []
        self.sent: list[memoryview] = []
        self.open: set[int] = set()
        self.numbers = 0

    @property
    def partition(self) -> Partition:
        return self.rig.broker.topic("orders").partition(0)

    async def start(self) -> None:
        await self.rig.start()
        self.rig.broker.create_topic("orders", partitions=1, settings=SETTINGS)
        self.stamps = [NO_STAMP] + [self.rig.broker.init_producer() for _ in range(3)]

    async def work(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice([self.publish] * 4 + [self.repeat, self.begin, self.end])
            await step()
            self.rig.clock.advance(self.random.randrange(50))
            self.partition.queue.advance()

    async def publish(self) -> None:
        place = self.random.randrange(len(self.stamps))
        stamp, drafts = self.stamps[place], [self.draft() for _ in range(self.count())]
        raw = memoryview(frame_drafts(drafts, stamp))
        await self.send(raw)
        if stamp.is_idempotent:
            self.sent.append(raw)
            self.stamps[place] = stamp.after(len(drafts))

    async def send(self, raw: memoryview) -> Published:
        return await self.rig.broker.topic("orders").publish(PUBLISHING, 0, raw)

    def count(self) -> int:
        return self.random.choice([1, 1, 2, 5, 70])

    def draft(self) -> Draft:
        random, now_us = self.random, self.rig.clock.now_us()
        return Draft(
            value=random.randbytes(random.choice([0, 5, 60])),
            key=random.choice([None, b"k", b"l"]),
            timestamp_us=now_us,
            priority=random.choice([2, 2, 2, 0, 4]),
            dedup_id=random.choice([None, None, b"%d" % random.randrange(30)]),
            deliver_at_us=random.choice([None, None, now_us + random.randrange(10**6)]),
        )

    async def repeat(self) -> None:
        if self.sent:
            assert (await self.send(self.sent[-1])).is_duplicate

    async def begin(self) -> None:
        self.numbers += 1
        self.open.add(self.numbers)
        raw = tx_frames(["tx"] * self.count(), self.numbers, NO_STAMP, self.rig.clock.now_us())
        now_ms = self.rig.clock.now_ms()
        self.partition.append(check_frames(raw, now_ms=now_ms, transaction=self.numbers))

    async def end(self) -> None:
        if self.open:
            control = Control(self.open.pop(), is_commit=self.random.random() < 0.5)
            now_us = self.rig.clock.now_us()
            frame = control_frame(control, name="t", producer_id=9, epoch=0, timestamp_us=now_us)
            self.partition.end_transactions([(frame, control)])

    def portions(self, behind: Segment | None = None) -> Iterator[tuple[Offset, memoryview]]:
        """Yield the log in portions of any number of frames, each within one segment.

        By bytes: a batch of nothing but repeats has no offset of its own.
        """
        for segment in self.partition.log.segments:
            start = 0
            if behind is not None and segment.base_offset <= behind.base_offset:
                start = behind.size if segment.base_offset == behind.base_offset else segment.size
            raw = memoryview(segment.file.read(Position(0), segment.size))
            ends = [span.end for span in Walk(raw, start)]
            while ends:
                taken = self.random.randrange(1, 8)
                end = ends[min(taken, len(ends)) - 1]
                yield segment.base_offset, raw[start:end]
                start, ends = end, ends[taken:]


class Follower:
    """The same partition on another disk."""

    def __init__(self, leader: Leader) -> None:
        self.rig = Rig()
        self.rig.clock = leader.rig.clock

    @property
    def partition(self) -> Partition:
        return self.rig.broker.topic("orders").partition(0)

    async def start(self) -> Replica:
        await self.rig.start()
        if "orders" not in self.rig.broker.topics:
            self.rig.broker.create_topic("orders", partitions=1, settings=SETTINGS)
        self.partition.leadership.follow(EPOCH, Replicas(self.partition))
        topic = self.rig.broker.topic("orders")
        for _ in range(3):
            self.rig.broker.init_producer()
        return Replica(topic, self.partition, self.rig.clock)

    async def copy(self, leader: Leader, replica: Replica) -> None:
        for base, portion in leader.portions(self.partition.log.segments[-1]):
            end = await replica.append_stored(portion, epoch=EPOCH, segment_base=base)
            assert end == self.partition.log.end_offset
        await self.partition.durable()
        assert self.partition.log.durable_offset == leader.partition.log.end_offset

    def compare(self, leader: Leader) -> None:
        now_ms = leader.rig.clock.now_ms()
        assert files_of(self.partition) == files_of(leader.partition)
        assert state_of(self.partition, now_ms) == state_of(leader.partition, now_ms)


def files_of(partition: Partition) -> dict[int, bytes]:
    segments = partition.log.segments
    return {
        one.base_offset: bytes(one.file.read(Position(0), one.size)) for one in segments if one.size
    }


def state_of(partition: Partition, now_ms: int) -> list[object]:
    """Return all that is known beside a log, delays aside that are over within a tick."""
    queue = partition.queue
    queue.advance()
    offsets, due_ms, *_ = queue.schedule.dump()
    delayed = [row for row in zip(offsets, due_ms, strict=True) if row[1] > now_ms + TICK_MS]
    sets = [*queue.lanes, queue.cancelled, queue.empty]
    return [
        partition.ledger.snapshot(),
        delayed,
        [list(offsets) for offsets in sets],
        queue.tx.snapshot(),
        queue.callers.snapshot(),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_is_the_same_in_bytes_and_in_state(seed: int) -> None:
    """Also after a restart; and as a leader it knows every repeat."""

    async def main() -> None:
        leader = Leader(seed)
        follower = Follower(leader)
        await leader.start()
        replica = await follower.start()
        for _ in range(3):
            await leader.work(25)
            await follower.copy(leader, replica)
            follower.compare(leader)
        # A broker on its own ends transactions that nobody has open when it starts.
        while leader.open:
            await leader.end()
        await follower.copy(leader, replica)
        follower.rig.recover_with(follower.rig.disk.crash())
        replica = await follower.start()
        follower.compare(leader)
        await leader.work(10)
        await follower.copy(leader, replica)
        follower.compare(leader)

        follower.partition.leadership.lead(Epoch(2), None)
        topic = follower.rig.broker.topic("orders")
        for raw in leader.sent[-3:]:
            again = await topic.publish(PUBLISHING, 0, raw)
            known = await leader.send(raw)
            assert again == known
            assert again.is_duplicate

    run(main())


def test_dedup_ids_come_with_the_messages() -> None:
    async def main() -> None:
        leader = Leader(0)
        follower = Follower(leader)
        await leader.start()
        replica = await follower.start()
        drafts = [Draft(value=b"v", dedup_id=b"%d" % n, timestamp_us=leader.rig.clock.now_us())
                  for n in range(3)]  # fmt: skip
        raw = memoryview(frame_drafts(drafts, NO_STAMP))
        await leader.send(raw)
        await follower.copy(leader, replica)
        follower.partition.leadership.lead(Epoch(2), None)
        again = await follower.rig.broker.topic("orders").publish(PUBLISHING, 0, raw)
        assert [(one.row, one.offset) for one in again.repeats] == [(0, 0), (1, 1), (2, 2)]

    run(main())


def test_holes_of_compaction_are_frames_like_others() -> None:
    async def main() -> None:
        leader = Leader(0)
        follower = Follower(leader)
        await leader.start()
        replica = await follower.start()
        holes = b"".join(frame for _, _, frame in encode_holes(Offset(0), Offset(7)))
        assert await replica.append_stored(memoryview(holes), epoch=EPOCH) == 7
        assert list(follower.partition.queue.empty) == list(range(7))

    run(main())


def test_what_does_not_continue_the_log_is_refused_with_nothing_written() -> None:
    """Damage, gaps, overlaps, torn portions, nothing at all, and those of another epoch."""

    async def main() -> None:
        leader = Leader(3)
        follower = Follower(leader)
        await leader.start()
        replica = await follower.start()
        for number in range(4):
            await leader.send(frames_of(b"%d" % number))
        (segment,) = leader.partition.log.segments
        raw = bytes(segment.file.read(Position(0), segment.size))
        first, second, third, _ = [raw[span.start : span.end] for span in Walk(raw)]
        await replica.append_stored(memoryview(first), epoch=EPOCH)

        def now() -> object:
            return files_of(follower.partition), state_of(follower.partition, 0)

        before = now()
        flipped = bytearray(second)
        flipped[-1] ^= 1

        async def refused(portion: bytes, fault: type[GoQueueError], epoch: Epoch = EPOCH) -> None:
            with pytest.raises(fault):
                await replica.append_stored(memoryview(portion), epoch=epoch)
            assert now() == before

        await refused(b"", CorruptFrameError)
        await refused(bytes(flipped), CorruptFrameError)
        await refused(second + bytes(flipped), CorruptFrameError)
        await refused(second + third[:-1], CorruptFrameError)
        await refused(second[:20], CorruptFrameError)
        await refused(third, InvalidRequestError)
        await refused(first + second, InvalidRequestError)
        await refused(second + first, InvalidRequestError)
        await refused(second + second, InvalidRequestError)
        await refused(second, InvalidRequestError, Epoch(0))
        follower.partition.leadership.lead(Epoch(2), None)
        await refused(second, InvalidRequestError)

    run(main())


def test_who_becomes_leader_while_a_segment_is_begun_takes_no_more() -> None:
    async def main() -> None:
        leader = Leader(1)
        follower = Follower(leader)
        await leader.start()
        replica = await follower.start()
        await leader.send(frames_of(b"a"))
        await leader.partition.roll()
        await leader.send(frames_of(b"b"))
        (first, second) = leader.portions()
        await replica.append_stored(first[1], epoch=EPOCH, segment_base=first[0])
        adding = asyncio.ensure_future(
            replica.append_stored(second[1], epoch=EPOCH, segment_base=second[0])
        )
        await asyncio.sleep(0)
        follower.partition.leadership.lead(Epoch(2), None)
        with pytest.raises(InvalidRequestError):
            await adding
        assert follower.partition.log.end_offset == 1

    run(main())
