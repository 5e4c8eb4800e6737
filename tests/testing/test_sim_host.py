"""Simulated processes: one that is killed does nothing more, and leaves nothing to warn of."""

import asyncio

import pytest

from goqueue.testing.sim import Simulation


@pytest.mark.parametrize("is_killed_first", [False, True])
def test_a_task_that_has_not_begun_never_begins(*, is_killed_first: bool) -> None:
    """Killed between the start of a task and its first step, or before: it is dropped silently."""
    began = []

    async def work() -> None:
        began.append(True)
        await asyncio.sleep(0)

    async def main(simulation: Simulation) -> None:
        host = simulation.host("victim")
        if is_killed_first:
            host.kill()
        host.begin(work())
        host.kill()
        await asyncio.sleep(1)

    Simulation(1).run(main)

    assert began == []
