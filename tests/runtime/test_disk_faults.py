"""Disks that fail, fill up or dawdle: no ack that is not kept, and reads go on."""

import asyncio
import threading
from collections.abc import Callable
from random import Random

import pytest

from goqueue.base.errors import DiskFullError, GoQueueError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.broker import Broker
from goqueue.runtime.log import partition_snapshots
from goqueue.runtime.log.producer_snapshot import SNAPSHOT_NAME
from goqueue.runtime.meta_journal import JOURNAL_PATH
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import MemoryDisk
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run

FIRST_LOG = f"logs/orders/0/{0:020d}.log"


async def orders(rig: Rig, **settings: object) -> None:
    """Start a broker with a topic of two partitions and something in each."""
    await rig.start()
    rig.broker.create_topic("orders", partitions=2, settings=settings)
    for number in (0, 1):
        await rig.publish("orders", number, [b"before %d" % number], producer="a")


def content_of(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(Position(0), file.size())


class TestSyncFails:
    @pytest.mark.parametrize("ending", [MemoryDisk.kill, MemoryDisk.crash], ids=["kill", "crash"])
    @pytest.mark.parametrize("drops_pages", [True, False])
    def test_the_partition_stops_and_nothing_acked_is_lost(
        self, ending: Callable[[MemoryDisk], MemoryDisk], *, drops_pages: bool
    ) -> None:
        """No ack, no more writes, reads go on; after a restart the same batch is taken once."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            rig.disk.fail_sync("logs/orders/0/*.log", drops_pages=drops_pages)
            lost = [b"not acked %d" % number for number in range(3)]
            with pytest.raises(StorageFailedError):
                await rig.publish("orders", 0, lost, producer="a")
            # The repeat is not taken for a duplicate: what it would repeat is not durable.
            with pytest.raises(StorageFailedError):
                await rig.publish("orders", 0, lost, producer="a")
            with pytest.raises(StorageFailedError):
                await rig.publish("orders", 0, [b"another"], producer="b")
            await rig.publish("orders", 1, [b"other partition"], producer="a")
            messages, _ = await read_all(rig.broker.topic("orders"), 0)
            assert [message.value for message in messages] == [b"before 0"]
            await rig.stop()

            rig.recover_with(ending(rig.disk))
            await rig.start()
            await rig.audit(after_power_cut=True)
            await rig.publish("orders", 0, lost, producer="a")
            rig.recover_with(rig.disk.crash())
            await rig.start()
            await rig.audit()
            assert rig.broker.topic("orders").partition(0).log.end_offset == 4

        run(main())

    @pytest.mark.parametrize("glob", ["*.log", "*.index", "*.timeindex", "logs/orders/0"])
    def test_also_while_a_segment_is_sealed(self, glob: str) -> None:
        """Whichever sync of a roll fails, acked messages stay and the next start goes on."""

        async def main() -> None:
            rig = Rig()
            await orders(rig, segment_bytes=4_096)
            await rig.publish("orders", 0, [b"large" * 700], producer="a")
            rig.disk.fail_sync(glob)
            with pytest.raises(StorageFailedError):
                await rig.publish("orders", 0, [b"rolls" * 700], producer="a")
            await rig.audit()
            rig.recover_with(rig.disk.crash())
            await rig.start()
            await rig.publish("orders", 0, [b"rolls" * 700], producer="a")
            await rig.audit()

        run(main())

    def test_a_repeat_is_no_more_durable_than_its_original(self) -> None:
        """A dedup id whose message the disk lost acks nothing, on no partition."""

        async def main() -> None:
            rig = Rig()
            await orders(rig, dedup_window_ms="1h")
            rig.disk.fail_sync("logs/orders/0/*.log")
            with pytest.raises(StorageFailedError):
                await rig.publish("orders", 0, [b"once"], dedup=True)
            with pytest.raises(StorageFailedError):
                await rig.publish("orders", 1, [b"once"], dedup=True)
            rig.recover_with(rig.disk.crash())
            await rig.start()
            published = await rig.publish("orders", 1, [b"once"], dedup=True)
            assert not published.repeats
            await rig.audit()

        run(main())

    def test_the_catalogue_takes_no_more_changes(self) -> None:
        """A topic whose record is not durable does not exist, before and after the restart."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            rig.disk.fail_sync(JOURNAL_PATH)
            with pytest.raises(StorageFailedError):
                rig.broker.create_topic("new", partitions=1)
            with pytest.raises(StorageFailedError):
                rig.broker.configure_topic("orders", {"retention_ms": "1h"})
            await rig.publish("orders", 0, [b"goes on"], producer="a")
            rig.recover_with(rig.disk.crash())
            await rig.start()
            assert list(rig.broker.topics) == ["orders"]
            await rig.audit()

        run(main())


class TestDiskFull:
    def test_a_full_log_refuses_and_recovers(self) -> None:
        """Retryable, nothing half written, reads go on."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            rig.disk.fill_up(20, path_glob="*.log")
            with pytest.raises(DiskFullError) as caught:
                await rig.publish("orders", 0, [b"no room"] * 3, producer="a")
            assert caught.value.retryable
            await rig.audit()
            rig.disk.make_room()
            await rig.publish("orders", 0, [b"no room"] * 1, producer="a")
            await rig.audit()

        run(main())

    @pytest.mark.parametrize("glob", ["*.index", "*.timeindex", f"*{SNAPSHOT_NAME}*"])
    def test_what_can_wait_does_not_stop_a_publish(
        self, glob: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Index entries and snapshots are written later; only a roll waits for its index."""
        monkeypatch.setattr(partition_snapshots, "SNAPSHOT_EVERY_FRAMES", 2)

        async def main() -> None:
            rig = Rig()
            await orders(rig, segment_bytes=50_000)
            rig.disk.fill_up(path_glob=glob)
            for number in range(8):
                await rig.publish("orders", 0, [b"%d" % number * 5_000], producer="a")
            if "snapshot" not in glob:
                with pytest.raises(DiskFullError):
                    await rig.publish("orders", 0, [b"rolls" * 9_000], producer="a")
            await rig.audit()
            rig.disk.make_room()
            await rig.publish("orders", 0, [b"rolls" * 9_000], producer="a")
            await rig.publish("orders", 0, [b"more"], producer="a")
            await rig.audit()
            rig.recover_with(rig.disk.crash())
            await rig.start()
            log = rig.broker.topic("orders").partition(0).log
            await rig.audit()
            assert all(segment.index_rebuilds == 0 for segment in log.segments[:-1])

        run(main())

    def test_a_full_journal_refuses_changes_of_topics(self) -> None:
        """Publishing goes on; the topic can be made once there is room."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            rig.disk.fill_up(path_glob="meta/*")
            with pytest.raises(DiskFullError):
                rig.broker.create_topic("new", partitions=1)
            with pytest.raises(DiskFullError):
                rig.broker.delete_topic("orders")
            await rig.publish("orders", 0, [b"goes on"], producer="a")
            rig.disk.make_room()
            rig.broker.create_topic("new", partitions=1)
            await rig.publish("new", 0, [b"new"], producer="a")
            rig.recover_with(rig.disk.crash())
            await rig.start()
            await rig.audit()
            assert sorted(rig.broker.topics) == ["new", "orders"]

        run(main())

    def test_a_broker_starts_on_a_full_disk(self) -> None:
        """Whatever it has to mend can wait, so that readers can empty the disk's topics."""

        async def main() -> None:
            rig = Rig()
            await orders(rig, segment_bytes=4_096)
            for number in range(6):
                await rig.publish("orders", 0, [b"%d" % number * 2_000], producer="a")
            rig.recover_with(rig.disk.crash(torn=Random(1)))
            rig.disk.fill_up()
            await rig.start()
            await rig.audit()
            with pytest.raises(DiskFullError):
                await rig.publish("orders", 0, [b"no room"], producer="a")
            await rig.stop()
            rig.disk.make_room()
            rig.recover_with(rig.disk.kill())
            await rig.start()
            await rig.publish("orders", 0, [b"no room"], producer="a")
            await rig.audit()

        run(main())


class TestSlowDisk:
    def test_acks_wait_and_nobody_else_does(self) -> None:
        """While one partition's sync hangs, its durable messages are read and others are acked."""

        async def main() -> None:
            disk = MemoryDisk()
            broker = Broker(BrokerConfig(sync_threads=2), disk, FakeClock())
            await broker.start()
            slow = broker.create_topic("slow", partitions=1)
            fast = broker.create_topic("fast", partitions=1)
            await slow.publish(PUBLISHING, 0, one(b"durable"))
            loop = asyncio.get_running_loop()
            begun, release = asyncio.Event(), threading.Event()

            def dawdle(path: str) -> None:
                if path.startswith("logs/slow"):
                    loop.call_soon_threadsafe(begun.set)
                    release.wait()

            # A sync that is known to be slow is never run in the loop.
            broker_sync_is_slow(broker)
            disk.delay_sync(dawdle)
            waiting = asyncio.ensure_future(slow.publish(PUBLISHING, 0, one(b"waits")))
            try:
                await begun.wait()
                for number in range(5):
                    await fast.publish(PUBLISHING, 0, one(b"fast %d" % number))
                messages, _ = await read_all(slow, 0)
                assert [message.value for message in messages] == [b"durable"]
                assert not waiting.done()
            finally:
                release.set()
            await waiting
            assert len((await read_all(slow, 0))[0]) == 2
            assert len((await read_all(fast, 0))[0]) == 5
            await broker.stop()

        run(main())

    def test_cold_bytes_are_read_in_a_thread(self) -> None:
        """A read that has to wait for the device gives the same answer."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            rig.disk.evict()
            await rig.audit()

        run(main())


def one(value: bytes) -> memoryview:
    return memoryview(frame_drafts([Draft(value=value)]))


def broker_sync_is_slow(broker: Broker) -> None:
    committer = broker._committer  # noqa: SLF001 - the only way to say so without waiting
    assert committer is not None
    committer._sync_seconds = 1.0  # noqa: SLF001


class TestFlippedBits:
    def test_in_a_snapshot_they_cost_a_longer_start(self) -> None:
        """The ledger is rebuilt from the log: every retry still finds its original."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            first = rig.clients["a"].next_stamp("orders", 0)
            await rig.publish("orders", 0, [b"again"], producer="a")
            await rig.stop()
            path = f"logs/orders/0/{SNAPSHOT_NAME}"
            for position in range(len(content_of(rig.disk, path))):
                rig.disk.flip_bits(path, [position], mask=0x20)
                rig.recover_with(rig.disk.kill())
                await rig.start()
                again = memoryview(frame_drafts([Draft(value=b"again")], first))
                published = await rig.broker.topic("orders").publish(PUBLISHING, 0, again)
                assert published.is_duplicate
                assert published.base_offset == 1
                await rig.stop()
            await rig.start()
            await rig.audit()

        run(main())

    def test_in_the_journal_they_keep_the_broker_from_starting(self) -> None:
        """State without a record would be wrong in silence; nothing is deleted."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            await rig.stop()
            rig.disk.flip_bits(JOURNAL_PATH, [10, 30])
            before = content_of(rig.disk, FIRST_LOG)
            rig.recover_with(rig.disk.kill())
            with pytest.raises(StorageFailedError, match="damaged"):
                await rig.start()
            assert content_of(rig.disk, FIRST_LOG) == before

        run(main())

    def test_in_the_log_they_are_told_to_readers(self) -> None:
        """The fetch names the offsets it skips; what is good around them is served."""

        async def main() -> None:
            rig = Rig()
            await orders(rig)
            for number in range(5):
                await rig.publish("orders", 0, [b"message %d" % number], producer="a")
            await rig.stop()
            size = len(content_of(rig.disk, FIRST_LOG))
            rig.disk.flip_bits(FIRST_LOG, [size // 2, size - 3])
            rig.recover_with(rig.disk.kill())
            await rig.start()
            topic = rig.broker.topic("orders")
            messages, gaps = await read_all(topic, 0)
            hidden = {at for gap in gaps for at in range(gap.start_offset, gap.end_offset)}
            assert len(hidden) == 2
            assert {message.offset for message in messages} == set(range(6)) - hidden
            assert topic.partition(0).log.recovery.gaps == gaps
            await rig.publish("orders", 0, [b"goes on"], producer="b")
            assert topic.partition(0).log.end_offset == 7

        run(main())


def test_a_stamp_is_not_judged_by_a_partition_that_failed() -> None:
    """A batch the disk lost is no duplicate, whoever asks; its producer hears of the disk."""

    async def main() -> None:
        rig = Rig()
        await orders(rig)
        rig.disk.fail_sync("logs/orders/0/*.log")
        stamp: ProducerStamp = rig.client("z").stamp
        frames = frame_drafts([Draft(value=b"lost")], stamp)
        topic = rig.broker.topic("orders")
        for wait in (True, True, False):
            with pytest.raises(GoQueueError) as caught:
                await topic.publish(PUBLISHING, 0, memoryview(frames), wait=wait)
            assert caught.value.code == "storage_failed"

    run(main())
