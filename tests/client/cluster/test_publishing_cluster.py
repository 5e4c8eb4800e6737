"""Publishing to the leaders of a cluster: nothing lost, nothing twice, in order, whatever moves."""

import asyncio
from collections import defaultdict
from random import Random

import pytest

import goqueue.aio
from goqueue.base.errors import DeadlineExceededError, GoQueueError, NotLeaderError
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.packet import Operation
from tests.client.cluster.fleet import Fleet, elapse, leaders_by_turns
from tests.client.cluster.stories import in_fleet

TOPIC = "orders"


async def stored(fleet: Fleet) -> dict[int, list[bytes]]:
    """Return what each leader has, in order."""
    found: dict[int, list[bytes]] = defaultdict(list)
    async with await goqueue.aio.connect(fleet.addresses) as client:
        async for message in client.read(TOPIC):
            assert message.value is not None
            found[message.partition].append(message.value)
    return found


def test_a_pile_is_cut_by_leader() -> None:
    """Six partitions of three leaders are three requests, one for each node."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(6, "abc"))
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC) as producer,
        ):
            futures = [producer.send(b"%d" % n, partition=n % 6) for n in range(60)]
            await producer.flush()
            places = [await future for future in futures]

        assert [fleet[name].asked[Operation.PRODUCE] for name in "abc"] == [1, 1, 1]
        assert fleet.total(Operation.INIT_PRODUCER) == 1
        assert [place.partition for place in places] == [n % 6 for n in range(60)]
        assert [place.offset for place in places] == [n // 6 for n in range(60)]

    in_fleet(story)


def test_what_is_published_one_by_one_goes_to_its_leader() -> None:
    """``publish`` of an event loop, alone and together with others of one turn."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(3, "abc"))
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC) as producer,
        ):
            for number in range(3):
                assert (await producer.publish(b"x", partition=number)).partition == number
            together = [producer.publish(b"y", partition=n % 3) for n in range(9)]
            places = await asyncio.gather(*together)

        assert sorted({place.partition for place in places}) == [0, 1, 2]

    in_fleet(story)


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    """What is for it waits; the rest is acked, and it, too, when there is a leader again."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, ["a", "b", "c"])
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC) as producer,
        ):
            await producer.publish(b"first", partition=1)
            await fleet.move(TOPIC, 1, None)
            stuck = producer.send(b"stuck", partition=1)
            for _ in range(20):
                for number in (0, 2):
                    await producer.publish(b"on", partition=number)
            assert not stuck.done()
            await fleet.move(TOPIC, 1, "a")
            assert (await stuck).offset == 1

    in_fleet(story)


def test_what_no_leader_takes_in_time_says_which_partition() -> None:
    """A batch ends with its delivery timeout; others go on."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, ["a", "b"])
        async with await goqueue.aio.connect(fleet.addresses) as client:
            producer = client.producer(TOPIC, delivery_timeout_ms=2_000)
            await producer.publish(b"x", partition=1)
            await fleet.move(TOPIC, 1, None)
            with pytest.raises(DeadlineExceededError, match="orders/1 has no leader"):
                await producer.publish(b"y", partition=1)
            assert (await producer.publish(b"z", partition=0)).offset == 0
            await fleet.move(TOPIC, 1, "a")
            assert (await producer.publish(b"again", partition=1)).offset == 1
            await producer.close()

    in_fleet(story)


def test_not_leader_after_an_append_is_in_doubt() -> None:
    """It is sent again with its sequence, and the new leader knows it."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, ["a"])
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC) as producer,
        ):

            async def move_then_refuse(operation: Operation) -> None:
                if operation is Operation.PRODUCE:
                    await fleet.move(TOPIC, 0, "b")
                    raise NotLeaderError("moved after the append")

            fleet["a"].after = move_then_refuse
            place = await producer.publish(b"once")
            await producer.publish(b"next")

        assert (place.offset, place.is_duplicate) == (0, True)
        assert (await stored(fleet))[0] == [b"once", b"next"]

    in_fleet(story)


def test_a_killed_node_costs_nothing_but_time() -> None:
    """Messages to all partitions go on through the death of a leader; each is there once."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, leaders_by_turns(6, "abc"))
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC, linger_ms=1) as producer,
        ):

            async def kill() -> None:
                await elapse(0.5)
                await fleet.kill("b", heir="c", pause_s=1.0)

            killing = asyncio.ensure_future(kill())
            futures = []
            for number in range(300):
                futures.append(producer.send(b"%d" % number, partition=number % 6))
                await elapse(0.005)
            await producer.flush()
            await killing
            for future in futures:
                await future
        found = await stored(fleet)

        for partition in range(6):
            assert found[partition] == [b"%d" % n for n in range(300) if n % 6 == partition]

    in_fleet(story)


@pytest.mark.parametrize("seed", range(12))
def test_every_acked_message_is_there_once_in_order(seed: int) -> None:
    """Leaders move, connections are reset and answers are lost at random; P3 and P7 hold."""

    async def main(simulation: Simulation) -> None:
        dice = Random(seed)
        fleet = Fleet()
        await fleet.start()
        fleet.create_topic(TOPIC, leaders_by_turns(4, "abc"))

        async def disturb() -> None:
            for _ in range(25):
                await elapse(dice.uniform(0.01, 0.3))
                match dice.randrange(3):
                    case 0:
                        simulation.network.reset_some(50)
                    case _:
                        to = dice.choice("abc")
                        await fleet.move(TOPIC, dice.randrange(4), to, pause_s=dice.random() / 2)

        acked: dict[int, list[bytes]] = defaultdict(list)
        async with await goqueue.aio.connect(fleet.addresses) as client:
            disturbing = asyncio.ensure_future(disturb())
            async with client.producer(TOPIC, linger_ms=dice.choice((0, 5))) as producer:
                futures = []
                for number in range(400):
                    value = b"%d" % number
                    futures.append((number % 4, value, producer.send(value, partition=number % 4)))
                    await elapse(dice.uniform(0, 0.02))
                await producer.flush()
                for partition, value, future in futures:
                    await future
                    acked[partition].append(value)
            await disturbing
        assert await stored(fleet) == acked
        await fleet.stop()

    Simulation(seed).run(main)


def test_a_producer_that_is_closed_fails_what_is_not_placed() -> None:
    """Closing with a time ends the wait for a leader."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic(TOPIC, ["a", "b"])
        async with await goqueue.aio.connect(fleet.addresses) as client:
            producer = client.producer(TOPIC)
            await producer.publish(b"x", partition=1)
            await fleet.move(TOPIC, 1, None)
            stuck = producer.send(b"stuck", partition=1)
            with pytest.raises(GoQueueError):
                await producer.close(timeout_s=0.5)
            assert stuck.done()

    in_fleet(story)
