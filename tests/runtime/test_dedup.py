"""Messages with a dedup id: inside its window a repeat is the original, wherever it is sent."""

import pytest

from goqueue.base.errors import DedupWindowFullError
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.units import DAY_MS, MINUTE_MS
from goqueue.core.producers import dedup
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.log.places import place_rows
from goqueue.runtime.log.topic import Topic
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run

Place = tuple[PartitionId, Offset]


async def topic_of(rig: Rig, *, partitions: int = 2) -> Topic:
    await rig.start()
    return rig.broker.create_topic(
        "orders", partitions=partitions, settings={"dedup_window_ms": "5m"}
    )


async def send(
    rig: Rig,
    number: int,
    *ids: str,
    stamp: ProducerStamp = NO_STAMP,
    each: bool = False,
    age_ms: int = 0,
) -> list[tuple[int, int]]:
    """Publish one message per id ("-" for none); return where each is."""
    drafts = [
        Draft(
            value=name.encode(),
            timestamp_us=rig.clock.now_us() - age_ms * 1_000,
            dedup_id=None if name == "-" else name.encode(),
        )
        for name in ids
    ]
    if each:
        raw = b"".join(frame_drafts([one], stamp.after(n)) for n, one in enumerate(drafts))
    else:
        raw = frame_drafts(drafts, stamp)
    published = await rig.broker.topic("orders").publish(PUBLISHING, number, memoryview(raw))
    return [(at, offset) for at, offset in place_rows(published, len(ids))]


async def restart(rig: Rig, *, clean: bool) -> None:
    if clean:
        await rig.stop()
    rig.recover_with(rig.disk.crash())
    await rig.start()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("count", [1, 6], ids=["rows", "batch"])
def test_a_repeat_returns_the_original_offset(count: int, *, clean: bool) -> None:
    """On the same partition, on another, and after a restart; nothing more is written."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        ids = [f"id {n}" for n in range(count)]
        first = await send(rig, 0, *ids)
        for _ in range(2):
            assert await send(rig, 0, *ids) == first
            assert await send(rig, 1, *ids) == first
            await restart(rig, clean=clean)
        topic = rig.broker.topic("orders")
        assert [partition.log.size_bytes > 0 for partition in topic.partitions] == [True, False]
        assert len((await read_all(topic, 0))[0]) == count

    run(main())


def test_new_messages_between_repeats_are_written() -> None:
    """Each message hears where it is, its own place or its original's."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        await send(rig, 1, "a", "b")
        assert await send(rig, 0, "x", "a", "-", "b", "y", "-") == [
            (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3),
        ]  # fmt: skip
        messages, _ = await read_all(rig.broker.topic("orders"), 0)
        assert [message.value for message in messages] == [b"x", b"-", b"y", b"-"]

    run(main())


@pytest.mark.parametrize("each", [True, False], ids=["rows", "batch"])
def test_a_repeat_within_one_batch_points_at_its_first(*, each: bool) -> None:
    """Only the first of them is written."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        places = await send(rig, 0, "a", "b", "a", "a", "c", each=each)
        assert places == [(0, 0), (0, 1), (0, 0), (0, 0), (0, 2)]
        assert await send(rig, 0, "c") == [(0, 2)]

    run(main())


@pytest.mark.parametrize("each", [True, False], ids=["rows", "batch"])
def test_a_batch_of_nothing_but_repeats_keeps_its_sequence(*, each: bool) -> None:
    """The producer's next batch is the next, also after a restart, and a retry hears the same."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        stamp = rig.client("a").stamp
        first = await send(rig, 0, "a", "b", "c", "d", stamp=stamp, each=each)
        stamp = stamp.after(4)
        for clean in (True, False, False):
            for _ in range(2):
                again = await send(rig, 0, "a", "b", "c", "d", stamp=stamp, each=each)
                assert again == first
                await restart(rig, clean=clean)
            stamp = stamp.after(4)
        assert await send(rig, 0, "e", stamp=stamp) == [(0, 4)]
        topic = rig.broker.topic("orders")
        messages, gaps = await read_all(topic, 0)
        assert [message.value for message in messages] == [b"a", b"b", b"c", b"d", b"e"]
        assert gaps == []
        assert topic.partition(0).find_time(rig.clock.now_us()) == 0

    run(main())


