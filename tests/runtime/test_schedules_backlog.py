"""Many ticks that are due at once: worked out once, and no burst where the clock was set."""

import asyncio

import pytest

from goqueue.base.units import DAY_MS, MINUTE_MS, SECOND_MS
from goqueue.core.recurring.recurring import Event
from goqueue.core.recurring.ticks import Counting, Recent
from goqueue.runtime import broker as broker_module
from goqueue.runtime.machine import MachineHost
from goqueue.runtime.recurring.calendar import CronCalendar
from tests.runtime.rig import run
from tests.runtime.schedule_rig import TOPIC, begin, cron, restart, tick, ticks, view


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def test_the_ticks_to_make_up_for_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are; each is then published by itself."""
    recent, counts = CronCalendar.recent, 0

    def count(
        self: CronCalendar, *, after_ms: int, until_ms: int, count_max: int
    ) -> Counting[Recent]:
        nonlocal counts
        counts += 1
        return recent(self, after_ms=after_ms, until_ms=until_ms, count_max=count_max)

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("* * * * *", missed="all"))
        await restart(rig, down_ms=200 * MINUTE_MS)
        monkeypatch.setattr(CronCalendar, "recent", count)
        await tick(rig)
        found = await ticks(rig)

        assert len(set(found)) == len(found) == 200
        assert found == sorted(found)
        assert view(rig).state.missed == 0
        assert counts == 1
        await rig.stop()

    run(main())


def test_a_schedule_that_is_paused_while_its_ticks_are_counted() -> None:
    """Nothing is begun for it then."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("* * * * *", missed="all"))
        await restart(rig, down_ms=2 * DAY_MS)
        rig.broker.schedules.tick()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert view(rig).state.begun is None
        await rig.broker.schedules.pause("s")
        await rig.broker.schedules.settled()

        assert await ticks(rig) == []
        assert view(rig).state.begun is None
        await rig.stop()

    run(main())


def test_a_clock_that_is_set_forward_within_a_run_makes_no_burst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is seen before the next tick, not only when the schedules are woken again."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("* * * * *", missed="all"))
        durable, is_set = MachineHost.durable, False

        async def set_clock(self: MachineHost[Event]) -> None:
            nonlocal is_set
            if not is_set:
                is_set = True
                rig.clock.jump(DAY_MS)
            await durable(self)

        monkeypatch.setattr(MachineHost, "durable", set_clock)
        rig.clock.advance(MINUTE_MS)
        await tick(rig)

        assert is_set
        assert len(await ticks(rig)) == 2
        assert view(rig).state.missed == 1_000
        await rig.stop()

    run(main())


def test_ticks_behind_a_jump_of_the_clock_are_all_made_up_for() -> None:
    """While the topic is not there: what was jumped over counts once, what came then each time."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("* * * * *", missed="all"))
        rig.broker.delete_topic(TOPIC)
        rig.clock.jump(DAY_MS)
        await tick(rig)
        for _ in range(5):
            rig.clock.advance(MINUTE_MS)
            await tick(rig)
        rig.broker.create_topic(TOPIC, partitions=1)
        await tick(rig)

        assert len(await ticks(rig)) == 1 + 5
        rig.clock.advance(10 * SECOND_MS)
        await tick(rig)
        assert len(await ticks(rig)) == 1 + 5
        await rig.stop()

    run(main())


def test_a_clock_that_is_set_forward_and_back_lets_later_ticks_come() -> None:
    """Each of them, as its time comes: they were not jumped over in the end."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", cron("* * * * *", missed="all"))
        rig.broker.delete_topic(TOPIC)
        rig.clock.jump(DAY_MS)
        await tick(rig)
        rig.clock.jump(-DAY_MS)
        await tick(rig)
        rig.clock.advance(5 * MINUTE_MS)
        await tick(rig)
        rig.broker.create_topic(TOPIC, partitions=1)
        await tick(rig)

        assert len(await ticks(rig)) == 5
        await rig.stop()

    run(main())
