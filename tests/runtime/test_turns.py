"""Large pieces of work share the event loop: one in each pass, in the order they came."""

import asyncio
from collections.abc import Callable

from goqueue.runtime.turns import TURN_BYTES, TURN_MESSAGES, Turns


async def _pieces(turns: Turns, name: str, count: int, note: Callable[[str], None]) -> None:
    for _ in range(count):
        await turns.take()
        note(name)


async def _ticks(count: int, note: Callable[[str], None]) -> None:
    """Note every pass of the loop."""
    for _ in range(count):
        note("-")
        await asyncio.sleep(0)


def test_in_each_pass_of_the_loop_one_goes_on() -> None:
    """Whoever asks for little waits for one large piece of work, not for all of them."""

    async def scenario() -> list[str]:
        turns, notes = Turns(), list[str]()
        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(_pieces(turns, name, 2, notes.append))
            tasks.create_task(_ticks(20, notes.append))
        return notes

    passes = "".join(asyncio.run(scenario())).split("-")
    assert max(map(len, passes)) == 1
    assert "".join(passes) == "aabcbc", "the order in which they asked"


def test_who_is_alone_does_not_wait() -> None:
    """Without others a turn costs no pass of the loop, and small work never does."""

    async def scenario() -> bool:
        turns = Turns()
        for work in (turns.take(), turns.take_for(size=TURN_BYTES, messages=TURN_MESSAGES)):
            try:
                work.send(None)
            except StopIteration:
                continue
            return False
        return True

    assert asyncio.run(scenario())


def test_who_is_gone_holds_up_nobody() -> None:
    """A turn that its owner does not take any more goes to the next."""

    async def scenario() -> list[str]:
        turns, notes = Turns(), list[str]()
        tasks = [asyncio.create_task(_pieces(turns, name, 1, notes.append)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        await asyncio.wait(tasks, timeout=60)
        await asyncio.wait_for(turns.take(), 60)
        return notes

    assert asyncio.run(scenario()) == ["a", "d"]
