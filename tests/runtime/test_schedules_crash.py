"""One message for each tick: over crashes at every operation of the disk, and beside a model."""

import logging
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.errors import GoQueueError, ScheduleNotFoundError
from goqueue.base.units import SECOND_MS
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP
from goqueue.runtime import broker as broker_module
from goqueue.runtime.recurring.hosted_schedule import HostedSchedule
from goqueue.runtime.state_records import SLOTS
from goqueue.testing.disk import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run
from tests.runtime.schedule_rig import TOPIC, begin, every, restart, tick, ticks, view
from tests.runtime.schedule_rig import published as messages_of

EVERY_MS = 10 * SECOND_MS
OPERATIONS_MIN = 60


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the state small enough to crash in often."""
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


async def live(rig: Rig) -> None:
    """A short life: two schedules, ticks alone and in a row, a pause, a message beside them."""
    await rig.start()
    rig.broker.create_topic(TOPIC, partitions=2)
    await rig.broker.schedules.create("s", every(10, missed="all"))
    for step_s in (10, 10, 40, 10):
        rig.clock.advance(step_s * SECOND_MS)
        await tick(rig)
        rig.check_alive()
    await rig.broker.schedules.create("other", every(20, missed="all"))
    rig.clock.advance(20 * SECOND_MS)
    await tick(rig)
    rig.check_alive()
    await rig.stop()


async def die_at(operation: int, seed: int) -> bool:
    """Live, die at an operation, recover twice; return whether the life was over before."""
    rig = Rig()
    rig.die_in(operation)
    is_over = False
    try:
        await live(rig)
        is_over = True
    except (CrashError, GoQueueError):
        # An error that is told is told by a process that dies.
        with pytest.raises(CrashError):
            rig.check_alive()
    torn = Random(seed)
    for _ in range(2):
        rig.recover_with(rig.disk.crash(torn=torn) if seed % 2 else rig.disk.kill())
        rig.clock.advance(3 * SECOND_MS)
        rig.clock.restart()
        await rig.start()
        if TOPIC in rig.broker.topics:
            await tick(rig)
    rig.clock.advance(15 * SECOND_MS)
    await tick(rig)
    for name in ("s", "other"):
        await check(rig, name)
    await rig.stop()
    return is_over


async def check(rig: Rig, name: str) -> None:
    """Every tick since the schedule was made has its one message, in order within a partition."""
    try:
        state = view(rig, name).state
    except ScheduleNotFoundError:
        return
    found = sorted(
        (one.headers or {})["goqueue-tick"]
        for one in await messages_of(rig)
        if (one.headers or {})["goqueue-schedule"] == name.encode()
    )
    count = (rig.clock.now_ms() - state.created_ms) // state.spec.every_ms

    assert len(found) == count
    assert len(set(found)) == count
    assert (state.published, state.missed, state.begun) == (count, 0, None)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_tick_has_one_message_over_a_crash_at_any_operation(seed: int) -> None:
    """Killed or without power at every step of the disk, and once more right afterwards."""

    async def main() -> None:
        operation = 1
        while not await die_at(operation, seed):
            operation += 1

        assert operation > OPERATIONS_MIN

    run(main())


def test_a_tick_has_one_message_where_a_power_cut_took_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Begun behind messages that are lost, published before that place, and killed once more."""

    async def fail(*_: object) -> None:
        raise CrashError("the process dies here")

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic(TOPIC, partitions=1, settings={"durability": "os"})
        await rig.broker.schedules.create("s", every(10))
        for number in range(5):
            draft = Draft(value=b"%d" % number, timestamp_us=rig.clock.now_us())
            frames = memoryview(frame_drafts([draft], NO_STAMP))
            await rig.broker.topic(TOPIC).publish(PUBLISHING, 0, frames)
        rig.clock.advance(EVERY_MS)
        with monkeypatch.context() as patch:
            patch.setattr(HostedSchedule, "_publish", fail)
            await tick(rig)
        begun = view(rig).state.begun
        assert begun is not None
        rig.recover_with(rig.disk.crash())
        rig.clock.restart()
        await rig.start()
        assert rig.broker.topic(TOPIC).partition(0).log.end_offset < begun.place.from_offset
        with monkeypatch.context() as patch:
            patch.setattr(HostedSchedule, "_note", fail)
            await tick(rig)
        rig.recover_with(rig.disk.kill())
        rig.clock.restart()
        await rig.start()
        await tick(rig)

        assert len(await ticks(rig)) == 1
        assert view(rig).state.published == 1
        await rig.stop()

    run(main())


