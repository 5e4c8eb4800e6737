"""Coroutines that are begun without a task: done at once, or awaited for the rest."""

import asyncio

import pytest

from goqueue.base.started import Started


async def add(one: int, other: asyncio.Future[int] | int) -> int:
    """Add numbers, one of which may have to be waited for."""
    return one + (other if isinstance(other, int) else await other)


def test_what_waits_for_nothing_is_done_at_once() -> None:
    """There is a result, and no loop was needed for it."""
    started = Started(add(1, 2))

    assert started.is_done
    assert started.result == 3


def test_what_fails_before_it_waits_raises_where_it_is_begun() -> None:
    """Nobody has to look for the error later."""
    with pytest.raises(TypeError):
        Started(add(1, "two"))  # type: ignore[arg-type]


def test_what_waits_is_awaited_for_the_rest() -> None:
    """It goes on from where it is, once, and may wait again."""

    async def twice(first: asyncio.Future[int], second: asyncio.Future[int]) -> int:
        return await add(await add(1, first), second)

    async def main() -> int:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        started = Started(twice(first, second))
        assert not started.is_done
        loop.call_soon(first.set_result, 2)
        loop.call_later(0.001, second.set_result, 4)
        return await asyncio.ensure_future(wait_for(started))

    async def wait_for(started: Started[int]) -> int:
        return await started

    assert asyncio.run(main()) == 7


def test_a_future_that_fails_or_is_cancelled_meets_the_coroutine() -> None:
    """Errors and cancellation arrive where the coroutine waits, and it may deal with them."""

    async def careful(waited: asyncio.Future[int]) -> str:
        try:
            await waited
        except ValueError:
            return "failed"
        except asyncio.CancelledError:
            return "cancelled"
        return "fine"

    async def wait_for(started: Started[str]) -> str:
        return await started

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        failing, hanging = loop.create_future(), loop.create_future()
        tasks = [
            asyncio.ensure_future(wait_for(Started(careful(one)))) for one in (failing, hanging)
        ]
        await asyncio.sleep(0)
        failing.set_exception(ValueError())
        tasks[1].cancel()
        return list(await asyncio.gather(*tasks))

    assert asyncio.run(main()) == ["failed", "cancelled"]
