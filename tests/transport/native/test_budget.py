"""The common budget: nobody waits forever, and nobody goes beyond it together with another."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.limits import REPLY_BYTES_MIN
from goqueue.transport.native.budget import REPLY_FRACTION, ByteBudget, ReplyRoom


class Waiting:
    """Somebody who waits for bytes, and what they were told."""

    def __init__(self, budget: ByteBudget) -> None:
        self.grants = 0
        self._budget = budget
        budget.wait(self.granted)

    def granted(self) -> None:
        self.grants += 1

    def leave(self) -> None:
        self._budget.leave(self.granted)


def test_with_bytes_left_nobody_waits() -> None:
    """Who asks while there is room is let through at once."""
    budget = ByteBudget(100)

    assert [Waiting(budget).grants for _ in range(3)] == [1, 1, 1]


def test_without_bytes_one_at_a_time_goes_beyond() -> None:
    """The first in line goes on; the others follow when it is done, in their order."""
    budget = ByteBudget(100)
    budget.charge(100)
    first, second, third = Waiting(budget), Waiting(budget), Waiting(budget)

    assert [one.grants for one in (first, second, third)] == [1, 0, 0]
    first.leave()
    assert [one.grants for one in (first, second, third)] == [1, 1, 0]


def test_bytes_that_come_back_let_all_go_on() -> None:
    """As soon as there is room again nobody has to wait for a turn."""
    budget = ByteBudget(100)
    budget.charge(150)
    waiting = [Waiting(budget) for _ in range(4)]

    budget.give_back(51)

    assert [one.grants for one in waiting] == [1, 1, 1, 1]


def test_who_leaves_the_queue_is_forgotten() -> None:
    """A connection that ends while it waits is not waited for."""
    budget = ByteBudget(0)
    first, second, third = Waiting(budget), Waiting(budget), Waiting(budget)

    second.leave()
    first.leave()

    assert [one.grants for one in (first, second, third)] == [1, 0, 1]


@given(st.integers(0, 2**32))
def test_everybody_gets_their_turn(seed: int) -> None:
    """Whatever the order of asking, charging and ending, whoever waits goes on in the end."""
    random = Random(seed)
    budget = ByteBudget(1_000)
    waiting: list[Waiting] = []
    held: list[int] = []
    for _ in range(60):
        match random.randrange(4):
            case 0:
                waiting.append(Waiting(budget))
            case 1:
                held.append(random.randrange(1_500))
                budget.charge(held[-1])
            case 2 if held:
                budget.give_back(held.pop(random.randrange(len(held))))
            case _:
                if waiting:
                    waiting.pop(random.randrange(len(waiting))).leave()
    while any(not one.grants for one in waiting):
        going = next(one for one in waiting if one.grants)
        waiting.remove(going)
        going.leave()
    for size in held:
        budget.give_back(size)

    assert budget.free == 1_000
    assert all(one.grants == 1 for one in waiting)


def test_replies_shrink_as_the_budget_fills() -> None:
    """Readers that take nothing make the others' replies smaller, and never none."""

    async def shares() -> list[int]:
        budget = ByteBudget(100 * REPLY_BYTES_MIN)
        return [await ReplyRoom(budget).take(10**9) for _ in range(25)]

    taken = asyncio.run(shares())

    assert taken[0] == 100 * REPLY_BYTES_MIN // REPLY_FRACTION
    assert taken == sorted(taken, reverse=True)
    assert min(taken) == REPLY_BYTES_MIN
    assert sum(taken) <= 100 * REPLY_BYTES_MIN


def test_a_reply_waits_while_the_budget_is_overdrawn() -> None:
    """Memory stays bounded even if every reply is one huge frame; a released one lets others go."""

    async def story() -> list[str]:
        budget = ByteBudget(1_000)
        told: list[str] = []

        async def fetch(name: str) -> ReplyRoom:
            room = ReplyRoom(budget)
            await room.take(100)
            room.keep(900)
            told.append(name)
            return room

        first, second, third = await fetch("first"), await fetch("second"), await fetch("third")
        late = asyncio.create_task(fetch("late"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["first", "second", "third"]
        third.release()
        (await late).release()
        first.release()
        second.release()
        assert budget.free == 1_000
        return told

    assert asyncio.run(story()) == ["first", "second", "third", "late"]


def test_a_reader_that_gives_up_waiting_takes_nothing_with_it() -> None:
    """A connection lost while its reply waits for room leaves the budget as it was."""

    async def story() -> int:
        budget = ByteBudget(0)
        first = ReplyRoom(budget)
        await first.take(10)
        second = ReplyRoom(budget)
        waiting = asyncio.create_task(second.take(10))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        second.release()
        first.release()
        return budget.free

    assert asyncio.run(story()) == 0
