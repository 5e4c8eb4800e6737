"""Groups over compacted topics, and the state of groups in one."""

from random import Random

import pytest

from goqueue.core.producers.partitioner import partition_of_key
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.log import catalogue
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.testing.disk import CrashError
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume import Shop, texts
from tests.runtime.test_state_log import Counter, add, keys, recovered


@pytest.fixture(autouse=True)
def _small_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make snapshots, segments and compactions frequent."""
    monkeypatch.setattr(state_records, "SLOTS", 4)
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    monkeypatch.setattr(catalogue, "STATE_SEGMENT_BYTES", 4_096)


async def compact(rig: Rig, topic: str) -> int:
    results = await rig.broker.compactor.compact(rig.broker.topic(topic))
    rig.check_alive()
    assert [one.error for one in results if one.error] == []
    return sum(one.records_removed for one in results)


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_group_passes_over_what_compaction_removed(ordering: str) -> None:
    """What is gone is settled without being delivered, the rest is delivered once."""

    async def main() -> None:
        shop = await Shop().open(cleanup_policy="compact")
        member = await shop.join(mode="shared", ordering=ordering)
        await shop.publish("a0", "b1", "a2", "c3", "a4", "b5")
        (part,) = await shop.poll(member, limit=1)
        assert await compact(shop.rig, "orders") == 3
        await shop.publish("d6")
        await shop.settle("ack", part)
        seen: list[str] = []
        for _ in range(9):
            for part in await shop.poll(member, limit=2):
                seen += texts(part)
                await shop.settle("ack", part)

        assert shop.committed() == 7
        assert await shop.poll(member) == []
        await shop.restart()
        assert await shop.poll(member) == []
        assert shop.committed() == 7
        assert seen == ["c3", "a4", "b5", "d6"]

    run(main())


def test_a_group_that_comes_late_gets_the_last_of_each_key() -> None:
    """And nothing else, in the order of the log."""

    async def main() -> None:
        shop = await Shop().open(cleanup_policy="compact")
        await shop.publish(*[f"{'abc'[n % 3]}{n}" for n in range(30)])
        await compact(shop.rig, "orders")
        await shop.publish("z30")
        member = await shop.join()
        values: list[str] = []
        for _ in range(9):
            values += await shop.values(member)

        assert values == ["a27", "b28", "c29", "z30"]

    run(main())


def test_the_state_of_machines_survives_its_own_compaction() -> None:
    """Rounds of changes, compactions and restarts; machines that are gone stay gone."""

    async def main() -> None:
        rig = Rig()
        dice = Random(5)
        totals: dict[str, int] = {}
        removed = 0
        for life in range(6):
            await rig.start()
            state = rig.broker.state
            assert keys(state, "m/") == sorted(totals)
            counters = {key: Counter() for key in totals}
            for key, total in totals.items():
                counters[key].total = recovered(state, key)
                assert counters[key].total == total, (life, key)
            for _ in range(150):
                key = f"m/{dice.randrange(6)}"
                if dice.random() < 0.02 and key in totals:
                    await state.forget(key, home="h")
                    del totals[key], counters[key]
                    continue
                counter = counters.setdefault(key, Counter())
                await add(state, key, counter, dice.randrange(100))
                totals[key] = counter.total
            removed += await compact(rig, STATE_TOPIC)
            rig.clock.advance(dice.choice((0, 30 * 3_600_000)))
            rig.recover_with(rig.disk.crash() if life % 2 else rig.disk.kill())
        home = rig.disk.list_directory(f"logs/{STATE_TOPIC}/{partition_of_key(b'h', 2)}")

        assert removed > 400
        assert len([name for name in home if name.endswith(".log")]) <= 5

    run(main())


def test_state_survives_a_crash_at_any_operation_of_its_compaction() -> None:
    """Whatever is on the disk then, every machine has its total."""

    async def work(rig: Rig, operation: int) -> dict[str, int]:
        await rig.start()
        counters = {f"m/{n}": Counter() for n in range(3)}
        for number in range(60):
            key = f"m/{number % 3}"
            await add(rig.broker.state, key, counters[key], number)
        rig.die_in(operation)
        try:
            await compact(rig, STATE_TOPIC)
        except (CrashError, AssertionError):
            rig.recover_with(rig.disk.crash(torn=Random(operation)))
            await rig.start()
            return {key: counter.total for key, counter in counters.items()}
        return {}

    async def main() -> None:
        for operation in range(1, 500):
            rig = Rig()
            expected = await work(rig, operation)
            if not expected:
                assert operation > 20
                return
            found = {key: recovered(rig.broker.state, key) for key in expected}
            assert found == expected, operation

    run(main())
