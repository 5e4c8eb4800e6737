"""The checker of linearizability finds what a register cannot have done, and nothing else."""

from random import Random

import pytest

from goqueue.testing import linearizability
from goqueue.testing.linearizability import (
    NEVER,
    HistoryTooWideError,
    TimedOperation,
    by_key,
    find_violation,
)

Input = tuple[str, int | None]


def step(state: int, asked: Input, output: int | None) -> int | None:
    """Return what a register is behind a read or a write; None if it cannot have said so."""
    verb, value = asked
    if verb == "write":
        assert value is not None
        return value
    return state if output is None or output == state else None


def write(value: int, called: int, returned: int = NEVER) -> TimedOperation[Input, int]:
    return TimedOperation(
        client="w", input=("write", value), output=value, called=called, returned=returned
    )


def read(value: int, called: int, returned: int) -> TimedOperation[Input, int]:
    return TimedOperation(
        client="r", input=("read", None), output=value, called=called, returned=returned
    )


def is_linearizable(*history: TimedOperation[Input, int]) -> bool:
    return find_violation(history, initial=0, step=step) is None


def test_one_after_the_other_is_linearizable() -> None:
    assert is_linearizable(write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7))


def test_a_read_of_what_was_overwritten_before_is_found() -> None:
    assert not is_linearizable(write(1, 0, 1), write(2, 2, 3), read(1, 4, 5))


def test_overlapping_operations_may_come_in_either_order() -> None:
    assert is_linearizable(write(1, 0, 10), write(2, 0, 10), read(1, 11, 12))
    assert is_linearizable(write(1, 0, 10), write(2, 0, 10), read(2, 11, 12))


def test_two_readers_agree_on_the_order() -> None:
    assert not is_linearizable(
        write(1, 0, 10), write(2, 0, 10), read(1, 11, 12), read(2, 13, 14), read(1, 15, 16)
    )


def test_a_write_without_an_answer_may_have_happened_or_not() -> None:
    assert is_linearizable(write(1, 0), read(0, 5, 6), read(1, 7, 8))
    assert is_linearizable(write(1, 0), read(0, 5, 6))
    assert not is_linearizable(write(1, 0), read(1, 5, 6), read(0, 7, 8))


def test_the_longest_order_is_returned_for_the_report() -> None:
    good, bad = write(1, 0, 1), read(2, 2, 3)

    assert find_violation([good, bad], initial=0, step=step) == [good]


def test_keys_are_checked_apart() -> None:
    history = [write(1, 0, 1), read(1, 2, 3)]

    assert [len(some) for some in by_key(history, lambda one: one[0]).values()] == [1, 1]


def test_a_history_that_is_too_wide_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "STEPS_MAX", 100)
    wide = [write(number, 0, 100) for number in range(1, 12)]

    with pytest.raises(HistoryTooWideError):
        find_violation([*wide, read(99, 101, 102)], initial=0, step=step)


@pytest.mark.parametrize("seed", range(200))
def test_histories_of_a_real_register_pass_and_spoiled_ones_are_judged_as_by_brute_force(
    seed: int,
) -> None:
    """Operations happen at a moment inside their interval; then one answer may be spoiled."""
    random = Random(seed)
    moments = sorted(random.sample(range(1, 200), 7))
    state, history = 0, []
    for moment in moments:
        called, returned = moment - random.randrange(40), moment + random.randrange(40)
        if random.random() < 0.5:
            state = random.randrange(1, 4)
            history.append(write(state, called, random.choice([returned, NEVER])))
        else:
            history.append(read(state, called, returned))
    assert is_linearizable(*history)
    row = random.randrange(len(history))
    if history[row].input[0] == "read":
        history[row] = read(random.randrange(4), history[row].called, history[row].returned)

    assert is_linearizable(*history) == _brute(history, 0)


def _brute(left: list[TimedOperation[Input, int]], state: int) -> bool:
    if not any(one.is_known for one in left):
        return True
    first = min(one.returned for one in left)
    for row, one in enumerate(left):
        if one.called > first:
            continue
        following = step(state, one.input, one.output if one.is_known else None)
        if following is not None and _brute([*left[:row], *left[row + 1 :]], following):
            return True
    return False
