"""Damage to what is remembered of delayed messages keeps them hidden, and is said aloud."""

import pytest

from goqueue.core.log.scan import Walk
from goqueue.runtime import broker as broker_module
from goqueue.testing.disk import MemoryDisk
from tests.runtime.rig import run
from tests.runtime.test_consume import Shop

HOUR_US = 3_600_000_000
HOUR_MS = HOUR_US // 1_000
STATE_LOG = f"logs/__consumer_offsets/0/{0:020d}.log"
LOUD = "state cannot be read"


@pytest.fixture(autouse=True)
def _one_state_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)


def change_of_delays(disk: MemoryDisk, which: int) -> int:
    """Return where in the state log one of the changes of delays is."""
    file = disk.open(STATE_LOG)
    raw = file.read(0, file.size())  # type: ignore[arg-type]
    spans = list(Walk(raw))
    return [one.end - 1 for one in spans if b"delay/orders/0#" in raw[one.start : one.end]][which]


def later(shop: Shop, duration_ms: int) -> None:
    shop.rig.clock.advance(duration_ms)
    shop.rig.broker.topic("orders").partition(0).queue.advance()


async def damaged(shop: Shop, which: int) -> None:
    """Stop the broker, flip a bit in a change of delays, and start it again."""
    await shop.rig.stop()
    shop.rig.disk.flip_bits(STATE_LOG, [change_of_delays(shop.rig.disk, which)])
    await shop.rig.start()


def test_a_cancelled_message_stays_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    """The state log has lost it, and the queue's snapshot knows it all the same."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("cancelled", deliver_at_us=shop.rig.clock.now_us() + HOUR_US)
        await shop.rig.broker.delays.cancel("orders", 0, 0)
        await damaged(shop, 0)
        assert LOUD in capsys.readouterr().err
        member = await shop.join(auto_offset_reset="earliest")

        assert await shop.values(member) == []
        later(shop, 2 * HOUR_MS)
        assert await shop.values(member) == []
        found = await shop.rig.broker.delays.find("orders", 0, 0)
        assert found.state == "canceled"

    run(main())


@pytest.mark.parametrize("first_us", [HOUR_US, 3 * HOUR_US])
def test_a_message_with_another_time_keeps_it(first_us: int) -> None:
    """Nothing is early, also where its record says that it was due long ago."""

    async def main() -> None:
        shop = await Shop().open()
        start_us = shop.rig.clock.now_us()
        await shop.publish("moved", deliver_at_us=start_us + first_us)
        due_ms = (start_us + 2 * HOUR_US) // 1_000
        await shop.rig.broker.delays.reschedule("orders", 0, 0, due_ms=due_ms)
        await shop.restart()
        await damaged(shop, 0)
        member = await shop.join(auto_offset_reset="earliest")
        later(shop, HOUR_MS + 1_000)
        assert await shop.values(member) == []
        await shop.restart()
        assert await shop.values(member) == []

        later(shop, HOUR_MS)
        assert await shop.values(member) == ["moved"]

    run(main())


def test_a_change_that_is_lost_takes_no_later_ones_along() -> None:
    """Each of them stands for itself."""

    async def main() -> None:
        shop = await Shop().open()
        for value in ("first", "second", "third"):
            await shop.publish(value, deliver_at_us=shop.rig.clock.now_us() + HOUR_US)
        for offset in range(3):
            await shop.rig.broker.delays.cancel("orders", 0, offset)
        shop.rig.recover_with(shop.rig.disk.kill())
        shop.rig.disk.flip_bits(STATE_LOG, [change_of_delays(shop.rig.disk, 0)])
        await shop.rig.start()
        member = await shop.join(auto_offset_reset="earliest")

        assert await shop.values(member) == []
        later(shop, 2 * HOUR_MS)
        assert {"second", "third"}.isdisjoint(await shop.values(member))

    run(main())
