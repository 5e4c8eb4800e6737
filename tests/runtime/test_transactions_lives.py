"""Who may do what outside a transaction, and how a producer goes on after a doubt (trap A11)."""

import pytest

from goqueue.base.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import build_batch
from goqueue.core.record.stamp import ProducerStamp
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.runtime import broker as broker_module
from goqueue.runtime.log.published import Published
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run
from tests.runtime.test_transactions import Bank, frames


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


def stamp_of(who: Identity) -> ProducerStamp:
    return ProducerStamp(ProducerId(who.producer_id), Epoch(who.epoch), Sequence(0))


def test_a_transactional_producer_publishes_in_transactions_only() -> None:
    """Its identity is refused outside them, also after a crash; nothing is written."""

    async def main() -> None:
        bank = await Bank().open()
        who = await bank.init()
        for _ in range(2):
            raw = frames(["outside"], 0, stamp_of(who), bank.rig.clock.now_us())
            (outcome,) = await bank.rig.broker.topic("accounts").publish_all(PUBLISHING, [(0, raw)])
            assert isinstance(outcome, InvalidTransactionStateError)
            with pytest.raises(InvalidTransactionStateError):
                bank.rig.broker.check_free(who.producer_id)
            await bank.crash()
        assert await bank.read(0) == []

    run(main())


def test_a_life_that_goes_on_does_not_fence_its_successor() -> None:
    """It asks by name of itself: answered again if the answer was lost, refused when fenced."""

    async def main() -> None:
        bank = await Bank().open()
        first = await bank.init()
        begun = await bank.begin(first)
        await bank.publish(begun, 0, "in doubt")
        life = await bank.tx.init("t", who=first)
        again = await bank.tx.init("t", who=first)
        assert (life.stamp.producer_id, life.stamp.epoch) == (first.producer_id, 1)
        assert again == life
        second = Identity(producer_id=life.stamp.producer_id, epoch=life.stamp.epoch)
        begun = await bank.begin(second)
        await bank.publish(begun, 0, "sure")
        with pytest.raises(ProducerFencedError):
            await bank.tx.init("t", who=first)
        await bank.tx.end(begun, COMMIT)
        assert await bank.read(0) == ["sure"]
        successor = await bank.init()
        with pytest.raises(ProducerFencedError):
            await bank.tx.init("t", who=second)
        await bank.tx.end(await bank.begin(successor), ABORT)

    run(main())


def test_a_dedup_id_and_a_transaction_exclude_each_other() -> None:
    """What is aborted was never there, so nothing may be taken for its repeat."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("once", partitions=1, settings={"dedup_window_ms": "5m"})
        life = await rig.broker.transactions.init("t")
        who = Identity(producer_id=life.stamp.producer_id, epoch=life.stamp.epoch)
        number = await rig.broker.transactions.begin(who)
        now_us = rig.clock.now_us()
        batch, column_set = build_batch(
            keys=[None], values=[b"a"], timestamps_us=[now_us], dedup_ids=[b"id"]
        )
        packed = pack_batch(
            batch,
            column_set=column_set,
            first_timestamp_us=now_us,
            last_timestamp_us=now_us,
            transaction=number,
        )
        raw = memoryview(packed.frame(life.stamp))
        (outcome,) = await rig.broker.transactions.publish(PUBLISHING, who, "once", [(0, raw)])
        assert isinstance(outcome, InvalidRequestError)
        plain = frames(["b"], number, life.stamp, now_us)
        (outcome,) = await rig.broker.transactions.publish(PUBLISHING, who, "once", [(0, plain)])
        assert isinstance(outcome, Published)

    run(main())
