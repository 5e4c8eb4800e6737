"""A wall clock that is set: nothing is due or too old before its time has really passed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.ids import Offset
from goqueue.base.units import DAY_MS, HOUR_MS, SECOND_MS
from goqueue.core.record.queue_rows import Delays
from goqueue.core.schedule.leads import sender_shift_ms
from goqueue.core.schedule.schedule import Schedule
from goqueue.core.schedule.shifts import Shifts

NOW_MS = 1_700_000_000_000
JUMPS_MS = (30 * SECOND_MS, -30 * SECOND_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)


def test_the_lowest_shift_of_a_window_counts() -> None:
    """A shift that ended before the window began says nothing of what is in it."""
    shifts = Shifts()
    shifts.note(-100, steady_ms=1_000)
    shifts.note(50, steady_ms=2_000)

    assert shifts.last_ms == 50
    assert shifts.lowest_ms(since_ms=0) == -100
    assert shifts.lowest_ms(since_ms=2_000) == -100
    assert shifts.lowest_ms(since_ms=2_001) == 50
    assert shifts.lowest_ms(since_ms=9_999) == 50


def test_many_changes_are_remembered_in_little_room() -> None:
    """However often the wall clock is set, the lowest shift of long ago is not forgotten."""
    shifts = Shifts()
    shifts.note(-7_000, steady_ms=0)
    for step in range(1, 1_000):
        shifts.note(step, steady_ms=step)

    assert shifts.lowest_ms(since_ms=-1) == -7_000
    assert shifts.lowest_ms(since_ms=1_000) == 999
    assert "65 changes" not in repr(shifts)


@given(
    jumps=st.lists(st.tuples(st.integers(0, 500), st.integers(-900, 900)), max_size=30),
    window_ms=st.integers(1, 800),
)
def test_nothing_is_too_old_before_it_has_waited_for_its_window(
    jumps: list[tuple[int, int]], window_ms: int
) -> None:
    """Whatever stamped by the wall clock is younger than the window is so by this time, too."""
    shifts, steady_ms, shift_ms = Shifts(), 0, 0
    stamps = [(0, 0)]
    for passed_ms, jump_ms in jumps:
        steady_ms, shift_ms = steady_ms + passed_ms, shift_ms + jump_ms
        shifts.note(shift_ms, steady_ms=steady_ms)
        stamps.append((steady_ms, steady_ms + shift_ms))
        now_ms = steady_ms + shifts.lowest_ms(since_ms=steady_ms - window_ms)

        for written_ms, stamp_ms in stamps:
            if stamp_ms < now_ms - window_ms:
                assert steady_ms - written_ms > window_ms


@pytest.mark.parametrize("shift_ms", JUMPS_MS)
def test_a_senders_clock_is_told_by_the_times_of_its_messages(shift_ms: int) -> None:
    """It agrees with our wall clock or with steady time; in doubt the later delivery counts."""

    def sender(first_ms: int, last_ms: int | None = None) -> int:
        last_ms = first_ms if last_ms is None else last_ms
        return sender_shift_ms(shift_ms, steady_ms=NOW_MS, first_ms=first_ms, last_ms=last_ms)

    assert sender(NOW_MS + shift_ms - 5) == shift_ms
    assert sender(NOW_MS - 5) == 0
    assert sender(NOW_MS - 9 * DAY_MS) == min(shift_ms, 0)
    assert sender(NOW_MS + 9 * DAY_MS) == min(shift_ms, 0)
    assert sender(*sorted((NOW_MS, NOW_MS + shift_ms))) == min(shift_ms, 0)
    assert sender_shift_ms(0, steady_ms=NOW_MS, first_ms=0, last_ms=0) == 0


class Waiting:
    """A message of the naive model: when it is due, by which clock, and the shift as it came."""

    def __init__(self, *, due_ms: int, came_ms: int, sender_ms: int) -> None:
        self.due_ms = due_ms
        self.came_ms = came_ms
        self.sender_ms = sender_ms

    def is_due(self, steady_ms: int, shift_ms: int) -> bool:
        set_back_ms = max(self.came_ms - shift_ms, 0)
        return steady_ms + self.sender_ms - set_back_ms >= self.due_ms


spans = st.sampled_from([10, 50, 400, 2_560, 30_000, 163_840, 3_600_000])
steps = st.one_of(
    st.tuples(st.just("note"), st.lists(spans, min_size=1, max_size=5)),
    st.tuples(st.just("note afar"), st.lists(spans, min_size=1, max_size=5)),
    st.tuples(st.just("advance"), spans),
    st.tuples(st.just("jump"), st.one_of(spans, spans.map(lambda span: -span))),
    st.tuples(st.just("reschedule"), st.tuples(st.integers(0, 20), spans)),
)


@settings(max_examples=300, deadline=None)
@given(script=st.lists(steps, max_size=40))
def test_a_schedule_follows_a_clock_that_is_set(script: list[tuple[str, object]]) -> None:  # noqa: C901
    """Any sequence of jumps: due is what has waited long enough, and by the wall clock if back."""
    now_ms, shift_ms, end = NOW_MS, 0, 0
    schedule = Schedule(life=1, now_ms=now_ms)
    model: dict[int, Waiting] = {}
    for verb, value in script:
        match verb, value:
            case (("note" | "note afar"), list(wanted)):
                sender_ms = shift_ms if verb == "note" else 0
                due_ms = [now_ms + sender_ms + span for span in wanted]
                delays = Delays(np.arange(len(wanted)), np.array(due_ms, np.int64))
                schedule.note(Offset(end), delays, now_ms=now_ms, sender_ms=sender_ms)
                for row, due in enumerate(due_ms):
                    model[end + row] = Waiting(due_ms=due, came_ms=shift_ms, sender_ms=sender_ms)
                end += len(wanted)
            case "advance", int(span):
                now_ms += span
            case "jump", int(span):
                shift_ms += span
            case "reschedule", (int(offset), int(span)) if offset in model:
                sender_ms = min(shift_ms, 0)
                due = now_ms + sender_ms + span
                schedule.apply(schedule.reschedule(offset, due_ms=due).events[0])
                model[offset] = Waiting(due_ms=due, came_ms=shift_ms, sender_ms=sender_ms)
            case _:
                pass
        schedule.turn(shift_ms, now_ms=now_ms)
        due_now = {offset for offset, one in model.items() if one.is_due(now_ms, shift_ms)}
        assert set(schedule.advance(now_ms)) == due_now
        for offset in due_now:
            del model[offset]
        for one in schedule.page(skip=0, limit=1_000):
            assert one.release_ms > now_ms
            assert model[one.offset].is_due(one.release_ms, shift_ms)
    assert set(schedule.hidden) == set(model)