def test_restarts_do_not_wear_out_what_is_remembered() -> None:
    """Frames at the end of the log are replayed at every start and counted once."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        stamp = rig.client("a").stamp
        first = await send(rig, 0, "a", "b", stamp=stamp)
        await send(rig, 0, "a", "b", stamp=stamp.after(2))
        for _ in range(20):
            await restart(rig, clean=True)
        assert await send(rig, 0, "a", "b", stamp=stamp) == first
        assert await send(rig, 0, "c", stamp=stamp.after(4)) == [(0, 2)]

    run(main())


def test_after_its_window_an_id_is_free() -> None:
    """Neither earlier nor later, and a restart changes nothing about it."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig, partitions=1)
        await send(rig, 0, "a")
        rig.clock.advance(5 * MINUTE_MS - 1)
        await restart(rig, clean=True)
        assert await send(rig, 0, "a") == [(0, 0)]
        rig.clock.advance(1)
        assert await send(rig, 0, "a") == [(0, 1)]
        await restart(rig, clean=False)
        assert await send(rig, 0, "a") == [(0, 1)]

    run(main())


def test_a_full_window_refuses_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never forgets early; a message without an id needs no room."""
    monkeypatch.setattr(dedup.DedupWindow.__init__, "__kwdefaults__", {"ids_max": 2})

    async def main() -> None:
        rig = Rig()
        topic = await topic_of(rig, partitions=1)
        await send(rig, 0, "a", "b")
        with pytest.raises(DedupWindowFullError):
            await send(rig, 0, "c")
        assert await send(rig, 0, "-") == [(0, 2)]
        assert topic.partition(0).log.end_offset == 3
        rig.clock.advance(5 * MINUTE_MS)
        rig.keep("orders")
        assert await send(rig, 0, "c") == [(0, 3)]

    run(main())


def test_without_a_window_ids_mean_nothing() -> None:
    """The window is off by default, and may be switched on later."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("orders", partitions=1)
        assert await send(rig, 0, "a", "a") == [(0, 0), (0, 1)]
        rig.broker.configure_topic("orders", {"dedup_window_ms": "1m"})
        assert await send(rig, 0, "b", "b") == [(0, 2), (0, 2)]

    run(main())


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("each", [True, False], ids=["rows", "batch"])
def test_the_window_counts_from_the_append(*, each: bool, clean: bool) -> None:
    """A backdated message is remembered as long as any other, over restarts, and no longer."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        ids = [f"id {n}" for n in range(6)]
        first = await send(rig, 0, *ids, each=each, age_ms=10 * DAY_MS)
        rig.clock.advance(MINUTE_MS)
        later = await send(rig, 0, "later", age_ms=20 * DAY_MS)
        rig.clock.advance(4 * MINUTE_MS - 1)
        await restart(rig, clean=clean)
        assert await send(rig, 1, *ids, each=each) == first
        rig.clock.advance(1)
        await restart(rig, clean=clean)
        again = await send(rig, 1, *ids, each=each)
        assert [place[0] for place in again] == [1] * 6
        assert await send(rig, 1, "later") == later
        messages, _ = await read_all(rig.broker.topic("orders"), 0)
        assert [message.value for message in messages] == [*(one.encode() for one in ids), b"later"]

    run(main())


def test_the_window_is_read_back_over_segments() -> None:
    """Also where every message of the newest segments was backdated."""

    async def main() -> None:
        rig = Rig()
        await topic_of(rig)
        topic = rig.broker.topic("orders")
        places = {}
        for number in range(8):
            places[number] = await send(rig, 0, f"id {number}", age_ms=DAY_MS * (number + 1))
            await topic.partition(0).roll()
            rig.clock.advance(MINUTE_MS)
        await restart(rig, clean=False)
        # Eight minutes have passed since the first; the window is five.
        for number in range(4, 8):
            assert await send(rig, 1, f"id {number}") == places[number]
        for number in range(3):
            assert await send(rig, 1, f"id {number}") != places[number]

    run(main())
