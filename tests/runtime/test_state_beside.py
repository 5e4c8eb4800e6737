"""Ledgers, delays and dead letters beside their partitions: loaded and unloaded with them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from goqueue.base.errors import (
    GoQueueError,
    NotCoordinatorError,
    NotLeaderError,
    StorageFailedError,
)
from goqueue.base.ids import Offset, PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.events import DEAD
from goqueue.core.delivery.ledger import OUTCOME_INDEX
from goqueue.core.delivery.runs import set_of
from goqueue.core.dlq.record import read_story
from goqueue.runtime import broker as broker_module
from goqueue.runtime import state_records
from goqueue.runtime.log import topic_states
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.storage.verify import Verification
from goqueue.testing.conservation_checker import ConservationChecker
from goqueue.testing.disk import CrashError
from tests.runtime.dlq_rig import Pauses, messages
from tests.runtime.grants import NEXT, POLLING, SETTLING
from tests.runtime.rig import Rig, run
from tests.runtime.test_consume import ORDERS, Shop, texts

OTHER = TopicPartition(TopicName("orders"), PartitionId(1))


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rig, "is_beside", True)
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)
    monkeypatch.setattr(state_records, "SLOTS", 5)
    monkeypatch.setattr(topic_states, "STATE_LOG_SEGMENT_BYTES", 4_096)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def settlement(part: Leased, verb: str = "ack") -> Settlement:
    offsets = set_of(part.order)
    return Settlement(partition=part.partition, nonce=part.nonce, verb=verb, offsets=offsets)


async def lose(shop: Shop, *places: TopicPartition) -> None:
    for place in places or (ORDERS,):
        await shop.rig.broker.coordinators.lose(place)


async def gain(shop: Shop, *places: TopicPartition) -> None:
    for place in places or (ORDERS,):
        await shop.rig.broker.coordinators.gain(place)


def state_partition(shop: Shop, group: str = "g") -> int:
    return shop.rig.broker.state.partition_of(group)


# Files.


def test_a_state_log_is_made_at_first_use_and_goes_with_its_topic() -> None:
    """A partition that no group reads has none; who replicates it hears of each."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        topic, made = shop.rig.broker.topic("orders"), list[Partition]()
        topic.states.on_made = made.append
        assert shop.rig.disk.list_directory("state") == []
        await shop.publish("a0")
        await shop.rig.broker.delays.cancel("orders", 1, await delayed(shop))
        assert topic.state_of(0) is None
        assert made == [topic.state_of(1)]
        assert made[0] is topic.make_state(1)
        await shop.restart()
        reopened = shop.rig.broker.topic("orders").state_of(1)
        assert reopened is not None
        assert reopened.log.end_offset == 1
        shop.rig.broker.delete_topic("orders")

        assert shop.rig.disk.list_directory("state") == []
        assert shop.rig.disk.list_directory("deleting") == []
        shop.rig.broker.create_topic("orders", partitions=2)
        assert shop.rig.broker.topic("orders").state_of(1) is None
        await shop.rig.stop()

    run(main())


async def delayed(shop: Shop) -> int:
    """Publish a message for later into the second partition; return its offset."""
    later_us = shop.rig.clock.now_us() + 3_600_000_000
    await shop.publish("d0", partition=1, deliver_at_us=later_us)
    return shop.rig.broker.topic("orders").partition(1).log.end_offset - 1


def test_verify_knows_state_logs() -> None:
    """They are checked as any log; one beside no partition is named."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0")
        member = await shop.join()
        await shop.poll(member)
        await shop.rig.stop()
        disk = shop.rig.disk
        check = Verification(disk)
        checked = sum(check.run())
        assert check.report.problems == 0, check.report
        assert checked == check.total_bytes()
        disk.make_directory("state/orders/7")
        disk.make_directory("state/unknown/0")
        check = Verification(disk)
        list(check.run())

        assert check.report.problems == 2

    run(main())


# Coming and going.


def test_who_does_not_lead_a_partition_decides_nothing_about_it() -> None:
    """Polls, settlements, offsets and delays are refused, to be asked again elsewhere."""

    async def main() -> None:
        shop = await Shop().open()
        broker = shop.rig.broker
        await shop.publish("a0", "b1")
        member = await shop.join()
        (part,) = await shop.poll(member, limit=1)
        await lose(shop)
        attempts: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: shop.poll(member),
            lambda: shop.settle("ack", part),
            lambda: broker.consume.reset_offsets("g", {ORDERS: Offset(0)}),
            lambda: broker.delays.cancel("orders", 0, 0),
        ]
        for attempt in attempts:
            with pytest.raises(NotLeaderError):
                await attempt()
        with pytest.raises(NotLeaderError):
            broker.consume.ledgers.home_of(part.nonce, ORDERS)
        assert list(broker.consume.ledgers) == []
        await gain(shop)

        assert broker.consume.ledgers.home_of(part.nonce, ORDERS) is not None
        assert await shop.values(member) == ["b1"]
        assert (await shop.settle("ack", part)).refused == []
        assert shop.committed() == 1
        await shop.rig.stop()

    run(main())


def test_leases_have_their_whole_time_again() -> None:
    """Nothing expires where it is not loaded, nor right behind a load."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0")
        member = await shop.join(session_timeout="30m")
        (part,) = await shop.poll(member)
        await lose(shop)
        shop.later(100_000)
        await gain(shop)
        shop.later(29_000)
        assert await shop.poll(member) == []
        shop.later(1_000)
        shop.later(1_000)
        (again,) = await shop.poll(member)

        assert again.failures == {0: 1}
        assert (await shop.settle("ack", part)).refused
        await shop.rig.stop()

    run(main())


