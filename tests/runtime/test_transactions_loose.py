"""Transactions and messages that are not on the disk yet: all or nothing all the same (P9)."""

import asyncio

import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.core.tx.producer import COMMIT
from goqueue.runtime import broker as broker_module
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import run
from tests.runtime.test_transactions import Bank
from tests.runtime.test_transactions_adoption import child


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


async def loose_bank() -> Bank:
    bank = Bank()
    await bank.rig.start()
    settings = {"durability": "os"}
    bank.rig.broker.create_topic("accounts", partitions=2, settings=settings)
    return bank


def test_an_answered_commit_is_there_after_a_power_cut() -> None:
    """Also one that does not say how many messages it has."""

    async def main() -> None:
        bank = await loose_bank()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        await bank.publish(mine, 1, "+1")
        assert await bank.tx.end(mine, COMMIT)
        await bank.crash()
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    run(main())


def test_a_disk_that_fails_undoes_the_commit() -> None:
    """Half of it never reached the disk, so the other half is not seen after a power cut."""

    async def main() -> None:
        bank = await loose_bank()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        await bank.publish(mine, 1, "+1")
        bank.rig.disk.fail_sync("logs/accounts/1/*.log")
        with pytest.raises(StorageFailedError):
            await bank.tx.end(mine, COMMIT)
        await bank.crash()
        await bank.init()
        assert await bank.read(0) == []
        assert await bank.read(1) == []
        await bank.rig.stop()

    run(main())


def test_what_was_detached_is_there_after_a_power_cut() -> None:
    """Whoever adopts it commits all of it."""

    async def main() -> None:
        bank = await loose_bank()
        mine = await child(bank, "a", (0, "-1"), (1, "+1"))
        await bank.crash()
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        await bank.tx.end(parent, COMMIT)
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    run(main())


def test_a_request_under_way_is_waited_for() -> None:
    """Its connection may be broken, and its sender have its answer from another one."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init("a"))
        raw = bank.raw(mine, 0, "x")
        zombie = asyncio.create_task(bank.tx.publish(PUBLISHING, mine, "accounts", [(0, raw)]))
        await asyncio.sleep(0)
        assert not zombie.done()
        await bank.tx.detach(mine)
        assert zombie.done()
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        await bank.tx.end(parent, COMMIT)
        assert await bank.read(0) == ["x"]
        await bank.rig.stop()

    run(main())
