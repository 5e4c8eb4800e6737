"""Recurring schedules in a broker: one message for each tick, whatever comes in between."""

import msgspec
import pytest

from goqueue.base.errors import (
    NotCoordinatorError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    SchedulesFullError,
    SchemaViolationError,
    TopicNotFoundError,
)
from goqueue.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from goqueue.core.recurring.spec import HEADER_SCHEDULE, HEADER_TICK
from goqueue.core.schemas.schema import Schema, SchemaType
from goqueue.runtime import broker as broker_module
from goqueue.runtime.recurring import schedules as schedules_module
from goqueue.runtime.state_log import STATE_TOPIC
from tests.runtime.rig import Rig, run
from tests.runtime.schedule_rig import (
    TOPIC,
    begin,
    cron,
    every,
    pass_ms,
    published,
    restart,
    tick,
    ticks,
    view,
)

JUMPS_MS = (30 * SECOND_MS, -30 * SECOND_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)
jumps = pytest.mark.parametrize("jump_ms", JUMPS_MS)


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def test_every_tick_has_one_message() -> None:
    """With the name and the time of the tick in its headers, and what the schedule says."""

    async def main() -> None:
        rig = await begin(partitions=3)
        spec = msgspec.structs.replace(every(5), key=b"k", headers={"source": b"clock"}, priority=1)
        await rig.broker.schedules.create("s", spec)
        await pass_ms(rig, 21 * SECOND_MS)
        found = await published(rig)

        assert [one.value for one in found] == [b"v"] * 4
        assert {one.partition for one in found} == {found[0].partition}
        first = found[0]
        assert (first.key, first.priority) == (b"k", 1)
        assert first.headers == {
            "source": b"clock",
            HEADER_SCHEDULE: b"s",
            HEADER_TICK: b"2023-11-14T22:13:25.000000000Z",
        }
        state = view(rig).state
        assert (state.published, state.missed, state.refused) == (4, 0, 0)
        assert view(rig).next_ticks_ms[0] == state.created_ms + 25 * SECOND_MS
        await rig.stop()

    run(main())


def test_a_time_of_day_is_one_of_its_zone() -> None:
    """Nine o'clock in Berlin is nine o'clock in winter and in summer."""

    async def main() -> None:
        rig = Rig()
        rig.clock.jump(1_742_940_000_000 - rig.clock.now_ms())
        rig.clock.restart()
        await begin(rig)
        await rig.broker.schedules.create("s", cron("0 9 * * *", "Europe/Berlin"))
        await pass_ms(rig, 6 * DAY_MS, step_ms=10 * MINUTE_MS)

        assert await ticks(rig) == [
            "2025-03-26T08:00:00",
            "2025-03-27T08:00:00",
            "2025-03-28T08:00:00",
            "2025-03-29T08:00:00",
            "2025-03-30T07:00:00",
            "2025-03-31T07:00:00",
        ]
        await rig.stop()

    run(main())


@pytest.mark.parametrize(
    ("missed", "count"), [("skip", 0), ("one", 1), ("all", 288)], ids=["skip", "one", "all"]
)
def test_a_broker_that_was_down_for_a_day(missed: str, count: int) -> None:
    """Skipped, made up for once, or one message for each tick; then it goes on as before."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("*/5 * * * *", missed=missed))
        await pass_ms(rig, 10 * MINUTE_MS, step_ms=10 * SECOND_MS)
        before = await ticks(rig)
        await restart(rig, down_ms=DAY_MS)
        await tick(rig)
        found = await ticks(rig)
        await pass_ms(rig, 10 * MINUTE_MS, step_ms=10 * SECOND_MS)
        after = await ticks(rig)

        assert len(found) == len(before) + count
        assert len(after) == len(found) + 2
        assert sorted(set(after)) == after
        state = view(rig).state
        assert state.published + state.missed == len(before) + 288 + 2
        await rig.stop()

    run(main())


def test_what_all_makes_up_for_is_bounded() -> None:
    """The latest thousand are published, the others counted."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(60, missed="all"))
        await restart(rig, down_ms=2 * DAY_MS)
        await tick(rig)
        state = view(rig).state

        assert (state.published, state.missed) == (1_000, 1_880)
        found = await ticks(rig)
        assert found == sorted(set(found))
        assert state.last_ms == state.created_ms + 2 * DAY_MS
        await rig.stop()

    run(main())


