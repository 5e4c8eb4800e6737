"""Reading from the leaders of a cluster: no gap, no repeat, whoever leads."""

import asyncio
from collections import defaultdict
from random import Random

import pytest

import goqueue.aio
from goqueue.base.errors import LeaderNotAvailableError
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.packet import Operation
from tests.client.cluster.fleet import Fleet, elapse, leaders_by_turns
from tests.client.cluster.stories import in_fleet

TOPIC = "orders"
COUNT = 240


async def fill(client: goqueue.aio.AsyncClient, partitions: int, count: int = COUNT) -> None:
    async with client.producer(TOPIC) as producer:
        for number in range(count):
            producer.send(b"%d" % number, partition=number % partitions)
        await producer.flush()


def expected(partitions: int, count: int = COUNT) -> dict[int, list[bytes]]:
    return {
        partition: [b"%d" % n for n in range(count) if n % partitions == partition]
        for partition in range(partitions)
    }


def test_every_leader_is_asked_for_what_it_leads() -> None:
    """A reader gets each partition in order, by one request at a time for each node."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(6, "abc"))
        async with await goqueue.aio.connect(fleet.addresses) as client:
            await fill(client, 6)
            found: dict[int, list[bytes | None]] = defaultdict(list)
            async for message in client.read(TOPIC):
                found[message.partition].append(message.value)
            rows = sum([batch.num_rows async for batch in client.read_batches(TOPIC)])

        assert found == expected(6)
        assert rows == COUNT
        assert all(fleet[name].asked[Operation.FETCH] > 0 for name in "abc")

    in_fleet(story)


def test_a_reader_goes_on_where_it_was_with_the_next_leader() -> None:
    """Leadership moves again and again while a reader follows."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, ["a", "b"])
        found: dict[int, list[bytes | None]] = defaultdict(list)

        async def follow(client: goqueue.aio.AsyncClient) -> None:
            async for message in client.read(TOPIC, follow=True):
                found[message.partition].append(message.value)

        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC, linger_ms=1) as producer,
        ):
            following = asyncio.ensure_future(follow(client))
            for number in range(200):
                producer.send(b"%d" % number, partition=number % 2)
                await elapse(0.01)
                if number % 40 == 20:
                    await fleet.move(TOPIC, number // 40 % 2, "abc"[number // 40 % 3], pause_s=0.2)
            await producer.flush()
            await elapse(3)
            following.cancel()

        assert found == expected(2, 200)

    in_fleet(story)


def test_a_partition_that_is_not_read_for_too_long_is_named() -> None:
    """The others are read; then the error says what was waited for."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, ["a", "b"])

        async def read_all(client: goqueue.aio.AsyncClient) -> None:
            async for message in client.read(TOPIC, follow=True):
                assert message.partition == 0

        async with await goqueue.aio.connect(fleet.addresses, timeout=4) as client:
            reading = asyncio.ensure_future(read_all(client))
            await elapse(0.5)
            await fleet.move(TOPIC, 1, None)
            await fleet.move(TOPIC, 0, "c")
            async with client.producer(TOPIC) as producer:
                await producer.publish(b"x", partition=0)
            with pytest.raises(LeaderNotAvailableError, match=r"orders/1 was not read for 4 s"):
                await reading

    in_fleet(story)


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_sees_every_message_once_in_order(seed: int) -> None:
    """Messages are published and read while leaders move and connections are reset (P7)."""

    async def main(simulation: Simulation) -> None:
        dice = Random(seed)
        fleet = Fleet()
        await fleet.start()
        fleet.create_topic(TOPIC, leaders_by_turns(4, "abc"))
        found: dict[int, list[bytes | None]] = defaultdict(list)

        async def follow(client: goqueue.aio.AsyncClient) -> None:
            async for message in client.read(TOPIC, follow=True):
                found[message.partition].append(message.value)

        async def disturb() -> None:
            for _ in range(25):
                await elapse(dice.uniform(0.01, 0.3))
                if dice.random() < 0.3:
                    simulation.network.reset_some(50)
                else:
                    to = dice.choice("abc")
                    await fleet.move(TOPIC, dice.randrange(4), to, pause_s=dice.random() / 2)

        async with (
            await goqueue.aio.connect(fleet.addresses) as writer,
            await goqueue.aio.connect(fleet.addresses) as client,
            writer.producer(TOPIC, linger_ms=2) as producer,
        ):
            following = asyncio.ensure_future(follow(client))
            disturbing = asyncio.ensure_future(disturb())
            for number in range(COUNT):
                producer.send(b"%d" % number, partition=number % 4)
                await elapse(dice.uniform(0, 0.03))
            await producer.flush()
            await disturbing
            await elapse(5)
            following.cancel()
        await fleet.stop()

        assert found == expected(4)

    Simulation(seed).run(main)