def test_a_schedule_outlives_many_changes_of_its_state() -> None:
    """More ticks than a machine has slots in the state log, with restarts in between."""

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(10))
        count = 2 * SLOTS // 3
        for number in range(count):
            rig.clock.advance(EVERY_MS)
            await tick(rig)
            if number % 50 == 0:
                await restart(rig)

        assert view(rig).state.published == count
        assert len(set(await ticks(rig))) == count
        await rig.stop()

    run(main())


class Model:
    """What a schedule of an interval should have published, worked out tick by tick."""

    def __init__(self, missed: str, now_ms: int) -> None:
        self.missed = missed
        self.last_ms = now_ms
        self.published: list[int] = []
        self.is_paused = False

    def look(self, now_ms: int) -> None:
        """Publish what is due."""
        if self.is_paused:
            return
        due = []
        while self.last_ms + EVERY_MS <= now_ms:
            self.last_ms += EVERY_MS
            due.append(self.last_ms)
        if self.missed == "all":
            self.published += due[-1_000:]
        elif due and (self.missed == "one" or now_ms - due[-1] <= 10 * SECOND_MS):
            self.published.append(due[-1])

    def resume(self, now_ms: int) -> None:
        """Begin again from now."""
        if self.is_paused:
            self.is_paused = False
            self.last_ms = now_ms


STEPS = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([1, 4, 9, 10, 11, 25, 60])),
    st.tuples(st.just("down"), st.sampled_from([0, 5, 12, 45, 3_600, 86_400])),
    st.tuples(st.just("set"), st.sampled_from([30, -30, 3_600, -3_600, 86_400, -86_400])),
    st.tuples(st.sampled_from(["pause", "resume", "kill"]), st.just(0)),
)


async def kill(rig: Rig) -> None:
    """End the process without a word; what it had written is there."""
    await rig.broker.schedules.stop()
    rig.recover_with(rig.disk.kill())
    rig.clock.restart()
    await rig.start()


async def take(rig: Rig, model: Model, step: str, seconds: int) -> None:
    """Take one step in both worlds."""
    match step:
        case "pass":
            rig.clock.advance(seconds * SECOND_MS)
        case "set":
            rig.clock.jump(seconds * SECOND_MS)
        case "pause":
            await rig.broker.schedules.pause("s")
            model.is_paused = True
        case "resume":
            await rig.broker.schedules.resume("s")
            model.resume(rig.clock.steady_ms())
        case "kill":
            await kill(rig)
        case _:
            await restart(rig, down_ms=seconds * SECOND_MS)
    # A start may find a wall clock that was set back: intervals go on from there.
    model.last_ms = min(model.last_ms, rig.clock.steady_ms())
    await tick(rig)
    model.look(rig.clock.steady_ms())


@settings(max_examples=60, deadline=None)
@given(missed=st.sampled_from(["skip", "one", "all"]), steps=st.lists(STEPS, max_size=12))
def test_ticks_are_those_of_a_naive_model(missed: str, steps: list[tuple[str, int]]) -> None:
    """Whatever happens between them: time, restarts, kills, pauses, a wall clock that is set.

    Intervals go by steady time, so setting the wall clock changes nothing until a start.
    """

    async def main() -> None:
        rig = await begin()
        await rig.broker.schedules.create("s", every(10, missed=missed))
        model = Model(missed, rig.clock.steady_ms())
        for step, seconds in steps:
            await take(rig, model, step, seconds)
            assert view(rig).state.last_ms == model.last_ms or model.is_paused
        found = await messages_of(rig)

        assert len(found) == len(model.published)
        assert view(rig).state.last_tick_ms == (model.published[-1] if model.published else None)
        await rig.stop()

    run(main())
