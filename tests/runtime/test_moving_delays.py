"""Delays whose state is unloaded, changed elsewhere, and loaded again: the last word counts."""

from random import Random

import pytest

from goqueue.base.errors import NotCoordinatorError, NotLeaderError
from goqueue.base.ids import Epoch, PartitionId, TopicName, TopicPartition
from goqueue.core.schedule import table as table_module
from goqueue.core.schedule.schedule import Event, Schedule
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.machine import MachineHost, StatePart
from goqueue.runtime.state_log import STATE_TOPIC
from tests.runtime.rig import Rig, run
from tests.runtime.test_leadership import Replicas
from tests.runtime.test_schedule import begin, publish, queue_of

pytestmark = pytest.mark.usefixtures("both_places")

KEY = "delay/t/0"


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


PLACE = TopicPartition(TopicName("t"), PartitionId(0))


def part_of(rig: Rig) -> StatePart:
    """Where the delays are kept."""
    return PLACE if rig.is_beside else rig.broker.state.partition_of("t")


async def unload(rig: Rig) -> None:
    part, coordinators = part_of(rig), rig.broker.coordinators
    if isinstance(part, int):
        await coordinators.unload(STATE_TOPIC, part)
    else:
        await coordinators.lose(part)


async def load(rig: Rig) -> None:
    part, coordinators = part_of(rig), rig.broker.coordinators
    if isinstance(part, int):
        await coordinators.load(STATE_TOPIC, part)
    else:
        await coordinators.gain(part)


class Elsewhere:
    """Another broker that has the delays meanwhile, and the same log."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        rig.broker.state.load(part_of(rig))
        life = rig.broker.topic("t").record.created_ms
        self.schedule = Schedule(life=life, now_ms=rig.clock.steady_ms())
        self.schedule.restore(queue_of(rig).schedule.dump())
        home = rig.broker.state.home_of("t", PLACE)
        self._host = MachineHost[Event](rig.broker.state, KEY, home=home, machine=self.schedule)
        self.schedule.load(self._host.replay(Event), now_ms=rig.clock.steady_ms())
        self.schedule.advance(rig.clock.steady_ms())

    async def change(self, offset: int, random: Random) -> None:
        """Cancel a message or give it another time."""
        if random.random() < 0.4:
            decision = self.schedule.cancel(offset)
        else:
            due_ms = self._rig.clock.now_ms() + random.randrange(60_000)
            decision = self.schedule.reschedule(offset, due_ms=due_ms)
        self._host.commit(decision.events)
        await self._host.durable()

    def leave(self) -> None:
        self._rig.broker.state.unload(part_of(self._rig))


def waiting(schedule: Schedule) -> dict[int, int]:
    return {one.offset: one.release_ms for one in schedule.page(skip=0, limit=1_000)}


@pytest.mark.parametrize("seed", range(10))
def test_what_was_changed_elsewhere_counts(seed: int) -> None:
    """Also over a restart; and each message that is not cancelled becomes due once."""

    async def main() -> None:
        random, rig = Random(seed), await begin()
        fired: list[int] = []
        queue_of(rig).watch_due(fired.extend)
        cancelled: list[int] = []
        queue_of(rig).watch_cancelled(cancelled.extend)
        await publish(rig, *[random.randrange(1_000, 60_000) for _ in range(40)])
        delays = rig.broker.delays
        for _ in range(4):
            for offset in random.sample(sorted(queue_of(rig).hidden), 3):
                if random.random() < 0.5:
                    await delays.cancel("t", 0, offset)
                else:
                    due_ms = rig.clock.now_ms() + random.randrange(60_000)
                    await delays.reschedule("t", 0, offset, due_ms=due_ms)
            await unload(rig)
            with pytest.raises((NotCoordinatorError, NotLeaderError)):
                await delays.cancel("t", 0, 0)
            elsewhere = Elsewhere(rig)
            for _ in range(3):
                rig.clock.advance(random.randrange(5_000))
                before = len(fired)
                delays.timer.tick()
                assert len(fired) == before, "nothing becomes due where it is not loaded"
                elsewhere.schedule.advance(rig.clock.steady_ms())
                if elsewhere.schedule.hidden:
                    await elsewhere.change(random.choice(list(elsewhere.schedule.hidden)), random)
            elsewhere.leave()
            await load(rig)
            elsewhere.schedule.advance(rig.clock.steady_ms())
            here = queue_of(rig).schedule
            assert waiting(here) == waiting(elsewhere.schedule)
            assert here.cancelled == elsewhere.schedule.cancelled
            assert here.pending == len(here.hidden)
            delays.timer.tick()
        rig.clock.advance(200_000)
        delays.timer.tick()
        never = set(queue_of(rig).cancelled)
        assert sorted(fired) == [offset for offset in range(40) if offset not in never]
        assert never == set(cancelled)
        await rig.stop()
        rig.go_on_with(rig.disk.kill())
        await rig.start()
        assert set(queue_of(rig).cancelled) == never
        assert not queue_of(rig).hidden

    run(main())


@pytest.mark.parametrize("swept", [False, True])
def test_a_change_that_was_cut_off_its_state_log_is_taken_back(
    *, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new leader never had it: the message is due as its record says."""
    if swept:
        monkeypatch.setattr(table_module, "_COMPACT_ROWS_MIN", 0)

    async def main() -> None:
        rig = await begin()
        await publish(rig, 40_000, 50_000, 60_000)
        delays, schedule = rig.broker.delays, queue_of(rig).schedule
        times = waiting(schedule)
        await delays.cancel("t", 0, 0)
        topic, part = rig.broker.topic("t"), part_of(rig)
        log_of = topic.make_state(0) if rig.is_beside else None
        if isinstance(part, int):
            topic = rig.broker.topic(STATE_TOPIC)
            log_of = topic.partition(part)
        assert log_of is not None
        end_offset = log_of.log.end_offset
        await delays.cancel("t", 0, 1)
        await delays.reschedule("t", 0, 2, due_ms=rig.clock.now_ms() + 1_000)

        await unload(rig)
        replicas = Replicas(log_of)
        replicas.high_watermark = end_offset
        log_of.leadership.follow(Epoch(1), replicas)
        await Replica(topic, log_of, rig.clock).truncate(end_offset, epoch=Epoch(1))
        log_of.leadership.lead(Epoch(2), None)
        await load(rig)

        assert list(queue_of(rig).cancelled) == [0]
        assert waiting(schedule) == {1: times[1], 2: times[2]}
        rig.clock.advance(51_000)
        assert list(queue_of(rig).advance()) == [1]
        assert (await delays.cancel("t", 0, 2)).offset == 2

    run(main())
