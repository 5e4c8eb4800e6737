"""A lone message is published, synced and answered in one go; company makes it wait for others."""

import asyncio

import pytest

from goqueue.base.errors import (
    CorruptFrameError,
    GoQueueError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    StorageFailedError,
)
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.topic import Topic
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run


def frames_of(value: bytes, stamp: ProducerStamp = NO_STAMP, **fields: bytes) -> memoryview:
    return memoryview(frame_drafts([Draft(value=value, **fields)], stamp))  # type: ignore[arg-type]


async def orders(rig: Rig, **settings: object) -> Topic:
    await rig.start()
    return rig.broker.create_topic("orders", partitions=2, settings=settings)


def published(outcome: object) -> Published:
    assert isinstance(outcome, Published), outcome
    return outcome


async def settle() -> None:
    """Let everything run that was put off until the answer has left, and tasks begin by then."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_what_was_answered_survives_a_power_cut_and_is_counted() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        assert (
            published(topic.small.publish_at_once(PUBLISHING, 1, frames_of(b"first"))).base_offset
            == 0
        )
        assert topic.partition(1).visible_offset == 1
        await settle()
        text = rig.metrics_text()
        assert 'goqueue_broker_messages_published_total{topic="orders"} 1.0' in text
        assert 'goqueue_broker_publish_latency_seconds_count{topic="orders"} 1.0' in text

        rig.recover_with(rig.disk.crash())
        await rig.start()
        messages, _ = await read_all(rig.broker.topic("orders"), 1)
        assert [message.value for message in messages] == [b"first"]

    run(main())


def test_a_repeat_is_recognised_and_a_gap_refused() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        stamp = rig.broker.init_producer()
        first = frames_of(b"first", stamp)
        assert published(topic.small.publish_at_once(PUBLISHING, 0, first)).base_offset == 0
        await settle()
        again = published(topic.small.publish_at_once(PUBLISHING, 0, first))
        assert (again.base_offset, again.is_duplicate) == (0, True)
        await settle()
        late = topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"third", stamp.after(2)))
        assert isinstance(late, OutOfOrderSequenceError)
        assert topic.partition(0).log.end_offset == 1

    run(main())


def test_a_stamp_without_a_producer_is_an_empty_one() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        stamp = ProducerStamp(ProducerId(0), Epoch(5), Sequence(7))
        odd = memoryview(frame_drafts([Draft(value=b"v")] * 200, stamp))
        assert isinstance(topic.small.publish_at_once(PUBLISHING, 0, odd), InvalidRequestError)
        with pytest.raises(InvalidRequestError):
            await topic.publish(PUBLISHING, 0, odd)
        assert topic.partition(0).log.end_offset == 0

    run(main())


def test_what_is_in_the_log_is_counted_though_its_sender_has_left() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        sending = asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames_of(b"v")))
        while not topic.partition(0).log.end_offset:
            await settle()
        sending.cancel()
        await settle()
        text = rig.metrics_text()
        assert 'goqueue_broker_messages_published_total{topic="orders"} 1.0' in text

    run(main())


def test_a_sync_that_fails_is_no_ack() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        rig.disk.fail_sync("logs/orders/0/*.log", drops_pages=True)
        assert isinstance(
            topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"lost")), StorageFailedError
        )
        await settle()
        refused = topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"refused"))
        assert isinstance(refused, StorageFailedError)
        assert await read_all(topic, 0) == ([], [])
        await settle()
        assert (
            published(topic.small.publish_at_once(PUBLISHING, 1, frames_of(b"other"))).base_offset
            == 0
        )

    run(main())


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        (memoryview(b"GQ" + bytes(60)), CorruptFrameError),
        (memoryview(b""), InvalidRequestError),
    ],
)
def test_bad_frames_are_refused_and_nothing_is_written(
    frames: memoryview, fault: type[Exception]
) -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        assert isinstance(topic.small.publish_at_once(PUBLISHING, 0, frames), fault)
        assert topic.partition(0).log.end_offset == 0

    run(main())


def test_requests_that_come_together_share_a_sync() -> None:
    """The second of a tick waits for company, and so does everybody until one comes alone."""

    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"1")) is not None
        assert topic.small.publish_at_once(PUBLISHING, 1, frames_of(b"2")) is None
        await settle()
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"3")) is None
        await asyncio.gather(*(topic.publish(PUBLISHING, 0, frames_of(b"4")) for _ in range(3)))
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"5")) is None
        await topic.publish(PUBLISHING, 0, frames_of(b"6"))
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"7")) is not None

    run(main())


@pytest.mark.parametrize(
    "settings", [{"durability": "os"}, {"dedup_window_ms": 1_000}], ids=["os", "dedup"]
)
def test_what_needs_more_than_a_sync_takes_the_other_road(settings: dict[str, object]) -> None:
    async def main() -> None:
        topic = await orders(Rig(), **settings)
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"v")) is None
        assert topic.small.publish_at_once(PUBLISHING, 7, frames_of(b"v")) is None
        assert topic.partition(0).log.end_offset == 0

    run(main())


def test_nobody_is_overtaken_while_something_is_not_synced() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        waiting = asyncio.ensure_future(topic.publish(PUBLISHING, 0, frames_of(b"1")))
        await settle()
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"2")) is None
        await waiting
        assert (
            published(topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"2"))).base_offset == 1
        )

    run(main())


def test_parts_of_a_request_have_outcomes_of_their_own() -> None:
    """One file fails its sync, the other does not."""

    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        rig.disk.fail_sync("logs/orders/0/*.log", drops_pages=True)
        outcomes = topic.small.publish_parts_at_once(
            PUBLISHING, [(0, frames_of(b"lost")), (1, frames_of(b"kept"))]
        )
        assert outcomes is not None
        assert isinstance(outcomes[0], StorageFailedError)
        assert published(outcomes[1]).base_offset == 0
        assert await read_all(topic, 0) == ([], [])
        await settle()
        text = rig.metrics_text()
        assert 'goqueue_broker_publish_latency_seconds_count{topic="orders"} 1.0' in text

    run(main())


def test_parts_that_wait_for_company_are_answered_as_one_request() -> None:
    async def main() -> None:
        rig = Rig()
        topic = await orders(rig)
        answer: asyncio.Future[list[Published | GoQueueError]]
        answer = asyncio.get_running_loop().create_future()
        parts = [(1, frames_of(b"a")), (0, memoryview(b"GQ" + bytes(60)))]
        assert topic.small.begin_parts(PUBLISHING, parts, answer.set_result) is True
        good, bad = await answer
        assert published(good).partition == 1
        assert isinstance(bad, CorruptFrameError)
        text = rig.metrics_text()
        assert 'goqueue_broker_publish_latency_seconds_count{topic="orders"} 1.0' in text
        # It was one request, so the next is answered at once.
        assert topic.small.publish_at_once(PUBLISHING, 0, frames_of(b"b")) is not None

    run(main())


@pytest.mark.parametrize(
    "parts",
    [
        [(0, frames_of(b"1")), (0, frames_of(b"2"))],
        [(0, frames_of(b"1")), (9, frames_of(b"2"))],
        [(0, frames_of(b"1" * 40_000)), (1, frames_of(b"2" * 40_000))],
    ],
    ids=["twice", "unknown", "large"],
)
def test_parts_that_need_more_take_the_other_road(parts: list[tuple[int, memoryview]]) -> None:
    async def main() -> None:
        topic = await orders(Rig())
        assert topic.small.publish_parts_at_once(PUBLISHING, parts) is None
        assert topic.small.begin_parts(PUBLISHING, parts, print) is False
        assert topic.partition(0).log.end_offset == 0

    run(main())