def test_a_poll_that_waits_hears_of_a_partition_that_is_led_here_now() -> None:
    """It asked for both, and one of them comes later."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        await shop.publish("a0")
        member = await shop.join()
        await lose(shop)
        demand = PollLimits(10, 1_000_000, 60_000)
        consume = shop.rig.broker.consume
        poll = asyncio.ensure_future(consume.poll(POLLING, "g", member, None, demand))
        await asyncio.sleep(0)
        await gain(shop)

        assert [texts(part) for part in (await poll).parts] == [["a0"]]
        await shop.rig.stop()

    run(main())


def test_a_ledger_waits_for_its_group() -> None:
    """Loaded before the group is known it serves nobody, and does so afterwards."""

    async def main() -> None:
        shop = await Shop().open()
        coordinators = shop.rig.broker.coordinators
        await shop.publish("a0", "a1")
        member = await shop.join(ordering="key")
        (part,) = await shop.poll(member)
        await lose(shop)
        await coordinators.unload(STATE_TOPIC, state_partition(shop))
        await gain(shop)
        with pytest.raises(NotCoordinatorError):
            await shop.settle("ack", part)
        with pytest.raises(NotCoordinatorError):
            shop.rig.broker.consume.ledgers.home_of(part.nonce, ORDERS)
        await coordinators.load(STATE_TOPIC, state_partition(shop))

        assert await shop.poll(member) == [], "the first of its key is leased"
        assert (await shop.settle("ack", part)).refused == []
        assert await shop.values(member) == ["a1"]
        await shop.rig.stop()

    run(main())


def test_a_group_made_anew_has_nothing_of_the_old_one() -> None:
    """It was deleted while the partition was elsewhere, in the same millisecond."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0", "b1")
        member = await shop.join()
        (part,) = await shop.poll(member)
        await shop.settle("ack", part)
        await lose(shop)
        await shop.rig.broker.groups.delete("g", is_forced=True)
        member = await shop.join()
        await gain(shop)

        assert await shop.values(member) == ["a0", "b1"]
        await shop.crash()
        assert len(list(shop.rig.broker.consume.ledgers)) == 1
        await shop.rig.stop()

    run(main())


def test_a_deleted_group_leaves_nothing_beside() -> None:
    """Neither where its ledger is loaded, nor where it comes later."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        await shop.publish("a0")
        await shop.publish("b0", partition=1)
        member = await shop.join()
        assert len(await shop.poll(member)) == 2
        await lose(shop, OTHER)
        await shop.rig.broker.groups.delete("g", is_forced=True)
        await gain(shop, OTHER)
        ledgers = shop.rig.broker.consume.ledgers

        assert list(ledgers) == ledgers.asleep == []
        assert shop.rig.broker.state.keys("delivery/", ORDERS) == []
        assert shop.rig.broker.state.keys("delivery/", OTHER) == []
        await shop.rig.stop()

    run(main())


def test_what_members_held_that_went_meanwhile_is_taken_back() -> None:
    """The partition was elsewhere when its member left."""

    async def main() -> None:
        shop = await Shop().open()
        await shop.publish("a0")
        member = await shop.join(backoff="0s")
        await shop.poll(member)
        await lose(shop)
        await shop.rig.broker.groups.leave("g", member)
        await gain(shop)
        member = await shop.join("b")

        assert await shop.values(member) == ["a0"]
        await shop.rig.stop()

    run(main())


# Several partitions.


async def both(shop: Shop, member: str) -> list[Leased]:
    await shop.publish("a0")
    await shop.publish("b0", partition=1)
    parts = await shop.poll(member)
    assert {part.partition for part in parts} == {ORDERS, OTHER}
    return parts


def test_a_settlement_waits_for_every_state_log_it_touched() -> None:
    """One that fails is not acknowledged, whichever it is."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        member = await shop.join()
        parts = await both(shop, member)
        shop.rig.disk.fail_sync("state/orders/1/*")
        with pytest.raises(StorageFailedError):
            await shop.rig.broker.consume.settle(
                SETTLING, "g", None, [settlement(part) for part in parts]
            )

    run(main())


