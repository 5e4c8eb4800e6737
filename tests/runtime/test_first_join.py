"""The first member of the first group: its state gets a place while others are answered."""

import asyncio

import pytest

from goqueue.base.errors import ShuttingDownError, StorageFailedError, TopicNotFoundError
from goqueue.core.groups.member import JoinRequest
from goqueue.runtime.state_log import STATE_PARTITIONS, STATE_TOPIC
from tests.runtime.rig import Rig, run

REQUEST = JoinRequest(client_id="a", topics=("orders",), options={})


async def shop() -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("orders", partitions=1)
    return rig


def test_others_have_their_turn_while_a_place_is_made() -> None:
    """Fifty partitions are made one by one; in between the loop goes round."""

    async def main() -> None:
        rig = await shop()
        joins = [asyncio.create_task(rig.broker.groups.join("g", REQUEST)) for _ in range(2)]
        turns = 0
        while not any(join.done() for join in joins):
            turns += 1
            await asyncio.sleep(0)
        await asyncio.gather(*joins)

        assert turns > STATE_PARTITIONS // 2
        assert len(rig.broker.groups.get("g").members) == 2
        assert len(rig.broker.topic(STATE_TOPIC).partitions) == STATE_PARTITIONS
        await rig.stop()

    run(main())


def test_who_cannot_wait_finds_the_place_made() -> None:
    """A change that must be written at once does the rest at once, and the join goes on."""

    async def main() -> None:
        rig = await shop()
        join = asyncio.create_task(rig.broker.groups.join("g", REQUEST))
        for _ in range(5):
            await asyncio.sleep(0)
        await rig.broker.state.durable("somebody")
        await join

        assert len(rig.broker.topic(STATE_TOPIC).partitions) == STATE_PARTITIONS
        await rig.stop()

    run(main())


def test_a_wrong_request_makes_nothing() -> None:
    """Who asks for a topic that is not there is told so, and leaves no trace."""

    async def main() -> None:
        rig = await shop()
        with pytest.raises(TopicNotFoundError):
            await rig.broker.groups.join(
                "g", JoinRequest(client_id="a", topics=("no",), options={})
            )

        assert STATE_TOPIC not in rig.broker.topics
        await rig.stop()

    run(main())


def test_a_stop_in_the_middle_leaves_a_broker_that_starts() -> None:
    """What was begun is finished at the next start."""

    async def main() -> None:
        rig = await shop()
        join = asyncio.create_task(rig.broker.groups.join("g", REQUEST))
        for _ in range(5):
            await asyncio.sleep(0)
        await rig.stop()
        with pytest.raises(ShuttingDownError):
            await join
        await rig.start()
        await rig.broker.groups.join("g", REQUEST)

        assert len(rig.broker.topic(STATE_TOPIC).partitions) == STATE_PARTITIONS
        await rig.stop()

    run(main())


def test_a_disk_that_fails_in_the_middle_is_named_and_there_is_a_next_time() -> None:
    """The join fails; the next one goes on where it failed."""

    async def main() -> None:
        rig = await shop()
        join = asyncio.create_task(rig.broker.groups.join("g", REQUEST))
        for _ in range(5):
            await asyncio.sleep(0)
        rig.disk.fail_sync(path_glob=f"logs/{STATE_TOPIC}*")
        with pytest.raises(StorageFailedError):
            await join
        assert STATE_TOPIC not in rig.broker.topics
        rig.disk.heal()
        await rig.broker.groups.join("g", REQUEST)

        assert len(rig.broker.topic(STATE_TOPIC).partitions) == STATE_PARTITIONS
        await rig.stop()

    run(main())
