"""Counts are counts of messages: marks of transactions, holes and what is undone are none."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError
from goqueue.base.units import HOUR_MS, SECOND_MS
from goqueue.core.groups.member import JoinRequest
from goqueue.core.record.message import Priority
from goqueue.core.tx.producer import ABORT, COMMIT
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.published import Published
from goqueue.runtime.message_counts import absent_between, count_between, count_in_topic
from goqueue.runtime.queue.lane_counts import ledgers_of, pending_lanes, total_lanes
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.testing.clock import FakeClock
from goqueue.testing.disk import CrashError
from tests.runtime.grants import POLLING, PUBLISHING, SETTLING
from tests.runtime.rig import Rig, read_all, run
from tests.runtime.test_compactor import Stage
from tests.runtime.test_consume import Shop
from tests.runtime.test_transactions import Bank

SIZE = 60
offsets = st.sets(st.integers(0, SIZE - 1), max_size=SIZE).map(BitMap64)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


@settings(max_examples=200, deadline=None)
@given(sets=st.tuples(*[offsets] * 5), start=st.integers(0, SIZE), end=st.integers(0, SIZE))
def test_counts_are_what_a_set_says(sets: tuple[BitMap64, ...], start: int, end: int) -> None:
    """Where sets may overlap, each offset without a message is left out once."""
    queue = PartitionVisibility(FakeClock(), life=1)
    empty, cancelled, aborted, uncommitted, done = sets
    # What is undone is a message, and of one transaction only.
    aborted, uncommitted = aborted - empty, uncommitted - empty - aborted
    for known, found in (
        (queue.empty, empty),
        (queue.schedule.cancelled, cancelled),
        (queue.tx.aborted, aborted),
        (queue.tx.uncommitted, uncommitted),
    ):
        known |= found  # noqa: PLW2901 - changed in place
    absent = set(empty | cancelled | aborted | uncommitted) & set(range(start, end))

    assert set(absent_between(queue, start, end)) == absent
    assert count_between(queue, start, end) == len(set(range(start, end)) - absent)
    left = set(range(start, end)) - absent - set(done)
    assert count_between(queue, start, end, without=done) == len(left)


async def watch(rig: Rig, topic: str) -> None:
    """Have a group that reads nothing, and therefore lags behind by all there is."""
    await rig.broker.groups.join("g", JoinRequest(client_id="a", topics=(topic,)))
    await rig.broker.consume.poll(POLLING, "g", _member(rig), None, PollLimits(0, 1, 0))


def _member(rig: Rig) -> str:
    return next(iter(rig.broker.groups.get("g").members))


async def counts(rig: Rig, topic: str) -> tuple[int, int, int, int]:
    """Return the messages of a topic as each road counts them: all of them are one number."""
    known = rig.broker.topic(topic)
    (part,) = await rig.broker.consume.progress("g")
    groups = ledgers_of(rig.broker.consume.ledgers, known.partitions[0])
    pending = sum(one.messages for one in pending_lanes(known.partitions[0], groups))
    return count_in_topic(known), part.lag, sum(total_lanes(known.partitions[0])), pending


def test_marks_and_aborted_messages_are_not_counted() -> None:
    """Four messages are four, whatever transactions did beside them, over a restart as well."""

    async def main() -> None:
        bank = Bank()
        await bank.rig.start()
        bank.rig.broker.create_topic("accounts", partitions=1)
        await watch(bank.rig, "accounts")
        for outcome, values in ((COMMIT, ("a", "b")), (ABORT, ("x", "y", "z")), (COMMIT, ("c",))):
            who = await bank.begin(await bank.init(values[0]))
            await bank.publish(who, 0, *values)
            await bank.tx.end(who, outcome)
        await bank.plain(0, "d")
        opened = await bank.begin(await bank.init("open"))
        await bank.publish(opened, 0, "p", "q")

        for _ in range(2):
            assert bank.rig.broker.topic("accounts").partition(0).visible_offset == 12
            assert await counts(bank.rig, "accounts") == (4, 4, 4, 4)
            await bank.rig.stop()
            await bank.rig.start()
        await bank.tx.end(opened, COMMIT)
        assert await counts(bank.rig, "accounts") == (6, 6, 6, 6)
        await bank.rig.stop()

    run(main())


def test_what_was_settled_behind_marks_is_counted_once() -> None:
    """The lag goes down by what is acked, to nothing, though marks lie in between and behind."""

    async def main() -> None:
        bank = Bank()
        await bank.rig.start()
        bank.rig.broker.create_topic("accounts", partitions=1)
        await watch(bank.rig, "accounts")
        for value in ("a", "b", "c"):
            who = await bank.begin(await bank.init(value))
            await bank.publish(who, 0, value)
            await bank.tx.end(who, COMMIT)
        polled = await bank.rig.broker.consume.poll(
            POLLING, "g", _member(bank.rig), None, PollLimits(10, 10_000, 0)
        )
        (part,) = polled.parts
        lags = []
        for offset in (4, 0, 2):
            one = Settlement(
                partition=part.partition, nonce=part.nonce, verb="ack", offsets=BitMap64([offset])
            )
            await bank.rig.broker.consume.settle(SETTLING, "g", None, [one])
            lags.append((await bank.rig.broker.consume.progress("g"))[0].lag)

        assert lags == [2, 1, 0]
        await bank.rig.stop()

    run(main())


def test_cancelled_delays_are_not_counted_and_waiting_ones_are() -> None:
    """A message that waits for its time is one; one that was cancelled is not."""

    async def main() -> None:
        shop = await Shop().open()
        await watch(shop.rig, "orders")
        due_us = shop.rig.clock.now_us() + HOUR_MS * 1_000
        await shop.publish("a", "b", "c", deliver_at_us=due_us, priority=Priority.HIGH)
        await shop.publish("d")
        await shop.rig.broker.delays.cancel("orders", 0, 1)

        for _ in range(2):
            assert await counts(shop.rig, "orders") == (3, 3, 3, 3)
            (part,) = await shop.rig.broker.consume.progress("g")
            assert (part.lag, part.delayed) == (3, 2)
            assert total_lanes(shop.rig.broker.topic("orders").partition(0)) == [0, 2, 1, 0, 0]
            await shop.restart()
        await shop.rig.stop()

    run(main())


def test_a_cancelled_message_of_an_open_transaction_is_left_out_once() -> None:
    """Delayed, cancelled and aborted: three reasons, one message."""

    async def main() -> None:
        shop = await Shop().open()
        await watch(shop.rig, "orders")
        await shop.publish("a")
        queue = shop.rig.broker.topic("orders").partition(0).queue
        due_us = shop.rig.clock.now_us() + HOUR_MS * 1_000
        await shop.publish("b", deliver_at_us=due_us)
        queue.tx.note(7, 1, 1)
        assert (await shop.rig.broker.consume.progress("g"))[0].delayed == 0
        await shop.rig.broker.delays.cancel("orders", 0, 1)
        assert await counts(shop.rig, "orders") == (1, 1, 1, 1)
        queue.tx.end(7, is_commit=False)

        assert await counts(shop.rig, "orders") == (1, 1, 1, 1)
        await shop.rig.stop()

    run(main())


async def compacted(stage: Stage) -> None:
    """Publish six messages of which compaction removes three."""
    topic = await stage.start()
    for key in ("a", "b", "a", "c", "b", "a"):
        await stage.publish(stage.draft(key, "v"))
    await topic.partition(0).roll()
    await stage.broker.compactor.compact(topic)


def test_holes_of_compaction_are_not_counted() -> None:
    """Three of six are left, at once and after every kind of end."""

    async def main() -> None:
        stage = Stage()
        await compacted(stage)
        for end in ("none", "stop", "kill", "crash"):
            if end != "none":
                if end == "stop":
                    await stage.broker.stop()
                stage.disk = stage.disk.crash() if end == "crash" else stage.disk.kill()
                await stage.start()
            topic = stage.broker.topic("state")
            assert topic.partition(0).visible_offset == 6
            assert count_in_topic(topic) == 3, end
        await stage.broker.stop()

    run(main())


def test_a_crash_anywhere_in_a_compaction_leaves_true_counts() -> None:
    """Whatever was put in place when the power went, the next start counts what is there."""

    async def main() -> None:
        probe = Stage()
        await compacted(probe)
        total = probe.disk.operations
        for at in range(total // 2, total + 1):
            stage = Stage()
            stage.disk.fail_at(at)
            with contextlib.suppress(CrashError, GoQueueError):
                await compacted(stage)
            stage.disk = stage.disk.crash()
            topic = await stage.start()
            await topic.partition(0).durable()
            found, _ = await read_all(topic, 0)
            assert count_in_topic(topic) == len(found), at
            await stage.broker.stop()

    run(main())


def test_expired_messages_are_not_counted() -> None:
    """What retention deleted is gone from every count; what is too old to lease when it is met."""

    async def main() -> None:
        shop = await Shop().open(
            retention_ms=3 * HOUR_MS, segment_bytes=4_096, message_ttl_ms=HOUR_MS
        )
        await watch(shop.rig, "orders")
        await shop.publish("a" * 3_000)
        shop.rig.clock.advance(2 * HOUR_MS)
        await shop.publish("b" * 3_000)
        await shop.publish("c" * 3_000)
        assert await counts(shop.rig, "orders") == (3, 3, 3, 3)
        shop.rig.clock.advance(HOUR_MS + SECOND_MS)
        shop.rig.keep("orders")

        assert await counts(shop.rig, "orders") == (2, 2, 2, 2)
        await shop.publish("d")
        assert await shop.values(_member(shop.rig)) == ["d"]
        assert (await counts(shop.rig, "orders"))[1] == 1
        await shop.rig.stop()

    run(main())


def test_dead_letters_are_counted_truly() -> None:
    """Marks and aborted messages among dead letters are none, nor are those that went back."""

    async def main() -> None:
        bank = Bank()
        await bank.rig.start()
        bank.rig.broker.create_topic("accounts", partitions=1)
        bank.rig.broker.create_topic("accounts.dlq", partitions=1)
        for outcome, values in ((COMMIT, ("a", "b")), (ABORT, ("x",)), (COMMIT, ("c",))):
            who = await bank.begin(await bank.init(values[0]))
            raw = bank.raw(who, 0, *values)
            (done,) = await bank.tx.publish(PUBLISHING, who, "accounts.dlq", [(0, raw)])
            assert isinstance(done, Published)
            bank.note(who, 0, len(values))
            await bank.tx.end(who, outcome)
        shelves = bank.rig.broker.redrives.shelves
        topic = bank.rig.broker.topic("accounts.dlq")

        await topic.partition(0).durable()
        assert topic.partition(0).visible_offset == 7
        assert shelves.depth(topic) == 3
        (shelf,) = shelves.of(topic)
        assert list(shelf.left()) == [0, 1, 5]
        await shelf.drop(BitMap64([1, 2]), "gone")
        assert shelves.depth(topic) == 2
        await bank.rig.stop()

    run(main())
