"""A replacement of a delayed message whose end cannot be written at first."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from goqueue.base.errors import DiskFullError
from goqueue.core.schedule.schedule import Cancelled
from goqueue.runtime.machine import MachineHost
from tests.runtime.rig import run
from tests.runtime.test_replacing import begin, delivered, draft, send


def test_a_replacement_that_cannot_be_ended_is_ended_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new message is acknowledged; the held one goes as soon as that can be written."""

    async def main() -> None:
        rig = await begin(partitions=1)
        await send(rig, draft(rig, b"a"))
        schedule = rig.broker.topic("t").partition(0).queue.schedule
        commit, tried = MachineHost.commit, asyncio.Event()

        def commit_some(host: MachineHost[Any], events: Sequence[Any], **more: Any) -> None:
            if any(isinstance(event, Cancelled) for event in events):
                raise DiskFullError("no room for state")
            commit(host, events, **more)

        async def pause(_: int) -> None:
            tried.set()
            await asyncio.sleep(0)

        rig.broker.delays.resolving.sleep = pause
        with monkeypatch.context() as patch:
            patch.setattr(MachineHost, "commit", commit_some)
            published = await send(rig, draft(rig, b"b", wish=b"replace"))
            await tried.wait()
            assert list(schedule.held) == [0]
        await asyncio.wait(rig.broker.delays.resolving.tasks.values())

        assert not published.conflicts
        assert not schedule.held
        assert await delivered(rig) == [b"b"]
        await rig.stop()

    run(main())
