"""Offsets that a transaction committed, and an operator who moves the group elsewhere (P9)."""

import pytest

from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.tx.producer import COMMIT, Identity
from goqueue.runtime import broker as broker_module
from tests.runtime.rig import run
from tests.runtime.test_transactions import Bank, join
from tests.runtime.test_transactions_pipelined import after

pytestmark = pytest.mark.usefixtures("both_places")

PLACE = TopicPartition(TopicName("accounts"), PartitionId(0))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


def committed(bank: Bank) -> int:
    return bank.rig.broker.consume.ledgers.of("g")[PLACE].ledger.committed


async def commit(bank: Bank, mine: Identity, offset: int) -> None:
    await bank.tx.add_offsets(mine, "g", {PLACE: Offset(offset)})
    await bank.tx.end(mine, COMMIT)


def test_a_reset_is_not_undone_by_a_commit_before_it() -> None:
    """Neither when the broker is sure that everybody was told, nor when it starts again."""

    async def main() -> None:
        bank = await Bank().open()
        await bank.plain(0, "1", "2", "3", "4")
        await join(bank)
        mine = await bank.begin(await bank.init())
        await commit(bank, mine, 2)
        mine = after(mine)
        await commit(bank, mine, 3)
        assert committed(bank) == 3
        await bank.rig.broker.consume.reset_offsets("g", {PLACE: Offset(1)})
        assert committed(bank) == 1
        assert not bank.tx.find(mine).unfinished
        await bank.crash()
        assert committed(bank) == 1
        await bank.settle_down()
        assert committed(bank) == 1
        await commit(bank, after(mine), 4)
        await bank.crash()
        assert committed(bank) == 4
        await bank.rig.stop()

    run(main())
