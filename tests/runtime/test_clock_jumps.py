"""A wall clock that is set while the broker runs, with everything pending that waits for a time."""

import pytest

from goqueue.base.units import DAY_MS, HOUR_MS, SECOND_MS
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime.queue.visibility import PartitionVisibility
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

DELAY_MS = 2 * SECOND_MS
JUMPS_MS = (30 * SECOND_MS, -30 * SECOND_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)
jumps = pytest.mark.parametrize("jump_ms", JUMPS_MS)


async def begin(**settings: object) -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("t", partitions=1, settings=settings)
    return rig


async def send(rig: Rig, delay_ms: int, *, clock_ms: int | None = None) -> int:
    """Publish a delayed message as a client with this clock does; return its offset."""
    now_us = rig.clock.now_us() if clock_ms is None else clock_ms * 1_000
    draft = Draft(value=b"v", timestamp_us=now_us, deliver_at_us=now_us + delay_ms * 1_000)
    frames = memoryview(frame_drafts([draft]))
    return (await rig.broker.topic("t").publish(PUBLISHING, 0, frames)).base_offset


def queue_of(rig: Rig) -> PartitionVisibility:
    return rig.broker.topic("t").partition(0).queue


def pass_time(rig: Rig, duration_ms: int) -> None:
    """Let time pass and the timer of delays notice."""
    rig.clock.advance(duration_ms)
    rig.broker.delays.timer.tick()


@jumps
@pytest.mark.parametrize("is_remote", [False, True])
def test_new_delays_are_on_time_after_the_clock_was_set(*, jump_ms: int, is_remote: bool) -> None:
    """Two seconds are two seconds, by a client's clock that was set as ours and one that was not.

    The only delay that takes longer: our clock was set back, so it shows the time later.
    """

    async def main() -> None:
        rig = await begin()
        old = await send(rig, 10 * SECOND_MS)
        pass_time(rig, 5 * SECOND_MS)
        rig.clock.jump(jump_ms)
        new = await send(rig, DELAY_MS, clock_ms=rig.clock.steady_ms() if is_remote else None)

        assert set(queue_of(rig).hidden) == {old, new}
        pass_time(rig, DELAY_MS - 1)
        assert set(queue_of(rig).hidden) == {old, new}
        pass_time(rig, 1)
        assert set(queue_of(rig).hidden) == {old}
        pass_time(rig, 3 * SECOND_MS)
        assert set(queue_of(rig).hidden) == ({old} if jump_ms < 0 else set())
        rig.clock.jump(-jump_ms)
        rig.broker.delays.timer.tick()
        assert not queue_of(rig).hidden
        await rig.stop()

    run(main())


@jumps
def test_what_was_sent_between_two_jumps_waits_for_its_whole_delay(jump_ms: int) -> None:
    """Set and set right again: a delay from in between is not cut short by either."""

    async def main() -> None:
        rig = await begin()
        rig.clock.jump(jump_ms)
        offset = await send(rig, DELAY_MS)
        pass_time(rig, SECOND_MS)
        rig.clock.jump(-jump_ms)
        rig.broker.delays.timer.tick()

        assert list(queue_of(rig).hidden) == [offset]
        pass_time(rig, SECOND_MS - 1)
        assert list(queue_of(rig).hidden) == [offset]
        # By a clock that was set right from ahead, the message asks for a time that is to come.
        pass_time(rig, 1 + max(jump_ms, 0))
        assert not queue_of(rig).hidden
        await rig.stop()

    run(main())


@jumps
def test_a_new_time_is_kept_whatever_the_clock_shows(jump_ms: int) -> None:
    """Rescheduled after a jump, a message comes when it was told to, and says how long that is."""

    async def main() -> None:
        rig = await begin()
        offset = await send(rig, HOUR_MS)
        rig.clock.jump(jump_ms)
        due_ms = rig.clock.due_ms() + DELAY_MS
        moved = await rig.broker.delays.reschedule("t", 0, offset, due_ms=due_ms)

        assert moved.due_ms == due_ms
        assert moved.release_ms - rig.clock.steady_ms() == DELAY_MS
        pass_time(rig, DELAY_MS - 1)
        assert list(queue_of(rig).hidden) == [offset]
        pass_time(rig, 1)
        assert not queue_of(rig).hidden
        await rig.stop()

    run(main())


@jumps
def test_a_restart_trusts_the_wall_clock(jump_ms: int) -> None:
    """A new process cannot know that the clock was set: what it shows is the time."""

    async def main() -> None:
        rig = await begin()
        offset = await send(rig, 10 * SECOND_MS)
        await rig.stop()
        rig.clock.jump(jump_ms)
        rig.clock.restart()
        await rig.start()

        assert list(queue_of(rig).hidden) == ([offset] if jump_ms < 0 else [])
        new = await send(rig, DELAY_MS)
        pass_time(rig, DELAY_MS - 1)
        assert new in queue_of(rig).hidden
        pass_time(rig, 1)
        assert new not in queue_of(rig).hidden
        pass_time(rig, max(-jump_ms, 0) + 8 * SECOND_MS)
        assert not queue_of(rig).hidden
        await rig.stop()

    run(main())
