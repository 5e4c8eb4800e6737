"""A wall clock that is set ends nothing before its time: windows, lives, leases and sessions."""

import pytest

from goqueue.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.tx.producer import COMMIT
from goqueue.runtime import broker as broker_module
from goqueue.runtime.clock import SystemClock
from goqueue.runtime.log.published import Published
from goqueue.runtime.maintenance import Maintenance
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run
from tests.runtime.test_compactor import Stage, state_of
from tests.runtime.test_consume import Shop
from tests.runtime.test_transactions import Bank

JUMPS_MS = (30 * SECOND_MS, -30 * SECOND_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)
jumps = pytest.mark.parametrize("jump_ms", JUMPS_MS)
there_and_back = pytest.mark.parametrize(
    "jumps_ms", [*((jump, -jump) for jump in JUMPS_MS), (DAY_MS, -2 * DAY_MS, DAY_MS)]
)


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


async def begin(**settings: object) -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("t", partitions=1, settings=settings)
    return rig


async def send(rig: Rig, value: bytes = b"v", *, clock_ms: int | None = None) -> Published:
    now_us = rig.clock.now_us() if clock_ms is None else clock_ms * 1_000
    draft = Draft(value=value, timestamp_us=now_us, dedup_id=value[:20])
    return await rig.broker.topic("t").publish(PUBLISHING, 0, memoryview(frame_drafts([draft])))


@there_and_back
def test_retention_deletes_nothing_before_its_time(jumps_ms: tuple[int, ...]) -> None:
    """Whatever was written before, between and after jumps is kept for as long as was said."""

    async def main() -> None:
        rig = await begin(retention_ms=3 * HOUR_MS, segment_bytes=4_096)
        log = rig.broker.topic("t").partition(0).log
        for jump_ms in (0, *jumps_ms):
            rig.clock.jump(jump_ms)
            await send(rig, b"x" * 3_000)
            rig.clock.advance(10 * SECOND_MS)
            rig.keep("t")
            assert log.start_offset == 0
        rig.clock.advance(3 * HOUR_MS - (len(jumps_ms) + 1) * 10 * SECOND_MS)
        rig.keep("t")
        assert log.start_offset == 0
        # What was stamped by a clock that was ahead is kept until it has had its time by both.
        rig.clock.advance(max(*jumps_ms, 0) + MINUTE_MS)
        rig.keep("t")
        assert log.start_offset == len(jumps_ms) + 1
        await rig.stop()

    run(main())


def test_a_clock_that_stays_forward_is_believed_after_a_while() -> None:
    """Once all that was written before is past its time, retention goes by the clock as it is."""

    async def main() -> None:
        rig = await begin(retention_ms=3 * HOUR_MS, segment_bytes=4_096)
        log = rig.broker.topic("t").partition(0).log
        rig.clock.jump(50 * 365 * DAY_MS)
        for _ in range(5):
            await send(rig, b"x" * 3_000)
            rig.clock.advance(HOUR_MS)
            rig.keep("t")

        assert log.start_offset == 2
        await rig.stop()

    run(main())


@there_and_back
def test_a_message_lives_for_its_whole_ttl(jumps_ms: tuple[int, ...]) -> None:
    """Written before, between or after jumps, it is delivered until an hour has passed."""

    async def main() -> None:
        shop = await Shop().open(message_ttl_ms=HOUR_MS)
        member = await shop.join()
        values = [f"{number}" for number in range(len(jumps_ms) + 1)]
        for value, jump_ms in zip(values, (0, *jumps_ms), strict=True):
            shop.rig.clock.jump(jump_ms)
            await shop.publish(value)
        shop.rig.clock.advance(HOUR_MS - 1)
        assert await shop.values(member, limit=1) == values[:1]
        assert await shop.values(member) == values[1:]
        await shop.publish("late")
        shop.rig.clock.advance(max(*jumps_ms, 0) + 2 * HOUR_MS)

        other = await shop.join(group="h")
        assert await shop.values(other, group="h") == []
        await shop.rig.stop()

    run(main())


@jumps
def test_a_dedup_window_lasts_as_long_as_it_says(jump_ms: int) -> None:
    """Not shorter, which lets repeats in, and not longer, which swallows messages."""

    async def main() -> None:
        rig = await begin(dedup_window_ms=HOUR_MS)
        await send(rig, b"before")
        rig.clock.jump(jump_ms)
        rig.keep("t")
        await send(rig, b"after")
        rig.clock.advance(HOUR_MS - 1)
        rig.keep("t")

        assert [one.offset for one in (await send(rig, b"before")).repeats] == [0]
        assert [one.offset for one in (await send(rig, b"after")).repeats] == [1]
        rig.clock.advance(1)
        rig.clock.jump(-jump_ms)
        rig.keep("t")
        assert (await send(rig, b"before")).repeats == ()
        assert (await send(rig, b"after")).repeats == ()
        await rig.stop()

    run(main())


