"""A client of a cluster finds its way, and says why where there is none."""

import asyncio

import pytest

import goqueue.aio
from goqueue.base.errors import (
    ConnectionLostError,
    InvalidRequestError,
    LeaderNotAvailableError,
    TopicNotFoundError,
)
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.native.server import NativeServer
from goqueue.wire.packet import Operation
from tests.client.cluster.fleet import Fleet, elapse, leaders_by_turns
from tests.client.cluster.stories import in_fleet


def test_any_node_leads_to_the_cluster() -> None:
    """One address of several is enough; a topic that was just made is found."""

    async def story(fleet: Fleet) -> None:
        async with await goqueue.aio.connect(fleet["b"].address) as client:
            fleet.create_topic("orders", leaders_by_turns(6, "abc"))
            state = await client.describe_topic("orders")
            ends = await client.offsets("orders")

        assert [part.partition for part in state.partitions] == list(range(6))
        assert ends == dict.fromkeys(range(6), 0)

    in_fleet(story)


def test_addresses_that_do_not_answer_are_passed_over() -> None:
    """A client starts while nodes are down; if none answers, all are named."""

    async def story(fleet: Fleet) -> None:
        addresses = fleet.addresses
        await fleet.kill("a")
        async with await goqueue.aio.connect(addresses) as client:
            await client.ping()
        await fleet.kill("b")
        await fleet.kill("c")
        with pytest.raises(ConnectionLostError) as caught:
            await goqueue.aio.connect(addresses)
        for node in fleet.nodes.values():
            assert node.address in caught.value.message

    in_fleet(story)


def test_a_topic_that_is_not_there_is_told_at_once() -> None:
    """What is unknown to the view is asked of a node before anybody waits for it."""

    async def story(fleet: Fleet) -> None:
        async with await goqueue.aio.connect(fleet.addresses, timeout=5) as client:
            with pytest.raises(TopicNotFoundError):
                await client.offsets("none")

    in_fleet(story)


def test_a_partition_without_a_leader_is_named_when_the_time_is_over() -> None:
    """Every wait has an end, and the error says what was waited for."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic("orders", ["a", "b"])
        async with await goqueue.aio.connect(fleet.addresses, timeout=5) as client:
            await fleet.move("orders", 1, None)
            with pytest.raises(LeaderNotAvailableError, match="orders/1 has no leader"):
                await client.offsets("orders")

    in_fleet(story)


def test_metadata_is_asked_for_at_most_every_100_ms() -> None:
    """Many who wait for a leader share one view."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic("orders", ["a", "b"])
        async with await goqueue.aio.connect(fleet.addresses, timeout=10) as client:
            await fleet.move("orders", 1, None)
            before = fleet.total(Operation.METADATA)
            waits = [asyncio.ensure_future(client.offsets("orders")) for _ in range(20)]
            await elapse(2)
            asked = fleet.total(Operation.METADATA) - before
            await fleet.move("orders", 1, "c")
            await asyncio.gather(*waits)

        assert 0 < asked <= 21

    in_fleet(story)


def test_a_moved_coordinator_is_found_again() -> None:
    """Requests about named state follow it; no error reaches the caller."""

    async def story(fleet: Fleet) -> None:
        async with await goqueue.aio.connect(fleet.addresses) as client:
            await client.list_schedules()
            before = await client.list_groups()
            for leader in ("b", "c", "a"):
                fleet.view.lead("__schemas", [leader])
                await client.schemas.register("s", {"type": "object"})

        assert before == []

    in_fleet(story)


def test_a_silent_node_is_left_when_the_cluster_has_given_it_up() -> None:
    """A paused node owes an answer for ever; what it led is asked of its heir in seconds."""

    async def story(fleet: Fleet) -> None:
        fleet.create_topic("orders", ["a"])
        paused = asyncio.Event()

        async def hang(operation: Operation) -> None:
            if operation is not Operation.HELLO:
                await paused.wait()

        async with await goqueue.aio.connect(fleet.addresses) as client:
            await client.offsets("orders")
            fleet["a"].before = hang
            waiting = asyncio.ensure_future(client.offsets("orders"))
            await elapse(5)
            fleet.view.leave("a")
            await fleet.move("orders", 0, "b")
            began = asyncio.get_running_loop().time()
            assert await waiting == {0: 0}
            assert asyncio.get_running_loop().time() - began < 4
            paused.set()

    in_fleet(story)


def test_a_broker_by_itself_is_refused_among_several() -> None:
    """A list names nodes of one cluster: messages must not end up in one broker of some."""

    async def story() -> None:

        broker = Broker(BrokerConfig(sync_threads=0), MemoryDisk())
        await broker.start()
        native = NativeServer(Service(broker))
        await native.start("127.0.0.1:0")
        with pytest.raises(InvalidRequestError, match="not a node of a cluster"):
            await goqueue.aio.connect(f"127.0.0.1:1,{native.address}")
        async with await goqueue.aio.connect(native.address) as client:
            assert type(client._link).__name__ == "NativeLink"  # noqa: SLF001
        await native.stop()
        await broker.stop()

    asyncio.run(story())
