"""A topic of many partitions is made in steps, with everything else going on meanwhile."""

import asyncio

import pytest

from goqueue.base.errors import GoQueueError, TopicExistsError, TopicNotFoundError
from goqueue.core.record.message import Draft
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run

MANY = 60


async def begun(rig: Rig) -> "asyncio.Task[object]":
    """Return a task that is making the topic ``large`` and is not done yet."""
    await rig.start()
    making = asyncio.ensure_future(rig.broker.changes.make("large", partitions=MANY))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not making.done()
    return making


def test_others_are_answered_meanwhile() -> None:
    """A message is published while the topic is made; afterwards it takes messages itself."""

    async def main() -> None:
        rig = Rig()
        making = await begun(rig)
        small = rig.broker.create_topic("small", partitions=1)
        (place,) = await small.publish_drafts(PUBLISHING, [(Draft(value=b"v"), 0)])
        assert place == (0, 0)
        assert not making.done()
        with pytest.raises(TopicExistsError):
            rig.broker.create_topic("large", partitions=1)
        await making
        (place,) = await rig.broker.topic("large").publish_drafts(
            PUBLISHING, [(Draft(value=b"v"), MANY - 1)]
        )
        assert place == (MANY - 1, 0)

    run(main())


def test_one_that_is_deleted_meanwhile_is_gone() -> None:
    """Whoever asked for it is told, and another of the name can be made."""

    async def main() -> None:
        rig = Rig()
        making = await begun(rig)
        rig.broker.delete_topic("large")
        rig.clock.advance(1)
        again = rig.broker.create_topic("large", partitions=2)
        with pytest.raises(TopicNotFoundError):
            await making
        assert rig.broker.topic("large") is again
        assert isinstance(
            (await again.publish_drafts(PUBLISHING, [(Draft(value=b"v"), 1)]))[0], tuple
        )

    run(main())


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
def test_one_that_was_begun_is_whole_after_a_restart(*, clean: bool) -> None:
    """Settings that were changed on the way are those it has."""

    async def main() -> None:
        rig = Rig()
        making = await begun(rig)
        if clean:
            await rig.stop()
            with pytest.raises(GoQueueError):
                await making
        making.cancel()
        rig.recover_with(rig.disk.crash())
        await rig.start()
        topic = rig.broker.topic("large")
        assert len(topic.partitions) == MANY
        assert isinstance(
            (await topic.publish_drafts(PUBLISHING, [(Draft(value=b"v"), 7)]))[0], tuple
        )

    run(main())


def test_whoever_asked_may_go_away() -> None:
    """The topic is made all the same."""

    async def main() -> None:
        rig = Rig()
        making = await begun(rig)
        making.cancel()
        for _ in range(3 * MANY):
            await asyncio.sleep(0)
        assert len(rig.broker.topic("large").partitions) == MANY

    run(main())