@pytest.mark.parametrize("jump_ms", [30 * SECOND_MS, -30 * SECOND_MS, -HOUR_MS, -DAY_MS])
def test_a_dedup_window_is_not_forgotten_at_a_start_with_a_clock_that_was_set(
    jump_ms: int,
) -> None:
    """Set back, or forward within the window, what was remembered still is after a restart."""

    async def main() -> None:
        rig = await begin(dedup_window_ms=HOUR_MS)
        await send(rig, b"before")
        rig.clock.jump(jump_ms)
        await send(rig, b"after")
        await rig.stop()
        rig.clock.restart()
        await rig.start()

        assert [one.offset for one in (await send(rig, b"before")).repeats] == [0]
        assert [one.offset for one in (await send(rig, b"after")).repeats] == [1]
        await rig.stop()

    run(main())


@jumps
def test_a_tombstone_stays_for_its_time(jump_ms: int) -> None:
    """A deleted key tells so until a day has really passed."""

    async def main() -> None:
        stage = Stage()
        topic = await stage.start(tombstone_retention_ms=DAY_MS)
        await stage.publish(stage.draft("k", "v"))
        await stage.publish(stage.draft("k", None))
        stage.clock.jump(jump_ms)
        stage.clock.advance(DAY_MS - HOUR_MS)
        await topic.partition(0).roll()
        await stage.broker.compactor.compact(topic)
        assert await state_of(topic) == {b"k": None}
        stage.clock.advance(2 * HOUR_MS + max(-jump_ms, 0))
        await stage.publish(stage.draft("other", "v"))
        await topic.partition(0).roll()
        await stage.broker.compactor.compact(topic)

        assert await state_of(topic) == {b"other": b"v"}
        await stage.broker.stop()

    run(main())


@jumps
def test_leases_and_sessions_go_on(jump_ms: int) -> None:
    """A message that is leased stays so, its member stays, and the lease ends when it should."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a")
        member = await shop.join(visibility_timeout="30s", session_timeout="30m")
        (part,) = await shop.poll(member)
        shop.rig.clock.jump(jump_ms)
        shop.rig.broker.groups.sweep()
        shop.later(29 * SECOND_MS)

        assert await shop.poll(member) == []
        assert list(shop.rig.broker.groups.get("g").members) == [member]
        assert not (await shop.settle("ack", part)).refused
        await shop.rig.stop()

    run(main())


@jumps
def test_an_open_transaction_is_not_aborted(jump_ms: int) -> None:
    """It has its whole time, and its messages are seen when it commits."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.begin(await bank.init())
        await bank.publish(who, 0, "a")
        bank.rig.clock.jump(jump_ms)
        bank.tx.sweep()
        await bank.publish(who, 0, "b")
        await bank.tx.end(who, COMMIT)

        assert await bank.read(0) == ["a", "b"]
        await bank.rig.stop()

    run(main())


@pytest.mark.parametrize("jump_ms", [-DAY_MS, -9 * DAY_MS])
def test_a_client_with_the_right_time_is_not_refused(jump_ms: int) -> None:
    """A broker whose clock was set back by days takes messages of now, and moves older ones."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a")
        right_us = shop.rig.clock.now_us()
        shop.rig.clock.jump(jump_ms)
        draft = Draft(value=b"b", timestamp_us=right_us + 5_000_000)
        topic = shop.rig.broker.topic("orders")
        assert (
            await topic.publish(PUBLISHING, 0, memoryview(frame_drafts([draft])))
        ).base_offset == 1
        member = await shop.join(max_retries=0)
        (part,) = await shop.poll(member)
        await shop.settle("reject", part)
        await shop.rig.broker.dead_letters.idle()

        letters, _ = await read_all(shop.rig.broker.topic("orders.dlq"), 0)
        assert [one.value for one in letters] == [b"a", b"b"]
        await shop.rig.stop()

    run(main())


def test_a_clock_that_was_set_is_logged_once(capfd: pytest.CaptureFixture[str]) -> None:
    """By how much, and what follows from it."""

    async def main() -> None:
        rig = await begin()
        maintenance = Maintenance(rig.broker)
        for jump_ms in (0, HOUR_MS, 0, -HOUR_MS):
            rig.clock.jump(jump_ms)
            maintenance.look_at_the_wall()
        await rig.stop()

    run(main())
    assert capfd.readouterr().err.count("wall clock was set") == 2


def test_the_clocks_of_this_machine_agree() -> None:
    """Read beside each other, wall and steady time differ by less than what counts as set."""
    clock = SystemClock()

    assert all(clock.shift_ms() == 0 for _ in range(1_000))
    assert abs(clock.expiry_ms(HOUR_MS) - clock.now_ms()) < SECOND_MS
    assert clock.due_ms() <= clock.latest_ms() <= clock.now_ms()
