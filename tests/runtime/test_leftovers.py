"""What is deleted, gone or made up by a client leaves nothing in memory."""

import gc
import weakref
from typing import Any

import pytest
from pyroaring import BitMap64

from goqueue.base.errors import UnknownMemberError
from goqueue.base.ids import GroupId, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.member import JoinRequest
from goqueue.runtime import broker as broker_module
from goqueue.runtime.broker import Broker
from goqueue.runtime.maintenance import Maintenance
from goqueue.runtime.queue import lease_homes
from goqueue.runtime.queue.polling import PollLimits, pending
from goqueue.runtime.queue.settlements import Settlement
from tests.runtime.grants import POLLING, SETTLING
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume import Shop


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


def series(broker: Broker) -> set[str]:
    """The names and labels of everything that is measured."""
    metrics = broker.metrics
    lines = metrics.write(list(metrics.gather())).decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


def inside(thing: object, name: str) -> Any:
    """What a long-lived object holds: its length is what these tests are about."""
    return getattr(thing, name)


def test_a_deleted_topic_and_its_group_leave_nothing() -> None:
    """Partitions, ledgers, pieces that were read and series go with their topic and group."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        before = series(broker)
        alive: list[weakref.ref[Any]] = []
        for number in range(3):
            name, group = f"passing-{number}", f"group-{number}"
            topic = broker.create_topic(name, partitions=1, settings={"durability": "interval:1s"})
            await rig.publish(name, 0, [b"x"] * 10, producer="a")
            request = JoinRequest(client_id="c", topics=(name,), options={"ordering": "key"})
            _, member = await broker.groups.join(group, request)
            polled = await broker.consume.poll(
                POLLING, group, member, None, PollLimits(3, 1_000, 0)
            )
            nonce, place = polled.parts[0].nonce, polled.parts[0].partition
            assert broker.consume.ledgers.home_of(nonce, place) is not None
            (hosted,) = broker.consume.ledgers.of(group).values()
            alive += [weakref.ref(topic.partitions[0]), weakref.ref(hosted)]
            await broker.groups.delete(group, is_forced=True)
            broker.delete_topic(name)
            assert broker.consume.ledgers.home_of(nonce, place) is None
            del topic, hosted, polled
        maintenance = Maintenance(broker)
        maintenance.sync_due()
        maintenance.forget_strangers()
        rig.clock.advance(60_000)
        broker.consume.ledgers.tick()
        gc.collect()

        assert not [one() for one in alive if one() is not None]
        left = {one for one in series(broker) - before if "passing" in one or "group-" in one}
        assert not left
        polling = inside(broker.consume, "_polling")
        assert not any(inside(polling, one) for one in ("_turns", "_lines", "_acked_ms"))
        assert not inside(maintenance, "_synced_ms")
        assert not inside(broker, "_catalogue").catalog.deleted

    run(main())


def test_a_deleted_topic_is_no_longer_among_the_routes_of_dead_letters() -> None:
    """The counts by topic are of topics there are; the totals stay."""

    async def main() -> None:
        shop = await Shop().open()
        broker = shop.rig.broker
        member = await shop.join()
        await shop.publish("a")
        (part,) = await shop.poll(member)
        await shop.settle("reject", part)
        await broker.dead_letters.idle()
        meter = broker.dead_letters.meter
        assert meter.stats.routes_by_topic == {"orders": 1}
        broker.delete_topic("orders")

        assert meter.stats.routes_by_topic == {}
        assert meter.stats.total_routed == 1

    run(main())


def test_what_a_client_names_makes_no_series() -> None:
    """Settling in topics that the group does not read is refused, and measured nowhere."""

    async def main() -> None:
        shop = await Shop().open()
        broker = shop.rig.broker
        await shop.join()
        before = series(broker)
        for number in range(50):
            name = TopicPartition(TopicName(f"nonsense-{number}"), PartitionId(0))
            one = Settlement(partition=name, nonce=1, verb="ack", offsets=BitMap64([0]))
            (outcome,) = await broker.consume.settle(SETTLING, "g", None, [one])
            assert outcome.refused
        await shop.publish("a")

        assert not [one for one in series(broker) - before if "nonsense" in one]

    run(main())


def test_a_member_that_is_gone_is_not_remembered_by_its_poll() -> None:
    """A poll that waits while its member leaves does not bring back what was forgotten."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        broker = shop.rig.broker
        member = await shop.join()
        assert await shop.poll(member) == []
        polling = inside(broker.consume, "_polling")
        assert inside(polling, "_lines")
        group = broker.groups.get("g")
        await broker.groups.leave("g", member)
        with pytest.raises(UnknownMemberError):
            await inside(polling, "_poll_once")(
                pending(group, member, None, PollLimits(1, 1_000, 0))
            )

        assert not inside(polling, "_lines")
        assert not inside(polling, "_turns")

    run(main())


def test_only_live_leases_find_their_home_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of leases that are over the latest are known, those that are not over all."""
    monkeypatch.setattr(lease_homes, "LEASES_KNOWN_MAX", 20)

    async def main() -> None:
        shop = await Shop().open()
        member = await shop.join()
        await shop.publish("held")
        (held,) = await shop.poll(member)
        part = held
        for _ in range(60):
            await shop.publish("x")
            (part,) = await shop.poll(member)
            await shop.settle("ack", part)
        ledgers = shop.rig.broker.consume.ledgers

        homes = inside(ledgers, "_homes")
        known = inside(homes, "_homes") | inside(homes, "_older_homes")
        assert 10 <= len(known) <= 20
        assert ledgers.home_of(part.nonce, part.partition) is not None
        assert (
            ledgers.home_of(held.nonce, held.partition) is ledgers.of(GroupId("g"))[held.partition]
        )

    run(main())


def test_live_leases_are_all_known_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is one on leases that are over."""
    monkeypatch.setattr(lease_homes, "LEASES_KNOWN_MAX", 10)

    async def main() -> None:
        shop = await Shop().open()
        member = await shop.join()
        await shop.publish(*(f"message {number}" for number in range(100)))
        parts = [part for _ in range(100) for part in await shop.poll(member, limit=1)]
        ledgers = shop.rig.broker.consume.ledgers

        assert len(parts) == 100
        assert all(ledgers.home_of(part.nonce, part.partition) is not None for part in parts)

    run(main())
