"""A broker that may open no more files, or has no more room: refused for now, not for good."""

import asyncio
from pathlib import Path

import pytest

from goqueue.base.errors import OverloadedError
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.tx.producer import COMMIT
from goqueue.runtime import broker as broker_module
from goqueue.runtime.broker import Broker
from goqueue.storage.local import LocalDisk
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import read_all, run
from tests.runtime.test_transactions import Bank
from tests.storage.files import no_more_files


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)
    monkeypatch.setattr(broker_module, "TX_STATE_PARTITIONS", 1)


def test_a_segment_that_cannot_be_begun_for_want_of_files(tmp_path: Path) -> None:
    """The partition refuses what needs a new segment, and takes it when files are to be had."""

    async def main() -> None:
        broker = Broker(BrokerConfig(), LocalDisk(tmp_path))
        await broker.start()
        broker.create_topic("orders", partitions=1, settings={"segment_bytes": 4_096})

        async def publish(number: int) -> object:
            draft = Draft(value=b"%d" % number + bytes(1_500), timestamp_us=broker.clock.now_us())
            (outcome,) = await broker.topic("orders").publish_drafts(PUBLISHING, [(draft, 0)])
            return outcome

        for number in range(2):
            assert isinstance(await publish(number), tuple)
        with no_more_files():
            for _ in range(3):
                assert isinstance(await publish(2), OverloadedError)
        assert isinstance(await publish(2), tuple)
        await broker.stop()

        broker = Broker(BrokerConfig(), LocalDisk(tmp_path))
        await broker.start()
        messages, gaps = await read_all(broker.topic("orders"), 0)
        assert [(message.value or b"")[:1] for message in messages] == [b"0", b"1", b"2"]
        assert gaps == []
        await broker.stop()

    run(main())


def test_a_decided_commit_is_carried_out_on_a_full_disk() -> None:
    """However little room is left: ends of transactions may use what is kept for state."""

    async def commit(bytes_free: int) -> None:
        bank = await Bank().open()
        mine = await bank.begin(await bank.init())
        await bank.publish(mine, 0, "-1")
        await bank.publish(mine, 1, "+1")
        bank.rig.disk.fill_up(bytes_free)
        assert await bank.tx.end(mine, COMMIT)
        assert await bank.read(0) == ["-1"]
        assert await bank.read(1) == ["+1"]
        await bank.rig.stop()

    async def main() -> None:
        for bytes_free in range(0, 800, 20):
            await commit(bytes_free)
            await asyncio.sleep(0)

    run(main())
