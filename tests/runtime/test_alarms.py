"""Alarms of leases and delays: as many as there are ledgers and queues, not one for each time."""

from typing import Any

import pytest

from goqueue.runtime import broker as broker_module
from goqueue.runtime.queue.ledger_alarms import ALARMS_MIN
from goqueue.runtime.schedule.timer import HEAP_MIN, DueTimer
from goqueue.testing.clock import FakeClock
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume import Shop


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def inside(thing: object, name: str) -> Any:
    """What a long-lived object holds: its length is what these tests are about."""
    return getattr(thing, name)


def test_alarms_do_not_pile_up() -> None:
    """A long lease and many short retries need one alarm, not one for each retry."""

    async def main() -> None:
        shop = await Shop().open()
        member = await shop.join(visibility_timeout="12h", max_retries=1_000)
        await shop.publish("long")
        await shop.poll(member)
        for _ in range(200):
            await shop.publish("short")
            (part,) = await shop.poll(member)
            await shop.settle("nack", part, delay_ms=10)
            shop.later(11)
            (part,) = await shop.poll(member)
            await shop.settle("ack", part)
        alarms = inside(inside(shop.rig.broker.consume.ledgers, "_alarms"), "_alarms")

        assert len(alarms) <= ALARMS_MIN + 1
        assert any(alarm[2].alarm_ms == alarm[0] for alarm in alarms)

    run(main())


def test_the_timer_of_delays_does_not_pile_up() -> None:
    """A far time and many near ones need an entry for each queue, not one for each delay."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        queue = broker.create_topic("later", partitions=1).partitions[0].queue
        clock = FakeClock()
        timer = DueTimer(clock)
        far_ms = clock.due_ms() + 86_400_000
        for _ in range(1_000):
            timer.arm(queue, far_ms)
            timer.arm(queue, clock.due_ms() + 5)
            clock.advance(10)
            timer.tick()
        timer.arm(queue, far_ms)

        assert len(inside(timer, "_heap")) <= HEAP_MIN + 3
        assert min(inside(timer, "_heap"))[0] == far_ms

    run(main())
