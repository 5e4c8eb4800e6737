"""The road of a message into the log: repeats, order, durability, and topics that go away."""

import asyncio

import pytest

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ShuttingDownError,
    TopicNotFoundError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.base.units import HOUR_MS
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.places import place_rows
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.maintenance import Maintenance
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import MemoryDisk
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run

FIRST_LOG = f"logs/orders/0/{0:020d}.log"


def frames(*values: bytes, stamp: ProducerStamp | None = None) -> memoryview:
    drafts = [Draft(value=value) for value in values]
    return memoryview(frame_drafts(drafts, stamp) if stamp else frame_drafts(drafts))


async def topic_of(rig: Rig, *, partitions: int = 1, **settings: object) -> Topic:
    await rig.start()
    return rig.broker.create_topic("orders", partitions=partitions, settings=settings)


class TestIdempotence:
    def test_a_retry_returns_the_original_offsets(self) -> None:
        """On this connection, on another, after a restart: nothing is written twice."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            await topic.publish(PUBLISHING, 0, frames(b"somebody else"))
            stamp = rig.client("a").stamp
            for values in ([b"1", b"2", b"3"], [b"%d" % n for n in range(4, 9)]):
                first = await topic.publish(PUBLISHING, 0, frames(*values, stamp=stamp))
                for _ in range(2):
                    again = await topic.publish(PUBLISHING, 0, frames(*values, stamp=stamp))
                    assert again.is_duplicate
                    assert place_rows(again, len(values)) == place_rows(first, len(values))
                    await rig.stop()
                    rig.recover_with(rig.disk.crash())
                    await rig.start()
                    topic = rig.broker.topic("orders")
                stamp = stamp.after(len(values))
            assert topic.partition(0).log.end_offset == 9

        run(main())

    @pytest.mark.parametrize("kept", [1, 2])
    def test_a_retry_of_a_request_half_kept_writes_the_other_half(self, kept: int) -> None:
        """Each frame is whole or gone after a crash; the repeat completes what is there."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            stamp = rig.client("a").stamp
            values = [b"one", b"two", b"three"]
            await topic.publish(PUBLISHING, 0, frames(*values, stamp=stamp))
            rig.recover_with(rig.disk.kill())
            file = rig.disk.open(FIRST_LOG)
            sizes = [len(encode_row(Draft(value=value), stamp=stamp)) for value in values]
            file.truncate(sum(sizes[:kept]))
            await rig.start()
            topic = rig.broker.topic("orders")
            await topic.publish(PUBLISHING, 0, frames(b"somebody else"))
            places = [n if n < kept else n + 1 for n in range(3)]
            for is_repeat in (False, True):
                published = await topic.publish(PUBLISHING, 0, frames(*values, stamp=stamp))
                assert [offset for _, offset in place_rows(published, 3)] == places
                assert published.is_duplicate == is_repeat
            messages, _ = await read_all(topic, 0)
            assert sorted(message.value or b"" for message in messages) == sorted(
                [*values, b"somebody else"]
            )
            follows = await topic.publish(PUBLISHING, 0, frames(b"four", stamp=stamp.after(3)))
            assert follows.base_offset == 4

        run(main())

    def test_a_new_life_begins_at_zero_and_fences_the_old(self) -> None:
        """Trap A11, all of it: no false duplicate, no zombie, no offset 0 for a repeat."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            old = rig.client("a").stamp
            await topic.publish(PUBLISHING, 0, frames(b"a", b"b", stamp=old))
            new = rig.broker.renew_producer(producer_id=old.producer_id, epoch=old.epoch)
            with pytest.raises(ProducerFencedError):
                await topic.publish(PUBLISHING, 0, frames(b"zombie", stamp=old.after(2)))
            published = await topic.publish(PUBLISHING, 0, frames(b"c", stamp=new))
            assert (published.base_offset, published.is_duplicate) == (2, False)
            assert (await topic.publish(PUBLISHING, 0, frames(b"c", stamp=new))).base_offset == 2
            rig.recover_with(rig.disk.crash())
            await rig.start()
            with pytest.raises(ProducerFencedError):
                await rig.broker.topic("orders").publish(
                    PUBLISHING, 0, frames(b"zombie", stamp=old.after(2))
                )

        run(main())

    @pytest.mark.parametrize(
        ("stamp", "error"),
        [
            (ProducerStamp(ProducerId(5_000), Epoch(0), Sequence(0)), UnknownProducerError),
            (ProducerStamp(ProducerId(1), Epoch(1), Sequence(0)), UnknownProducerError),
            (ProducerStamp(ProducerId(1), Epoch(0), Sequence(2)), OutOfOrderSequenceError),
            (ProducerStamp(ProducerId(2), Epoch(0), Sequence(2)), UnknownProducerError),
        ],
    )
    def test_what_cannot_follow_is_refused(
        self, stamp: ProducerStamp, error: type[GoQueueError]
    ) -> None:
        """Unknown ids, lives that never began, and gaps write nothing."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            await topic.publish(PUBLISHING, 0, frames(b"a", stamp=rig.client("a").stamp))
            with pytest.raises(error):
                await topic.publish(PUBLISHING, 0, frames(b"b", stamp=stamp))
            assert topic.partition(0).log.end_offset == 1

        run(main())

    def test_one_request_is_one_producer_s(self) -> None:
        """A frame cannot smuggle in a stamp that nobody checked."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            stamp = rig.client("a").stamp
            stranger = ProducerStamp(ProducerId(9), Epoch(7), Sequence(100))
            plain = encode_row(Draft(value=b"plain"))
            for second in (stranger, stamp.after(2)):
                for first in (plain, encode_row(Draft(value=b"first"), stamp=stamp)):
                    raw = first + encode_row(Draft(value=b"second"), stamp=second)
                    with pytest.raises(InvalidRequestError):
                        await topic.publish(PUBLISHING, 0, memoryview(raw))
            assert topic.partition(0).log.end_offset == 0

        run(main())


class TestPlacing:
    def test_a_key_chooses_its_partition(self) -> None:
        """Trap G6: "user-300" goes to partition 2 of 3; keyless messages take turns."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig, partitions=3)
            keyed = Draft(value=b"", key=b"user-300")
            plain = [(Draft(value=b"%d" % n), None) for n in range(6)]
            results = await topic.publish_drafts(PUBLISHING, [(keyed, None), (keyed, 1), *plain])
            assert results[:2] == [(2, 0), (1, 0)]
            numbers = [result[0] for result in results[2:] if isinstance(result, tuple)]
            assert sorted(numbers) == [0, 0, 1, 1, 2, 2]

        run(main())

    def test_a_wrong_partition_fails_its_own_message(self) -> None:
        """The others of the request are published."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            results = await topic.publish_drafts(
                PUBLISHING, [(Draft(value=b"a"), 7), (Draft(value=b"b"), 0)]
            )
            assert isinstance(results[0], GoQueueError)
            assert results[0].code == "partition_not_found"
            assert results[1] == (0, 0)

        run(main())


class TestDurability:
    def test_a_message_nobody_waits_for_is_synced_and_seen(self) -> None:
        """Trap B5: an idle tail does not wait for the next publish, also without an ack."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig)
            await topic.publish(PUBLISHING, 0, frames(b"no ack"), wait=False)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len((await read_all(topic, 0))[0]) == 1
            rig.recover_with(rig.disk.crash())
            await rig.start()
            assert rig.broker.topic("orders").partition(0).log.end_offset == 1

        run(main())

    def test_an_idle_tail_is_synced_within_its_interval(self) -> None:
        """Trap B5: no further append is needed."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig, durability="interval:1s")
            rig.clock.advance(10_000)
            maintenance = Maintenance(rig.broker)
            maintenance.sync_due()
            await topic.publish(PUBLISHING, 0, frames(b"acked by the system"))
            assert len((await read_all(topic, 0))[0]) == 1
            rig.clock.advance(999)
            maintenance.sync_due()
            await asyncio.sleep(0)
            assert topic.partition(0).log.durable_offset == 0
            rig.clock.advance(1)
            maintenance.sync_due()
            for _ in range(5):
                await asyncio.sleep(0)
            assert topic.partition(0).log.durable_offset == 1
            rig.recover_with(rig.disk.crash())
            await rig.start()
            assert rig.broker.topic("orders").partition(0).log.end_offset == 1

        run(main())

    @pytest.mark.parametrize("durability", ["interval:1h", "os", "fsync"])
    def test_a_clean_stop_makes_everything_durable(self, durability: str) -> None:
        """Trap B5: whatever the topic's durability."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig, durability=durability)
            await topic.publish(PUBLISHING, 0, frames(b"a", b"b"))
            await rig.stop()
            rig.recover_with(rig.disk.crash())
            await rig.start()
            assert len((await read_all(rig.broker.topic("orders"), 0))[0]) == 2

        run(main())

    def test_settings_are_durable_and_retention_obeys_them(self) -> None:
        """Trap B2: after a restart old messages are still deleted, by time and by size."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig, segment_bytes=4_096, retention_ms="2h")
            for number in range(12):
                draft = Draft(value=b"%d" % number * 1_000, timestamp_us=rig.clock.now_us())
                await topic.publish(PUBLISHING, 0, memoryview(frame_drafts([draft])))
                rig.clock.advance(HOUR_MS // 4)
            rig.broker.configure_topic("orders", {"retention_ms": "1h"})
            rig.recover_with(rig.disk.crash())
            await rig.start()
            log = rig.broker.topic("orders").partition(0).log
            assert rig.broker.topic("orders").settings.retention_ms == HOUR_MS
            rig.keep("orders")
            assert 0 < log.start_offset <= 8
            rig.broker.configure_topic("orders", {"retention_ms": 0, "retention_bytes": 4_096})
            rig.keep("orders")
            assert log.start_offset >= 8
            rig.clock.jump(-24 * HOUR_MS)
            start = log.start_offset
            rig.keep("orders")
            assert log.start_offset == start

        run(main())


class TestGoingAway:
    def test_a_topic_deleted_under_load_takes_nobody_with_it(self) -> None:
        """Those who publish to it are told, other topics go on, nothing is left behind."""

        async def main() -> None:
            rig = Rig()
            topic = await topic_of(rig, segment_bytes=4_096)
            other = rig.broker.create_topic("other", partitions=1)
            waiting = [
                asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames(b"%d" % n * 3_000)))
                for n in range(4)
            ]
            await asyncio.sleep(0)
            rig.broker.delete_topic("orders")
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(one, TopicNotFoundError) for one in outcomes), outcomes
            published = await other.publish(PUBLISHING, 0, frames(b"goes on"))
            assert published.base_offset == 0
            again = rig.broker.create_topic("orders", partitions=1)
            assert (await again.publish(PUBLISHING, 0, frames(b"new"))).base_offset == 0
            assert not rig.disk.list_directory("deleting")
            await rig.stop()

        run(main())

    @pytest.mark.parametrize("threads", [0, 2])
    def test_a_stop_under_load_settles_everybody(self, threads: int) -> None:
        """Every publish is acked or told that the broker stops; what was acked is there."""

        async def main() -> None:
            disk = MemoryDisk()
            broker = Broker(BrokerConfig(sync_threads=threads), disk, FakeClock())
            await broker.start()
            topic = broker.create_topic("orders", partitions=2, settings={"segment_bytes": 4_096})
            waiting = [
                asyncio.ensure_future(topic.publish(PUBLISHING, n % 2, frames(b"%d" % n * 1_500)))
                for n in range(20)
            ]
            await asyncio.sleep(0)
            await broker.stop()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            acked = [one for one in outcomes if not isinstance(one, BaseException)]
            rest = [one for one in outcomes if isinstance(one, BaseException)]
            assert all(isinstance(one, ShuttingDownError) for one in rest), rest
            again = Broker(BrokerConfig(sync_threads=threads), disk.crash(), FakeClock())
            await again.start()
            for one in acked:
                messages, _ = await read_all(again.topic("orders"), one.partition)
                assert one.base_offset in {message.offset for message in messages}
            await again.stop()

        run(main())
