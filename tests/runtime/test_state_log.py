"""The state of machines comes back as it was when it was last durable."""

import itertools

import msgspec
import pytest

from goqueue.base.errors import InvalidNameError, StorageFailedError
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.record.message import Draft
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.state_log import STATE_TOPIC, StateLog
from goqueue.testing.disk import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run


class Added(msgspec.Struct, frozen=True, tag="added", array_like=True):
    """A counter went up."""

    amount: int


class Cleared(msgspec.Struct, frozen=True, tag="cleared", array_like=True):
    """A counter begins anew."""

    start: int


class Counter:
    """The smallest machine."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, event: Added | Cleared) -> None:
        match event:
            case Added(amount=amount):
                self.total += amount
            case Cleared(start=start):
                self.total = start

    def snapshot(self) -> list[Added | Cleared]:
        return [Cleared(self.total)]


async def add(state: StateLog, key: str, counter: Counter, amount: int) -> None:
    events = [Added(amount)]
    state.write(key, home="h", events=events, snapshot=counter.snapshot)
    counter.apply(events[0])
    await state.durable("h")


def keys(state: StateLog, prefix: str) -> list[str]:
    return sorted(key for number in state.partitions for key in state.keys(prefix, number))


def recovered(state: StateLog, key: str) -> int:
    counter = Counter()
    for event in state.replay(key, Added | Cleared, home="h"):
        counter.apply(event)
    return counter.total


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make snapshots frequent."""
    monkeypatch.setattr(state_records, "SLOTS", 4)
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 3)


def test_events_come_back_in_order_over_restarts() -> None:
    """Each machine gets its own events back, snapshots and all, again and again."""

    async def main() -> None:
        rig = Rig()
        expected = {"a/1": 0, "a/2": 0, "b/1": 0}
        for life in range(4):
            await rig.start()
            state = rig.broker.state
            assert keys(state, "a/") == (["a/1", "a/2"] if life else [])
            counters = {}
            for key, total in expected.items():
                counters[key] = Counter()
                for event in state.replay(key, Added | Cleared, home="h"):
                    counters[key].apply(event)
                assert counters[key].total == total
            for amount, key in itertools.product(range(1, 8), expected):
                await add(state, key, counters[key], amount)
                expected[key] += amount
            await rig.stop()

    run(main())


def test_a_forgotten_machine_stays_forgotten() -> None:
    """Its name may be used again and begins with nothing."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        counter = Counter()
        for amount in range(9):
            await add(rig.broker.state, "a/1", counter, amount)
        await rig.broker.state.forget("a/1", home="h")
        await rig.broker.state.forget("unknown", home="h")
        await rig.stop()
        await rig.start()
        assert keys(rig.broker.state, "") == []
        await add(rig.broker.state, "a/1", Counter(), 5)
        await rig.stop()
        await rig.start()

        assert recovered(rig.broker.state, "a/1") == 5
        await rig.stop()

    run(main())


async def live(rig: Rig, acked: list[int]) -> None:
    """Live through a whole life of one machine, noting what was durable."""
    await rig.start()
    counter = Counter()
    for amount in range(1, 12):
        await add(rig.broker.state, "a/1", counter, amount)
        acked.append(counter.total)
    await rig.stop()


async def die_at(operation: int) -> bool:
    """Die at an operation, look at what is left, and tell whether the life ended before."""
    rig = Rig()
    rig.die_in(operation)
    acked = [0]
    try:
        await live(rig, acked)
    except (CrashError, StorageFailedError):
        rig.recover_with(rig.disk.crash())
    else:
        return True
    await rig.start()

    total = recovered(rig.broker.state, "a/1")
    assert total in (acked[-1], acked[-1] + len(acked))
    await rig.stop()
    return False


def test_what_was_durable_survives_a_crash_at_any_operation() -> None:
    """After a crash the state is that of the last durable change, or of the one under way."""

    async def main() -> None:
        operation = 1
        while not await die_at(operation):
            operation += 1
        assert operation > 30

    run(main())


def test_what_follows_damage_is_dropped_and_the_rest_goes_on() -> None:
    """A missing change drops what follows it, says so, and the machine goes on from there."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        counter = Counter()
        for amount in (1, 2, 3):
            await add(rig.broker.state, "a/1", counter, amount)
        await rig.stop()
        number = partition_of_key(b"h", 3)
        path = f"logs/{STATE_TOPIC}/{number}/{0:020d}.log"
        file = rig.disk.open(path)
        raw = bytearray(file.read(0, file.size()))  # type: ignore[arg-type]
        middle = raw.find(b"GQ", raw.find(b"GQ") + 1) + 40
        raw[middle] ^= 0x40
        file.truncate(0)
        file.append([bytes(raw)])
        file.sync()
        await rig.start()
        state = rig.broker.state
        assert recovered(state, "a/1") == 1
        kept = Counter()
        kept.apply(Cleared(1))
        await add(state, "a/1", kept, 10)
        await rig.stop()
        await rig.start()

        assert recovered(rig.broker.state, "a/1") == 11
        await rig.stop()

    run(main())


def test_nobody_else_writes_the_internal_topic() -> None:
    """Publishing to, configuring or deleting it is refused; it is not listed."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        await add(rig.broker.state, "a/1", Counter(), 1)
        topic = rig.broker.topic(STATE_TOPIC)
        with pytest.raises(InvalidNameError):
            await topic.publish_all(PUBLISHING, [(0, memoryview(b""))])
        with pytest.raises(InvalidNameError):
            rig.broker.configure_topic(STATE_TOPIC, {"retention_ms": 1})
        with pytest.raises(InvalidNameError):
            rig.broker.delete_topic(STATE_TOPIC)
        (refused,) = await topic.publish_drafts(PUBLISHING, [(Draft(value=b"x"), None)])
        assert isinstance(refused, InvalidNameError)
        await rig.stop()

    run(main())
