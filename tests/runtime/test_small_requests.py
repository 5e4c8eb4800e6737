"""Small publishes that meet a bug: every publisher is answered, and the next one is taken."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from goqueue.base.errors import GoQueueError
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.runtime.log import small_group
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published
from goqueue.runtime.log.small_requests import SmallRequests
from goqueue.runtime.log.topic import Topic
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, run


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug")


def break_append(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "append", broken)


def break_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "committed", broken)


def break_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(small_group, "trace_published", broken)
    patch.setattr(Partition, "trace_of", lambda *_: [1])


def break_target(patch: pytest.MonkeyPatch) -> None:
    target, calls = SmallRequests._target, [0]  # noqa: SLF001 - only the second look is to fail

    def second(self: SmallRequests, number: int) -> Any:
        calls[0] += 1
        return target(self, number) if calls[0] <= 3 else broken()

    patch.setattr(SmallRequests, "_target", second)


def break_task(patch: pytest.MonkeyPatch) -> None:
    """Send them the general way, and let that fail."""
    patch.setattr("goqueue.storage.partition_log.PartitionLog.fits", lambda *_: False)
    patch.setattr(Topic, "publish", broken)


@pytest.mark.parametrize(
    "breaking", [break_append, break_wait, break_answer, break_target, break_task]
)
def test_a_bug_answers_every_publisher(
    breaking: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is not foreseen is an error at once, and no publisher waits for its deadline."""

    async def main() -> None:
        rig = Rig()
        await rig.start()
        topic = rig.broker.create_topic("t", partitions=1)
        frame = memoryview(encode_row(Draft(value=b"x")))
        outcomes: list[Published | GoQueueError] = []
        with monkeypatch.context() as patch:
            breaking(patch)
            for _ in range(3):
                assert topic.small.begin(PUBLISHING, 0, frame, outcomes.append) is True
            for _ in range(100):
                await asyncio.sleep(0)
        later = asyncio.get_running_loop().create_future()
        topic.small.begin(PUBLISHING, 0, frame, later.set_result)

        assert [type(one) for one in outcomes] == [GoQueueError] * 3
        assert all("ZeroDivisionError" in str(one) for one in outcomes)
        assert isinstance(await later, Published)
        await rig.stop()

    run(main())
