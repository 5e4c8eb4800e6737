"""On a full disk publishers are refused, and consumers go on (promises.md)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from goqueue.base.errors import DiskFullError
from goqueue.runtime import ballast
from goqueue.runtime import broker as broker_module
from goqueue.storage.local import LocalDisk
from goqueue.testing.clock import FakeClock
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


def test_two_who_take_it_at_once_do_not_meet(tmp_path: Path) -> None:
    """The first member of a group and the first transaction may come together."""
    disk = LocalDisk(tmp_path)
    held = ballast.Ballast(disk, FakeClock(), size_bytes=SMALL)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            for taken in [threads.submit(held.take) for _ in range(4)]:
                taken.result()
            assert disk.exists(ballast.BALLAST_PATH)
            disk.remove(ballast.BALLAST_PATH)
