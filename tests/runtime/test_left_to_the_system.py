"""Topics with ``durability=os``: consumers do not wait for the disk either."""

import pytest

from goqueue.base.ids import TopicName
from goqueue.runtime import broker as broker_module
from goqueue.runtime.machine import AtPlace
from goqueue.runtime.state_log import STATE_TOPIC
from tests.runtime.rig import run
from tests.runtime.test_consume import ORDERS, Shop


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def state_syncs(shop: Shop) -> int:
    """Return how often the log of the state was synced."""
    state = shop.rig.broker.topics[TopicName(STATE_TOPIC)]
    return sum(partition.log.counters.syncs for partition in state.partitions)


def test_a_topic_left_to_the_system_waits_for_no_disk() -> None:
    """Leases and acks are answered without a sync; a power cut forgets them, a restart does not."""

    async def main() -> None:
        shop = await Shop().open(durability="os")
        await shop.publish("a1", "a2", "a3")
        member = await shop.join()
        (before,) = await shop.poll(member, limit=1)
        await shop.settle("ack", before)
        await shop.rig.broker.consume.durable("g", [AtPlace(ORDERS)])
        syncs = state_syncs(shop)
        (part,) = await shop.poll(member, limit=1)
        await shop.settle("ack", part)
        assert state_syncs(shop) == syncs
        assert shop.committed() == 2
        await shop.restart()
        assert shop.committed() == 2
        (last,) = await shop.poll(member)
        await shop.settle("ack", last)
        await shop.crash()

        assert shop.committed() == 2

    run(main())
