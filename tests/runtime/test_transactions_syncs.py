"""Syncs that fail behind a commit that was answered: it stays whole over the restart (P1, P9)."""

import asyncio
from collections.abc import Callable

import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.core.tx.producer import ABORT, COMMIT
from goqueue.core.tx.states import TxState
from goqueue.runtime import broker as broker_module
from goqueue.runtime.tx import finisher as tx_endings
from goqueue.testing.disk import MemoryDisk
from tests.runtime.rig import run
from tests.runtime.test_transactions import Bank
from tests.runtime.test_transactions_adoption import child
from tests.runtime.test_transactions_pipelined import after

DATA_LOG = "logs/accounts/1/*.log"
ENDINGS = pytest.mark.parametrize(
    "ending", [MemoryDisk.kill, MemoryDisk.crash], ids=["kill", "power cut"]
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)
    monkeypatch.setattr(tx_endings, "FINISH_SECONDS", 0)


async def restart(bank: Bank, ending: Callable[[MemoryDisk], MemoryDisk]) -> None:
    await bank.abandon()
    bank.rig.recover_with(ending(bank.rig.disk))
    await bank.open()


async def try_often() -> None:
    """Let whatever is tried again have its turns."""
    for _ in range(50):
        await asyncio.sleep(0)


@ENDINGS
def test_an_answered_commit_is_whole_where_its_end_was_not_synced(
    ending: Callable[[MemoryDisk], MemoryDisk],
) -> None:
    """It is not noted as complete before every partition has its end on the disk."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        await bank.publish(mine, 1, "+1")
        bank.rig.disk.fail_sync(DATA_LOG)
        assert await bank.tx.end(mine, COMMIT)
        await try_often()
        assert bank.tx.find(mine).state is TxState.PREPARE_COMMIT
        assert await bank.read(1) == ["+1"]
        # The producer goes on elsewhere; the next commit does not complete this one.
        mine = after(mine)
        await bank.publish(mine, 0, "-2")
        assert await bank.tx.end(mine, COMMIT)
        await try_often()
        assert await bank.read(0) == ["-1", "-2"]
        with pytest.raises(StorageFailedError):
            await bank.init()

        await restart(bank, ending)
        assert await bank.read(0) == ["-1", "-2"]
        assert await bank.read(1) == ["+1"]
        await bank.settle_down()
        await bank.init()
        await bank.crash()
        assert await bank.read(0) == ["-1", "-2"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    run(main())


@ENDINGS
def test_what_an_adopter_committed_is_whole_likewise(
    ending: Callable[[MemoryDisk], MemoryDisk],
) -> None:
    """Neither the adopter nor the adopted is over before the disks know it."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await child(bank, "a", (0, "-1"), (1, "+1"))
        parent = await bank.begin(await bank.init("app"))
        await bank.tx.adopt(parent, [mine])
        bank.rig.disk.fail_sync(DATA_LOG)
        with pytest.raises(StorageFailedError):
            await bank.tx.end(parent, COMMIT)
        await try_often()
        assert bank.tx.find(parent).state is TxState.PREPARE_COMMIT

        await restart(bank, ending)
        await bank.settle_down()
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    run(main())


def test_an_abort_does_not_complete_a_commit_before_it() -> None:
    """Its own partitions know of it; one of the commit's does not."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        await bank.publish(mine, 1, "+1")
        bank.rig.disk.fail_sync(DATA_LOG)
        assert await bank.tx.end(mine, COMMIT)
        await try_often()
        mine = after(mine)
        await bank.publish(mine, 0, "-2")
        with pytest.raises(StorageFailedError):
            await bank.tx.end(mine, ABORT)
        assert await bank.read(0) == ["-1"]
        await bank.crash()
        await bank.settle_down()
        await bank.init()
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    run(main())


def test_a_failure_after_the_end_was_synced_keeps_nobody_waiting() -> None:
    """A partition that failed later has the end of the transaction: nothing is left to do."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 1, "+1")
        assert await bank.tx.end(mine, COMMIT)
        await bank.plain(1, "plain")
        bank.rig.disk.fail_sync(DATA_LOG)
        with pytest.raises(StorageFailedError):
            await bank.plain(1, "lost")
        await bank.init()
        assert not bank.tx.get("t").unfinished
        await bank.crash()
        assert await bank.read(1) == ["+1", "plain"]
        await bank.rig.stop()

    run(main())


def test_an_abort_stays_one_where_its_end_was_not_synced() -> None:
    """Nothing of it is seen, before and after the restart."""

    async def main() -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        await bank.publish(mine, 1, "+1")
        bank.rig.disk.fail_sync(DATA_LOG)
        with pytest.raises(StorageFailedError):
            await bank.tx.end(mine, ABORT)
        await try_often()
        await bank.crash()
        await bank.settle_down()
        await bank.init()
        assert await bank.read(0) == []
        assert await bank.read(1) == []
        await bank.rig.stop()

    run(main())
