"""A topic of a broker by itself gets more partitions, with everything else going on meanwhile."""

import asyncio
import contextlib

import pytest

from goqueue.base.errors import (
    GoQueueError,
    InvalidNameError,
    InvalidRequestError,
    OperationActiveError,
    TopicNotFoundError,
)
from goqueue.core.record.message import Draft
from goqueue.runtime.log.topic import Topic
from goqueue.testing.process import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

MANY = 40


async def publish(topic: Topic, *partitions: int) -> None:
    """Publish a message into each of some partitions."""
    drafts = [(Draft(value=b"v"), number) for number in partitions]
    for place in await topic.publish_drafts(PUBLISHING, drafts):
        assert isinstance(place, tuple), place


def test_it_is_there_after_a_crash_with_the_ends_of_the_old_ones() -> None:
    """What was published before and after is where it was."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        topic = rig.broker.create_topic("orders", partitions=2)
        await publish(topic, 0, 0, 1)
        await rig.broker.changes.add_partitions("orders", 4)
        await publish(topic, 3)
        rig.recover_with(rig.disk.crash())
        await rig.start()
        found = rig.broker.topic("orders")
        (growth,) = found.record.growths

        assert [one.log.end_offset for one in found.partitions] == [2, 1, 0, 1]
        assert (growth.partitions, growth.ends) == (2, (2, 1))
        await publish(found, 2)

    run(main())


def test_a_crash_at_every_operation_of_the_disk() -> None:
    """The topic has as many partitions as before or as many as wanted, and the rest can be had."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        before = rig.disk.operations
        await publish(rig.broker.create_topic("orders", partitions=2), 0, 1)
        number, is_over = rig.disk.operations, False
        assert number > before
        while not is_over:
            number += 1
            rig = Rig()
            await rig.start()
            topic = rig.broker.create_topic("orders", partitions=2)
            await publish(topic, 0, 1)
            rig.disk.fail_at(number)
            try:
                await rig.broker.changes.add_partitions("orders", 5)
                is_over = True
            except (GoQueueError, CrashError):
                pass
            rig.recover_with(rig.disk.crash())
            await rig.start()
            found = rig.broker.topic("orders")
            assert [one.log.end_offset for one in found.partitions[:2]] == [1, 1]
            assert len(found.partitions) in ({5} if is_over else {2, 5})
            with contextlib.suppress(InvalidRequestError):
                await rig.broker.changes.add_partitions("orders", 5)
            await publish(found, *range(5))
            await rig.stop()

    run(main())


def test_one_operation_at_a_time() -> None:
    """Another one for the topic is refused, others are answered; the caller may go away."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        topic = rig.broker.create_topic("orders", partitions=1)
        changes = rig.broker.changes
        adding = asyncio.ensure_future(changes.add_partitions("orders", MANY))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert changes.is_scaling(topic)
        with pytest.raises(OperationActiveError):
            await changes.add_partitions("orders", 3)
        await publish(topic, 0)
        assert len(topic.partitions) == 1
        adding.cancel()
        for _ in range(3 * MANY):
            await asyncio.sleep(0)

        assert len(topic.partitions) == MANY
        assert not changes.is_scaling(topic)
        await publish(topic, MANY - 1)

    run(main())


def test_what_cannot_be() -> None:
    """A number only grows; topics of the broker's own keep theirs."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("orders", partitions=2)
        rig.broker.create_topic("__own", partitions=2, by_broker=True)
        changes = rig.broker.changes
        for name, count in (("orders", 2), ("orders", 1), ("orders", 10_001), ("__own", 3)):
            with pytest.raises((InvalidRequestError, InvalidNameError)):
                await changes.add_partitions(name, count)
        with pytest.raises(TopicNotFoundError):
            await changes.add_partitions("other", 3)
        with pytest.raises(InvalidRequestError):
            await changes.add_partitions("orders", 3, assignments={2: ["b"]})

    run(main())


def test_a_topic_that_is_deleted_meanwhile_is_gone() -> None:
    """Nothing is left of it, and another one of the name is not touched."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("orders", partitions=1)
        adding = asyncio.ensure_future(rig.broker.changes.add_partitions("orders", MANY))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rig.broker.delete_topic("orders")
        rig.clock.advance(1)
        again = rig.broker.create_topic("orders", partitions=2)
        with pytest.raises(TopicNotFoundError):
            await adding

        assert len(again.partitions) == 2
        await publish(again, 0, 1)

    run(main())


def test_dead_letters_follow() -> None:
    """Their topic has as many partitions, where it exists."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        rig.broker.create_topic("orders", partitions=1)
        rig.broker.create_topic("orders.dlq", partitions=1)
        await rig.broker.changes.add_partitions("orders", 3)

        assert len(rig.broker.topic("orders.dlq").partitions) == 3

    run(main())
