"""The wheel: nothing early, nothing lost, whatever the distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.core.schedule.wheel import HORIZON_TICKS, TICK_MS, Wheel

START_MS = 1_700_000_000_003
SPANS = [9, 10, 2_559, 2_560, 163_839, 163_840, 10_485_759, 10_485_760, 671_088_639, 671_088_640]


def due(wheel: Wheel, now_ms: int) -> list[int]:
    return sorted(wheel.advance(now_ms).tolist())


def test_the_levels_are_those_of_the_contract() -> None:
    """256 slots of 10 ms, then three times 64: 7.77 days in all."""
    assert TICK_MS == 10
    assert HORIZON_TICKS * TICK_MS == 671_088_640


@pytest.mark.parametrize("span_ms", [1, *SPANS, 100 * 365 * 86_400_000])
def test_a_time_comes_up_in_its_tick(span_ms: int) -> None:
    """Not a millisecond before its time, and within the next ten behind it."""
    wheel = Wheel(START_MS)
    wheel.add(START_MS + span_ms, 7)

    assert due(wheel, START_MS + span_ms - 1) == []
    assert due(wheel, START_MS + span_ms + TICK_MS - 1) == [7]
    assert len(wheel) == 0
    assert wheel.next_ms is None


@pytest.mark.parametrize("span_ms", SPANS)
def test_one_who_sleeps_until_told_misses_nothing(span_ms: int) -> None:
    """Advancing only when the wheel says so brings each time up in its tick, in a few steps."""
    wheel = Wheel(START_MS)
    wheel.add(START_MS + span_ms, 7)
    wheel.add(START_MS + 2 * span_ms, 8)
    found: list[tuple[int, int]] = []
    steps = 0
    while (next_ms := wheel.next_ms) is not None:
        found += [(next_ms, offset) for offset in due(wheel, next_ms)]
        steps += 1

    first, second = found
    assert first[1] == 7
    assert second[1] == 8
    assert 0 <= first[0] - (START_MS + span_ms) < TICK_MS
    assert 0 <= second[0] - (START_MS + 2 * span_ms) < TICK_MS
    assert steps <= 12


def test_time_that_goes_back_changes_nothing() -> None:
    """A wheel never turns back; what is left is due when it was."""
    wheel = Wheel(START_MS)
    wheel.add(START_MS + 100, 1)
    due(wheel, START_MS + 50)

    assert due(wheel, START_MS - 86_400_000) == []
    assert due(wheel, START_MS + 110) == [1]


def test_a_time_that_has_passed_comes_up_next() -> None:
    """Put in late, it is due at the very next tick."""
    wheel = Wheel(START_MS)
    wheel.add(START_MS - 5_000, 1)
    wheel.add_many(np.array([0, START_MS]), np.array([2, 3]))

    assert due(wheel, START_MS + TICK_MS) == [1, 2, 3]


times = st.one_of(st.integers(-50, 3_000), st.sampled_from(SPANS), st.integers(1, 10**10))
steps = st.one_of(
    st.tuples(st.just("one"), times),
    st.tuples(st.just("many"), st.lists(times, min_size=2, max_size=30)),
    st.tuples(st.just("advance"), st.one_of(st.integers(0, 3_000), st.sampled_from(SPANS))),
    st.tuples(st.just("sleep"), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(script=st.lists(steps, max_size=40))
def test_it_does_what_a_sorted_list_does(script: list[tuple[str, object]]) -> None:
    """After any inserts and jumps it gives back what a sorted list cut at the tick would."""
    now_ms, number = START_MS, 0
    wheel, model = Wheel(now_ms), []
    for verb, value in script:
        match verb, value:
            case "one", int(span):
                wheel.add(now_ms + span, number)
                model.append((now_ms + span, number))
                number += 1
            case "many", list(spans):
                items = [(now_ms + span, number + row) for row, span in enumerate(spans)]
                wheel.add_many(
                    np.array([when for when, _ in items]), np.arange(len(items)) + number
                )
                model += items
                number += len(items)
            case "advance", int(span):
                before, now_ms = now_ms, now_ms + span
                if now_ms // TICK_MS == before // TICK_MS:
                    continue
                reached = now_ms // TICK_MS * TICK_MS
                wanted = sorted(offset for when, offset in model if when <= reached)
                model = [item for item in model if item[0] > reached]
                assert due(wheel, now_ms) == wanted
            case _:
                next_ms = wheel.next_ms
                assert (next_ms is None) == (not model)
                if next_ms is not None:
                    earliest = max(min(model)[0], now_ms // TICK_MS * TICK_MS + 1)
                    assert now_ms < next_ms + TICK_MS
                    assert next_ms <= -(-earliest // TICK_MS) * TICK_MS
    assert len(wheel) == len(model)
    assert due(wheel, now_ms + 10**11) == sorted(offset for _, offset in model)
