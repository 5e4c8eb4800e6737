"""The client's event loop: it outlives interrupts, and nobody waits for it for ever."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from goqueue.base.errors import ClosedError
from goqueue.client.blocking.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    started = LoopThread("under test")
    yield started
    started.stop()


async def leave() -> None:
    await asyncio.sleep(0)
    sys.exit("the caller's own code")


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_who_ends_the_interpreter_in_the_loop_ends_only_its_own_call(thread: LoopThread) -> None:
    """A callback that calls ``sys.exit`` would otherwise take the loop from everybody."""
    with pytest.raises(SystemExit):
        thread.run(leave())
    thread.loop.call_soon_threadsafe(sys.exit)

    assert thread.run(answer()) == 42


def test_a_wait_that_is_over_says_what_it_was_for(thread: LoopThread) -> None:
    """The coroutine is cancelled, and the loop goes on."""
    with pytest.raises(TimeoutError, match=r"waited 0\.01 s for the tide"):
        thread.run(asyncio.sleep(3_600), 0.01, what="the tide")
    assert thread.run(answer()) == 42


def test_nobody_waits_for_a_loop_that_has_ended() -> None:
    """Who waits when another thread stops the loop is told so."""
    thread = LoopThread("under test")

    async def stop() -> None:
        thread._is_stopped = True  # noqa: SLF001 - as another thread would, in this very moment
        thread.loop.stop()
        await asyncio.sleep(3_600)

    with pytest.raises(ClosedError, match="waited for the tide"):
        thread.run(stop(), what="the tide")
    with pytest.raises(ClosedError):
        thread.run(answer())
    for task in asyncio.all_tasks(thread.loop):
        task.cancel()
    thread.loop.run_until_complete(asyncio.sleep(0))
    thread.loop.close()
