"""Transactions of a client in a cluster: who is asked for what.

The nodes of these tests do not speak to each other, so one of them leads and coordinates what a
transaction touches; the others refuse.
"""

import pytest

import goqueue.aio
from goqueue.wire.packet import Operation
from tests.client.cluster.fleet import Fleet
from tests.client.cluster.stories import in_fleet

TOPIC = "orders"


def all_by(fleet: Fleet, name: str) -> None:
    fleet.create_topic(TOPIC, [name, name])
    fleet.view.lead("__transactions", [name, name])


@pytest.mark.parametrize("name", ["a", "c"])
def test_messages_go_to_leaders_and_the_rest_to_the_coordinator(name: str) -> None:
    """A commit is a request of its own, sent when all messages are acked; an abort leaves none."""

    async def story(fleet: Fleet) -> None:
        all_by(fleet, name)
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC, transactional_id="t") as producer,
        ):
            for round_ in range(3):
                async with producer.transaction() as tx:
                    for number in range(4):
                        tx.send(b"%d" % number, partition=number % 2)
                    if round_ == 1:
                        await tx.abort()
            found = [message.value async for message in client.read(TOPIC)]
            states = await client.list_transactions()

        assert sorted(value or b"" for value in found) == sorted(2 * [b"0", b"1", b"2", b"3"])
        assert [state.transactional_id for state in states] == ["t"]
        asked = fleet[name].asked
        assert (asked[Operation.TX_INIT], asked[Operation.TX_END]) == (1, 3)

    in_fleet(story)


def test_acks_of_a_transaction_are_held_at_the_leader() -> None:
    """TX_HOLD goes where the lease is, for each partition by itself."""

    async def story(fleet: Fleet) -> None:
        all_by(fleet, "b")
        async with (
            await goqueue.aio.connect(fleet.addresses) as client,
            client.producer(TOPIC) as plain,
            client.producer(TOPIC, transactional_id="t") as producer,
            client.consumer("workers", [TOPIC]) as consumer,
        ):
            for number in range(4):
                await plain.publish(b"%d" % number, partition=number % 2)
            got: list[goqueue.Delivery] = []
            while len(got) < 4:
                got += await consumer.poll(10, wait_s=2)
            async with producer.transaction() as tx:
                for message in got:
                    tx.ack(message)
            progress = await client.group_progress("workers")

        assert fleet["b"].asked[Operation.TX_HOLD] == 2
        assert sum(part.lag for part in progress) == 0

    in_fleet(story)
