"""On a full disk publishers are refused, and consumers go on (promises.md)."""

import pytest

from goqueue.base.errors import DiskFullError
from goqueue.runtime import ballast
from goqueue.runtime import broker as broker_module
from tests.runtime.rig import run
from tests.runtime.test_consume import Shop

SMALL = 20_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    monkeypatch.setattr(
        broker_module,
        "Ballast",
        lambda disk, clock: ballast.Ballast(disk, clock, size_bytes=SMALL),
    )


def test_acks_go_on_when_the_disk_is_full() -> None:
    """Polls and acks are durable on a full disk; publishing comes back with the room."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish(*["abc"] * 20)
        member = await shop.join()
        (part,) = await shop.poll(member, limit=5)
        shop.rig.disk.fill_up()
        await shop.settle("ack", part)
        with pytest.raises(DiskFullError):
            await shop.rig.publish("orders", 0, [b"no room"])
        for _ in range(3):
            (part,) = await shop.poll(member, limit=5)
            await shop.settle("ack", part)
        assert shop.committed() == 20
        shop.rig.disk.make_room()
        shop.rig.clock.advance(1_000)
        await shop.rig.publish("orders", 0, [b"room again"])

        assert shop.rig.disk.exists(ballast.BALLAST_PATH)
        await shop.crash()
        assert shop.committed() == 20
        assert await shop.values(member) == ["room again"]
        await shop.rig.stop()

    run(main())