def test_a_settlement_for_two_leaders_changes_nothing() -> None:
    """One of its partitions is led elsewhere: the whole request is to be cut."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        member = await shop.join()
        parts = await both(shop, member)
        await lose(shop, OTHER)
        with pytest.raises(NotLeaderError):
            await shop.rig.broker.consume.settle(
                SETTLING, "g", None, [settlement(part) for part in parts]
            )

        assert shop.committed() == 0
        await shop.rig.stop()

    run(main())


def test_the_next_message_of_another_partition_waits_for_both_logs() -> None:
    """The ack is in one state log, the lease in another."""

    async def main() -> None:
        shop = await Shop().open(partitions=2)
        consume = shop.rig.broker.consume
        member = await shop.join()
        await shop.publish("a0", "a1")
        demand = PollLimits(1, 1_000_000, 0)
        begun = await consume.begin_next(NEXT, "g", member, [], demand)
        assert begun.ready is not None
        await begun.ready
        await shop.publish("b0", partition=1)
        done = [settlement(part) for part in begun.poll.parts]
        seen: set[TopicPartition] = set()
        for _ in range(3):
            begun = await consume.begin_next(NEXT, "g", member, done, demand)
            assert begun.ready is not None
            await begun.ready
            logs = [shop.rig.broker.topic("orders").state_of(number) for number in (0, 1)]
            assert all(one.log.durable_offset == one.log.end_offset for one in logs if one)
            assert [one.refused for one in begun.settling.outcomes] == [[]] * len(done)
            done = [settlement(part) for part in begun.poll.parts]
            seen |= {part.partition for part in begun.poll.parts}

        assert seen == {ORDERS, OTHER}
        await shop.rig.stop()

    run(main())


# Crashes.


class Story:
    """Leases, acks, nacks, dead letters and a cancelled delay, over a crash at any operation."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.rig = self.shop.rig
        self.checker = ConservationChecker()
        self.is_cancelled = False

    async def live(self) -> None:
        shop = await self.shop.open(partitions=2)
        self.rig.broker.dead_letters.sleep = Pauses(self.rig)
        for number in range(2):
            place = TopicPartition(TopicName("orders"), PartitionId(number))
            await self.publish(*[f"k{row}" for row in range(4)], partition=number)
            self.checker.sent(place, range(4))
        later_us = self.rig.clock.now_us() + 60_000_000
        await self.publish("k4", partition=1, deliver_at_us=later_us)
        member = await shop.join(max_retries=0)
        for part in await shop.poll(member):
            offsets = set_of(part.order)
            self.checker.delivered("g", part.partition, offsets, part.failures)
            await self.ack(part, [0, 1])
            await shop.settle("nack", part, [2])
            await shop.settle("reject", part, [3])
        await self.rig.broker.delays.cancel("orders", 1, 4)
        self.is_cancelled = True
        await self.rig.broker.dead_letters.idle()
        self.rig.check_alive()

    async def publish(self, *values: str, partition: int, **fields: Any) -> None:
        try:
            await self.shop.publish(*values, partition=partition, **fields)
        except AssertionError:
            self.rig.check_alive()
            raise

    async def ack(self, part: Leased, offsets: list[int]) -> None:
        outcome = await self.shop.settle("ack", part, offsets)
        assert outcome.refused == []
        self.checker.settled("g", part.partition, offsets)

    async def judge(self) -> None:
        """Start again and finish; every message ended once."""
        rig = self.rig
        rig.recover_with(rig.disk.crash())
        await rig.start()
        rig.broker.dead_letters.sleep = Pauses(rig)
        if "orders" not in rig.broker.topics:
            return
        self.compare()
        member = await self.shop.join("z")
        for _ in range(5):
            rig.clock.advance(100_000)
            rig.broker.groups.sweep()
            rig.broker.consume.ledgers.tick()
            await rig.broker.dead_letters.idle()
            rig.broker.delays.timer.tick()
            member = await self.shop.join("z")
            for part in await self.shop.poll(member):
                offsets = set_of(part.order)
                assert not (self.is_cancelled and part.partition == OTHER and 4 in offsets)
                self.checker.delivered("g", part.partition, offsets, part.failures)
                await self.ack(part, list(offsets))
        self.compare()
        ledgers = list(rig.broker.consume.ledgers)
        assert all(hosted.lag() == 0 for hosted in ledgers)
        dead = sum(one.ledger.outcomes[OUTCOME_INDEX[DEAD]] for one in ledgers)
        stories = [read_story(one.headers) for one in await messages(rig, "orders.dlq")]
        places = {(story.original_partition, story.original_offset) for story in stories}
        assert len(stories) == len(places) == dead
        await rig.stop()

    def compare(self) -> None:
        for hosted in self.rig.broker.consume.ledgers:
            self.checker.compare(hosted.group, hosted.partition.name, hosted.ledger, hosted.view())
        self.checker.check()


@pytest.mark.parametrize("share", range(4))
def test_everything_ends_once_over_a_crash_at_every_operation(share: int) -> None:
    """The disk dies at each operation in turn; nothing confirmed is taken back (P2, P5, P6)."""

    async def main() -> None:
        for operation in range(1 + share, 10_000, 4):
            story = Story()
            story.rig.die_in(operation)
            try:
                await story.live()
            except (CrashError, GoQueueError):
                story.rig.broker.consume.ledgers.stop()
                await story.rig.broker.dead_letters.stop()
                await story.judge()
            else:
                assert operation > 60
                await story.judge()
                return

    run(main())
