"""Triggers of recurring schedules: one message each, also where the caller is gone."""

import asyncio

import pytest

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.core.recurring.recurring import Event
from goqueue.runtime import broker as broker_module
from goqueue.runtime.machine import MachineHost
from goqueue.runtime.recurring.hosted_schedule import HostedSchedule
from tests.runtime.rig import Rig, run
from tests.runtime.schedule_rig import begin, every, published, restart, tick, view


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


async def begun_trigger(rig: Rig) -> asyncio.Task[object]:
    """Begin a trigger; return when it is noted that it begins."""
    task: asyncio.Task[object] = asyncio.create_task(rig.broker.schedules.trigger("s"))
    for _ in range(1_000):
        await asyncio.sleep(0)
        if view(rig).state.begun is not None:
            return task
    raise AssertionError("it is begun")


def test_a_trigger_whose_caller_is_gone_is_published_at_once() -> None:
    """And not beside the next trigger, however much later that comes."""

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("s", every(3_600))
        await schedules.pause("s")
        task = await begun_trigger(rig)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await schedules.settled()

        assert view(rig).state.begun is None
        assert len(await published(rig)) == 1
        await schedules.trigger("s")
        assert len(await published(rig)) == 2
        await rig.stop()

    run(main())


def test_a_stop_ends_a_trigger_and_the_next_start_sees_to_it() -> None:
    """Its caller has an answer, and the message is published once."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(3_600))
        task = await begun_trigger(rig)
        await rig.broker.schedules.stop()
        with pytest.raises(ShuttingDownError):
            await task
        with pytest.raises(ShuttingDownError):
            await rig.broker.schedules.trigger("s")
        await restart(rig)
        await tick(rig)

        assert view(rig).state.begun is None
        assert len(await published(rig)) == 1
        await rig.stop()

    run(main())


def test_a_trigger_that_could_not_be_noted_is_not_published_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also behind a message that was appended before: that one says nothing of this one."""

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("s", every(3_600))
        await schedules.trigger("s")
        durable, failed = MachineHost.durable, 0

        async def fail(self: MachineHost[Event]) -> None:
            nonlocal failed
            failed += 1
            if failed == 1:
                raise GoQueueError("not now")
            await durable(self)

        with monkeypatch.context() as patch:
            patch.setattr(MachineHost, "durable", fail)
            with pytest.raises(GoQueueError, match="not now"):
                await schedules.trigger("s")
        await tick(rig)

        assert (view(rig).state.begun, view(rig).state.refused) == (None, 1)
        assert len(await published(rig)) == 1
        await rig.stop()

    run(main())


def test_a_trigger_that_was_appended_and_not_noted_is_looked_for_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller hears of the error; the message stays one."""

    async def fail(*_: object) -> None:
        raise GoQueueError("not now")

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("s", every(3_600))
        with monkeypatch.context() as patch:
            patch.setattr(HostedSchedule, "_note", fail)
            with pytest.raises(GoQueueError, match="not now"):
                await schedules.trigger("s")
        await tick(rig)

        assert (view(rig).state.begun, view(rig).state.published) == (None, 1)
        assert len(await published(rig)) == 1
        await rig.stop()

    run(main())


def test_a_trigger_is_no_tick() -> None:
    """The last tick that is shown is one by the clock, and where the last message is says so."""

    async def main() -> None:
        rig = await begin()
        schedules = rig.broker.schedules
        await schedules.create("s", every(30))
        rig.clock.advance(7_000)
        before = (await schedules.trigger("s")).state
        rig.clock.advance(23_000)
        await tick(rig)
        ticked = view(rig).state
        rig.clock.advance(7_000)
        after = (await schedules.trigger("s")).state

        assert before.last_tick_ms is None
        assert (before.published, before.last_offset) == (1, 0)
        assert ticked.last_tick_ms == ticked.created_ms + 30_000
        assert after.last_tick_ms == ticked.last_tick_ms
        assert (after.published, after.last_offset) == (3, 2)
        await rig.stop()

    run(main())
