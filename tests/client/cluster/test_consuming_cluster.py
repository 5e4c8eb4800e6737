"""Consumers of a cluster: join at the coordinator, poll and settle at the leaders."""

import asyncio
from collections import Counter
from random import Random

import pytest

import goqueue.aio
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.packet import Operation
from tests.client.cluster.fleet import Fleet, elapse, leaders_by_turns
from tests.client.cluster.stories import in_fleet

TOPIC = "orders"


async def fill(client: goqueue.aio.AsyncClient, count: int, partitions: int) -> None:
    async with client.producer(TOPIC) as producer:
        for number in range(count):
            producer.send(b"%d" % number, key=b"k%d" % (number % 7), partition=number % partitions)
        await producer.flush()


@pytest.mark.parametrize("prefetch", [1, 2, 500])
def test_messages_of_all_leaders_come_and_are_settled(prefetch: int) -> None:
    """Each is delivered once, acked at the leader that gave it out, and not again."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(6, "abc"))
        async with await goqueue.aio.connect(fleet.addresses) as client:
            await fill(client, 60, 6)
            got: Counter[bytes] = Counter()
            async with client.consumer("workers", [TOPIC], prefetch=prefetch) as consumer:
                while sum(got.values()) < 60:
                    for message in await consumer.poll(10, wait_s=5):
                        got[message.value or b""] += 1
                        message.ack()
                await consumer.flush()
                assert await consumer.poll(10, wait_s=0.5) == []
            progress = await client.group_progress("workers")

        assert got == Counter({b"%d" % n: 1 for n in range(60)})
        assert [part.committed_offset for part in progress] == [10] * 6
        assert fleet.total(Operation.JOIN_GROUP) == 1

    in_fleet(story)


def test_run_handles_messages_of_all_leaders() -> None:
    """Handlers run at once; what they return from is acked."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(3, "abc"))
        async with await goqueue.aio.connect(fleet.addresses) as client:
            await fill(client, 90, 3)
            got: Counter[bytes] = Counter()
            async with client.consumer("workers", [TOPIC], prefetch=12) as consumer:

                async def handle(message: goqueue.Delivery) -> None:
                    got[message.value or b""] += 1
                    await elapse(0.001)
                    if sum(got.values()) == 90:
                        consumer.stop()

                await consumer.run(handle, concurrency=4)
            progress = await client.group_progress("workers")

        assert sorted(got.values()) == [1] * 90
        assert sum(part.lag for part in progress) == 0

    in_fleet(story)


def test_two_members_share_the_leaders() -> None:
    """A rebalance moves partitions between members; everything is delivered once."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(4, "abc"))
        got: Counter[bytes] = Counter()

        async def consume(client: goqueue.aio.AsyncClient) -> None:
            async with client.consumer("workers", [TOPIC], prefetch=8) as consumer:
                while sum(got.values()) < 200:
                    for message in await consumer.poll(4, wait_s=0.5):
                        got[message.value or b""] += 1
                        message.ack()
                    await elapse(0.01)

        async with (
            await goqueue.aio.connect(fleet.addresses) as one,
            await goqueue.aio.connect(fleet.addresses) as other,
        ):
            await fill(one, 100, 4)
            first = asyncio.ensure_future(consume(one))
            await elapse(0.1)
            second = asyncio.ensure_future(consume(other))
            await elapse(8)
            await fill(one, 100, 4)
            await asyncio.gather(first, second)

        assert set(got) == {b"%d" % n for n in range(100)}

    in_fleet(story)


def test_the_coordinator_moves_under_a_consumer() -> None:
    """Heartbeats find it again; messages go on."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(3, "abc"))
        async with await goqueue.aio.connect(fleet.addresses) as client:
            async with client.consumer("workers", [TOPIC]) as consumer:
                for leader in ("c", "a", "b"):
                    fleet.view.lead("__consumer_offsets", [leader] * 50)
                    await fill(client, 9, 3)
                    await elapse(7)
                    got: list[goqueue.Delivery] = []
                    while len(got) < 9:
                        got += await consumer.poll(10, wait_s=2)
                    for message in got:
                        message.ack()
            assert sum(part.lag for part in await client.group_progress("workers")) == 0

    in_fleet(story)


@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_consumed_while_leaders_move(seed: int) -> None:
    """At least once, whatever moves or is reset; a partition without a leader stops no other."""

    async def main(simulation: Simulation) -> None:
        dice = Random(seed)
        fleet = Fleet()
        await fleet.start()
        fleet.create_topic(TOPIC, leaders_by_turns(4, "abc"))
        got: Counter[bytes] = Counter()

        async def disturb() -> None:
            for _ in range(10):
                await elapse(dice.uniform(0.1, 0.5))
                if dice.random() < 0.3:
                    simulation.network.reset_some(50)
                else:
                    to = dice.choice("abc")
                    await fleet.move(TOPIC, dice.randrange(4), to, pause_s=dice.random())

        async with await goqueue.aio.connect(fleet.addresses) as client:
            await fill(client, 120, 4)
            options = {"prefetch": dice.choice((1, 8, 500)), "visibility_timeout": 2.0}
            async with client.consumer("workers", [TOPIC], **options) as consumer:
                disturbing = asyncio.ensure_future(disturb())
                while len(got) < 120:
                    for message in await consumer.poll(5, wait_s=1):
                        got[message.value or b""] += 1
                        message.ack()
                    await elapse(0.02)
                await disturbing
                consumer._hold.take_refused()  # noqa: SLF001 - leases do not move with the log here
        await fleet.stop()

    Simulation(seed).run(main)