def test_a_short_restart_misses_nothing_even_if_missed_ticks_are_skipped() -> None:
    """A tick is on time for ten seconds."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(60, missed="skip"))
        await pass_ms(rig, 59 * SECOND_MS)
        await restart(rig, down_ms=11 * SECOND_MS)
        await tick(rig)

        assert view(rig).state.published == 1
        await restart(rig, down_ms=61 * SECOND_MS)
        await tick(rig)
        assert (view(rig).state.published, view(rig).state.missed) == (1, 1)
        await rig.stop()

    run(main())


@jumps
@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_clock_that_is_set_repeats_no_time_of_day(jump_ms: int, missed: str) -> None:
    """Set back, the schedule waits for its next tick; set forward, no burst makes up for it."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("*/5 * * * *", missed=missed))
        await pass_ms(rig, 30 * MINUTE_MS, step_ms=5 * SECOND_MS)
        before = await ticks(rig)
        rig.clock.jump(jump_ms)
        await tick(rig)
        jumped = await ticks(rig)
        wait_ms = max(-jump_ms, 0)
        await pass_ms(rig, wait_ms - wait_ms % MINUTE_MS, step_ms=MINUTE_MS)
        waited = await ticks(rig)
        await pass_ms(rig, 30 * MINUTE_MS, step_ms=5 * SECOND_MS)
        after = await ticks(rig)

        assert len(before) == 6
        assert len(jumped) <= len(before) + 1
        assert len(waited) <= len(jumped) + 1
        assert len(after) >= len(waited) + 5
        assert after == sorted(set(after))
        await rig.stop()

    run(main())


@jumps
def test_an_interval_goes_by_no_wall_clock(jump_ms: int) -> None:
    """Thirty seconds are thirty seconds, however the wall clock is set meanwhile."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(30))
        await pass_ms(rig, 95 * SECOND_MS)
        rig.clock.jump(jump_ms)
        await pass_ms(rig, 90 * SECOND_MS)

        assert view(rig).state.published == 6
        await rig.stop()

    run(main())


@pytest.mark.parametrize("spec", [every(30), cron("* * * * *")], ids=["every", "cron"])
def test_a_clock_that_was_far_ahead_stops_nothing_for_long(spec: object) -> None:
    """Set back by years, over a restart or not, a schedule goes on from the clock as it is."""

    async def main() -> None:
        rig = await begin()
        assert isinstance(spec, type(every(1)))
        rig.clock.jump(4_000 * DAY_MS)
        await rig.broker.schedules.create("s", spec)
        await pass_ms(rig, 3 * MINUTE_MS, step_ms=5 * SECOND_MS)
        count = view(rig).state.published
        rig.clock.jump(-4_000 * DAY_MS)
        await pass_ms(rig, 3 * MINUTE_MS, step_ms=5 * SECOND_MS)
        assert view(rig).state.published >= count + 2
        await rig.stop()
        rig.clock.jump(-3_000 * DAY_MS)
        rig.clock.restart()
        await rig.start()
        count = view(rig).state.published
        await pass_ms(rig, 3 * MINUTE_MS, step_ms=5 * SECOND_MS)

        assert view(rig).state.published >= count + 2
        await rig.stop()

    run(main())


def test_paused_over_a_restart() -> None:
    """Nothing is published while it is paused, and nothing of that is made up for."""

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("s", every(30, missed="all"))
        await pass_ms(rig, 60 * SECOND_MS)
        paused = await schedules.pause("s")
        await pass_ms(rig, 60 * SECOND_MS)
        await restart(rig, down_ms=HOUR_MS)
        await tick(rig)

        assert paused.next_ticks_ms == []
        assert view(rig).state.is_paused
        assert len(await ticks(rig)) == 2
        resumed = await rig.broker.schedules.resume("s")
        assert resumed.next_ticks_ms[0] == rig.clock.now_ms() + 30 * SECOND_MS
        await pass_ms(rig, 60 * SECOND_MS)
        assert len(await ticks(rig)) == 4
        await rig.stop()

    run(main())


def test_a_message_may_be_published_beside_the_ticks() -> None:
    """Once for each wish, paused or not; the ticks stay where they are."""

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        made = await schedules.create("s", every(30))
        rig.clock.advance(7 * SECOND_MS)
        after = await schedules.trigger("s")
        await schedules.pause("s")
        await schedules.trigger("s")

        assert (after.state.last_partition, after.state.last_offset) == (0, 0)
        assert after.next_ticks_ms == made.next_ticks_ms
        assert len(await ticks(rig)) == 2
        await rig.stop()

    run(main())


def test_a_topic_that_is_gone_is_said_and_waited_for() -> None:
    """Its state stays, one line is logged, and the topic's return goes by the policy."""

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("s", every(30))
        await pass_ms(rig, 30 * SECOND_MS)
        rig.broker.delete_topic(TOPIC)

        assert view(rig).error == "topic not found: t"
        await pass_ms(rig, 5 * MINUTE_MS)
        assert view(rig).state.error == "topic not found: t"
        await restart(rig)
        await tick(rig)
        with pytest.raises(TopicNotFoundError):
            await rig.broker.schedules.trigger("s")
        rig.broker.create_topic(TOPIC, partitions=1)
        await tick(rig)
        state = view(rig).state
        assert (state.published, state.missed, state.error) == (2, 9, "")
        await rig.broker.schedules.delete("s")
        with pytest.raises(ScheduleNotFoundError):
            view(rig)
        await rig.stop()

    run(main())


def test_a_schema_that_refuses_the_value_is_the_last_error() -> None:
    """The tick is over without a message, and the next one tries again."""

    async def main() -> None:
        rig = await begin()
        rig.broker.configure_topic(TOPIC, {"schema_validation": "on"})
        text = '{"type": "object"}'
        await rig.broker.schemas.register("t-value", Schema(type=SchemaType.JSON, text=text))
        schedules = rig.broker.schedules
        await schedules.create("s", every(30))
        await pass_ms(rig, 60 * SECOND_MS)
        refused = view(rig).state
        with pytest.raises(SchemaViolationError):
            await schedules.trigger("s")
        rig.broker.configure_topic(TOPIC, {"schema_validation": "off"})
        await pass_ms(rig, 30 * SECOND_MS)
        state = view(rig).state

        assert (refused.published, refused.refused) == (0, 2)
        assert "t-value" in refused.error
        assert (state.published, state.refused, state.error) == (1, 3, "")
        await rig.stop()

    run(main())


def test_a_full_disk_is_waited_for() -> None:
    """The tick that was begun is published when there is room, once."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(30, missed="skip"))
        await pass_ms(rig, 30 * SECOND_MS)
        rig.disk.fill_up(0, path_glob="logs/t/*")
        await pass_ms(rig, 31 * SECOND_MS)
        stalled = view(rig).state
        rig.disk.make_room()
        await pass_ms(rig, 28 * SECOND_MS)
        state = view(rig).state

        assert stalled.begun is not None
        assert stalled.published == 1
        assert (state.published, state.error) == (2, "")
        await rig.stop()

    run(main())


def test_names_and_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is taken once; one schedule too many is refused with the limit."""
    monkeypatch.setattr(schedules_module, "SCHEDULES_MAX", 2)
    monkeypatch.setattr(schedules_module, "SCHEDULES_BYTES_MAX", 100)

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("a", every(30))
        with pytest.raises(ScheduleExistsError, match="schedule exists: a"):
            await schedules.create("a", every(60))
        with pytest.raises(SchedulesFullError, match="101 bytes; the limit is 100"):
            await schedules.create("b", every(30, value=b"x" * 100))
        await schedules.create("b", every(30))
        with pytest.raises(SchedulesFullError, match="2 schedules; the limit is 2"):
            await schedules.create("c", every(30))
        with pytest.raises(TopicNotFoundError):
            await schedules.create("d", msgspec.structs.replace(every(30), topic="none"))
        await schedules.delete("a")
        await schedules.create("c", every(30))
        page, total = schedules.page(skip=1, limit=5)

        assert ([one.name for one in page], total) == (["c"], 2)
        await rig.stop()

    run(main())


def test_a_schedule_of_the_same_name_begins_anew() -> None:
    """Nothing of the deleted one is left, not even its ticks."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(30))
        await pass_ms(rig, 60 * SECOND_MS)
        await rig.broker.schedules.delete("s")
        await rig.broker.schedules.create("s", every(10))
        await restart(rig)
        await pass_ms(rig, 10 * SECOND_MS)

        assert view(rig).state.published == 1
        assert len(await ticks(rig)) == 3
        await rig.stop()

    run(main())


def test_ticks_go_on_where_the_state_is_loaded() -> None:
    """Unloaded, a schedule answers nothing and publishes nothing; loaded again, what it missed."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(30))
        where = rig.broker.state.partition_of("s")
        await rig.broker.coordinators.unload(STATE_TOPIC, where)
        await pass_ms(rig, 60 * SECOND_MS)
        with pytest.raises(NotCoordinatorError):
            view(rig)
        with pytest.raises(NotCoordinatorError):
            rig.broker.schedules.page(skip=0, limit=1)
        assert await ticks(rig) == []
        await rig.broker.coordinators.load(STATE_TOPIC, where)
        await tick(rig)

        assert len(await ticks(rig)) == 1
        assert "goqueue_schedule_ticks_published_total 1.0" in rig.metrics_text()
        assert "goqueue_schedule_ticks_missed_total 1.0" in rig.metrics_text()
        assert 'goqueue_schedules{state="active"} 1.0' in rig.metrics_text()
        await rig.stop()

    run(main())
