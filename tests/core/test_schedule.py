"""The schedule of a partition: hidden until due, never early, cancelled for ever."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.base import limits
from goqueue.base.errors import DelayedNotFoundError, OverloadedError
from goqueue.base.ids import Offset
from goqueue.core.record.queue_rows import Delays
from goqueue.core.schedule import schedule as schedule_module
from goqueue.core.schedule import table as table_module
from goqueue.core.schedule.schedule import Cancelled, Event, Rescheduled, Schedule

NOW_MS = 1_700_000_000_000
LIFE = 5
TICK_MS = 10


def delays(*due_ms: int, ids: tuple[tuple[int, bytes], ...] = ()) -> Delays:
    return Delays(np.arange(len(due_ms)), np.array(due_ms, np.int64), ids)


def schedule_of(*delays_ms: int) -> Schedule:
    """Return a schedule with messages from offset 0 on, each delayed by so much."""
    schedule = Schedule(life=LIFE, now_ms=NOW_MS)
    schedule.advance(NOW_MS)
    schedule.note(Offset(0), delays(*(NOW_MS + one for one in delays_ms)), now_ms=NOW_MS)
    return schedule


def do(schedule: Schedule, verb: str, offset: int, **arguments: int) -> None:
    decision = getattr(schedule, verb)(offset, **arguments)
    for event in decision.events:
        schedule.apply(event)


def recover(schedule: Schedule, journal: list[Event], now_ms: int) -> Schedule:
    """Return what a restart makes of the columns beside the log and the journal."""
    again = Schedule(life=LIFE, now_ms=now_ms)
    again.restore(schedule.dump())
    raw = msgspec.msgpack.encode(journal)
    for event in msgspec.msgpack.decode(raw, type=list[Event]):
        again.apply(event)
    again.advance(now_ms)
    return again


def test_a_message_is_hidden_until_its_millisecond() -> None:
    """Not visible a millisecond before its time; visible in the tick after it."""
    schedule = schedule_of(100, 200)

    assert list(schedule.hidden) == [0, 1]
    assert list(schedule.advance(NOW_MS + 99)) == []
    assert list(schedule.advance(NOW_MS + 100)) == [0]
    assert list(schedule.advance(NOW_MS + 200)) == [1]
    assert schedule.pending == 0


def test_a_delay_that_is_over_hides_nothing() -> None:
    """A time that has passed when the message arrives means at once."""
    schedule = schedule_of(0, -5, 1)

    assert list(schedule.hidden) == [2]


def test_a_cancelled_message_never_becomes_due() -> None:
    """Cancelled means neither now nor when its time comes (A8)."""
    schedule = schedule_of(100, 200)
    do(schedule, "cancel", 0)

    assert list(schedule.hidden) == [1]
    assert list(schedule.cancelled) == [0]
    assert list(schedule.advance(NOW_MS + 10_000)) == [1]
    with pytest.raises(DelayedNotFoundError):
        schedule.cancel(0)


@pytest.mark.parametrize("verb", ["cancel", "reschedule", "find"])
@pytest.mark.parametrize("offset", [0, 2, 7, -1, 2**62])
def test_only_what_waits_can_be_changed(verb: str, offset: int) -> None:
    """What was delivered, never delayed or never there is not found, and nothing changes."""
    schedule = schedule_of(10, 500, -1)
    schedule.advance(NOW_MS + 100)
    arguments = {"due_ms": NOW_MS} if verb == "reschedule" else {}
    with pytest.raises(DelayedNotFoundError):
        getattr(schedule, verb)(offset, **arguments)

    assert list(schedule.hidden) == [1]


def test_a_later_time_takes_the_place_of_the_first() -> None:
    """The first time comes and goes; the message waits for the new one."""
    schedule = schedule_of(100)
    do(schedule, "reschedule", 0, due_ms=NOW_MS + 5_000)

    assert schedule.find(0).due_ms == NOW_MS + 5_000
    assert list(schedule.advance(NOW_MS + 4_999)) == []
    assert list(schedule.advance(NOW_MS + 5_000)) == [0]


def test_an_earlier_time_takes_the_place_of_the_first() -> None:
    """Released at the new time, and not a second time at the first."""
    schedule = schedule_of(60_000)
    do(schedule, "reschedule", 0, due_ms=NOW_MS + 50)

    assert list(schedule.advance(NOW_MS + 50)) == [0]
    assert list(schedule.advance(NOW_MS + 100_000)) == []
    assert schedule.fired_total == 1


def test_a_time_that_has_passed_releases_at_once() -> None:
    """Rescheduled into the past is due at the next tick."""
    schedule = schedule_of(60_000)
    do(schedule, "reschedule", 0, due_ms=NOW_MS - 1)

    assert list(schedule.advance(NOW_MS + TICK_MS)) == [0]


def test_names_lead_to_what_waits() -> None:
    """A name is known while its message waits, and is another's when two have it."""
    schedule = Schedule(life=LIFE, now_ms=NOW_MS)
    named = delays(NOW_MS + 100, NOW_MS + 200, NOW_MS + 300, ids=((0, b"a"), (1, b"b"), (2, b"a")))
    schedule.note(Offset(10), named, now_ms=NOW_MS)

    assert schedule.named(b"a") == [10, 12]
    assert schedule.named(b"c") == []
    schedule.advance(NOW_MS + 150)
    assert schedule.named(b"a") == [12]
    assert recover(schedule, [], NOW_MS + 160).named(b"a") == [12]
    assert recover(schedule, [], NOW_MS + 160).named(b"b") == [11]


def test_a_time_moved_forward_is_not_forgotten_by_a_full_replay() -> None:
    """The log says it was due long ago, the journal says it waits: the journal is right."""
    schedule = schedule_of(100)
    decision = schedule.reschedule(0, due_ms=NOW_MS + 60_000)
    again = Schedule(life=LIFE, now_ms=NOW_MS + 1_000)
    again.note(Offset(0), delays(NOW_MS + 100), now_ms=NOW_MS + 1_000)
    for event in decision.events:
        again.apply(event)

    assert list(again.advance(NOW_MS + 1_000)) == []
    assert list(again.hidden) == [0]
    assert list(again.advance(NOW_MS + 60_000)) == [0]


def test_a_time_moved_back_is_remembered_until_the_first_has_passed() -> None:
    """Released early by its owner, it is not hidden again by a restart that reads the log."""
    schedule = schedule_of(60_000)
    do(schedule, "reschedule", 0, due_ms=NOW_MS + 50)
    schedule.advance(NOW_MS + 50)
    again = Schedule(life=LIFE, now_ms=NOW_MS + 1_000)
    again.note(Offset(0), delays(NOW_MS + 60_000), now_ms=NOW_MS + 1_000)
    for event in schedule.snapshot():
        again.apply(event)
    again.advance(NOW_MS + 1_000)

    assert not again.hidden
    schedule.advance(NOW_MS + 60_000)
    assert schedule.snapshot() == []


def test_what_was_said_of_a_deleted_topic_says_nothing_of_the_next() -> None:
    """A topic of the same name is another one: its offsets were not cancelled."""
    schedule = schedule_of(100)
    schedule.apply(Cancelled(LIFE - 1, BitMap64([0]).serialize()))
    schedule.apply(Rescheduled(LIFE - 1, Offset(0), 1, 1))

    assert list(schedule.hidden) == [0]
    assert not schedule.cancelled


def test_moves_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many messages may be rescheduled; those already rescheduled may be again."""
    monkeypatch.setattr(schedule_module, "RESCHEDULED_MAX", 2)
    schedule = schedule_of(100, 100, 100)
    do(schedule, "reschedule", 0, due_ms=NOW_MS + 200)
    do(schedule, "reschedule", 1, due_ms=NOW_MS + 200)
    with pytest.raises(OverloadedError):
        schedule.reschedule(2, due_ms=NOW_MS + 200)
    do(schedule, "reschedule", 1, due_ms=NOW_MS + 300)

    assert list(schedule.advance(NOW_MS + 250)) == [0, 2]
    assert limits.RESCHEDULED_MAX <= limits.DELAYED_MAX


def test_what_is_cancelled_leaves_the_wheel_and_the_table() -> None:
    """Delays of years that are cancelled at once take no memory until then."""
    schedule, year_ms = Schedule(life=LIFE, now_ms=NOW_MS), 365 * 86_400_000
    for offset in range(20_000):
        wanted = delays(NOW_MS + year_ms, ids=((0, b"name"),))
        schedule.note(Offset(offset), wanted, now_ms=NOW_MS)
        do(schedule, "cancel", offset)

    assert len(schedule._wheel) <= schedule_module.SWEPT_MIN + 1  # noqa: SLF001
    assert len(schedule._table) <= schedule_module.SWEPT_MIN + 1  # noqa: SLF001
    assert schedule.named(b"name") == []


def test_a_message_that_is_moved_again_and_again_has_one_time() -> None:
    """Every new time takes the place of the last, in memory, too."""
    schedule = schedule_of(100_000, 200)
    for number in range(20_000):
        do(schedule, "reschedule", 0, due_ms=NOW_MS + 100_000 + number)

    assert len(schedule._wheel) <= schedule_module.SWEPT_MIN + 5  # noqa: SLF001
    assert list(schedule.advance(NOW_MS + 119_000)) == [1]
    assert list(schedule.advance(NOW_MS + 120_000)) == [0]


def test_what_retention_deletes_leaves_the_wheel() -> None:
    """A delayed message that is gone from the log waits for nothing."""
    schedule = schedule_of(*([3_600_000] * 20_000))
    schedule.trim(Offset(19_999))

    assert schedule.pending == 1
    assert len(schedule._wheel) == 1  # noqa: SLF001
    assert list(schedule.advance(NOW_MS + 3_600_000)) == [19_999]


def test_a_page_shows_what_waits_in_order() -> None:
    """Listing goes by offset, with the time that holds now."""
    schedule = schedule_of(500, 400, 300, 200)
    do(schedule, "reschedule", 2, due_ms=NOW_MS + 9_000)
    do(schedule, "cancel", 1)
    page = [(one.offset, one.due_ms - NOW_MS) for one in schedule.page(skip=1, limit=5)]

    assert page == [(2, 9_000), (3, 200)]
    assert list(schedule.page(skip=3, limit=5)) == []


class Model:
    """A dictionary of offsets and times: what a schedule is, without its speed."""

    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        self.cancelled: set[int] = set()

    def advance(self, now_ms: int) -> list[int]:
        ready = sorted(offset for offset, due_ms in self.due.items() if due_ms <= now_ms)
        for offset in ready:
            del self.due[offset]
        return ready


spans = st.one_of(st.integers(0, 400), st.sampled_from([2_560, 163_840, 700_000_000]))
steps = st.one_of(
    st.tuples(st.just("note"), st.lists(spans, min_size=1, max_size=20)),
    st.tuples(st.just("advance"), spans),
    st.tuples(st.just("cancel"), st.integers(0, 200)),
    st.tuples(st.just("reschedule"), st.tuples(st.integers(0, 200), spans)),
    st.tuples(st.sampled_from(["restart", "compact"]), st.integers(0, 5)),
)


@settings(max_examples=200, deadline=None)
@given(script=st.lists(steps, max_size=40))
def test_it_does_what_a_dictionary_does(script: list[tuple[str, object]]) -> None:
    """After anything, restarts and compactions included, the same waits and the same is due."""
    follow(script)


@settings(max_examples=200, deadline=None)
@given(script=st.lists(steps, max_size=40))
def test_it_does_so_while_it_sweeps(script: list[tuple[str, object]]) -> None:
    """What is taken out of the wheel and the table early is what nobody waits for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_module, "SWEPT_MIN", 0)
        patch.setattr(table_module, "_COMPACT_ROWS_MIN", 0)
        follow(script)


def follow(script: list[tuple[str, object]]) -> None:  # noqa: C901
    """Do the same to a schedule and a dictionary, and compare."""
    now_ms, end = NOW_MS, 0
    journal: list[Event] = []
    schedule, model = Schedule(life=LIFE, now_ms=now_ms), Model()
    for verb, value in script:
        match verb, value:
            case "note", list(wanted):
                due_ms = [-(-(now_ms + span) // TICK_MS) * TICK_MS for span in wanted]
                schedule.note(Offset(end), delays(*due_ms), now_ms=now_ms)
                model.due |= {end + n: due for n, due in enumerate(due_ms) if due > now_ms}
                end += len(wanted)
            case "advance", int(span):
                before, now_ms = now_ms, -(-(now_ms + span) // TICK_MS) * TICK_MS
                if now_ms > before:
                    assert list(schedule.advance(now_ms)) == model.advance(now_ms)
            case "cancel", int(offset) if offset in model.due:
                decision = schedule.cancel(offset)
                journal += decision.events
                schedule.apply(decision.events[0])
                del model.due[offset]
                model.cancelled.add(offset)
            case "reschedule", (int(offset), int(span)) if offset in model.due:
                due = -(-(now_ms + span) // TICK_MS) * TICK_MS
                decision = schedule.reschedule(offset, due_ms=due)
                journal += decision.events
                schedule.apply(decision.events[0])
                model.due[offset] = due
            case "restart", _:
                schedule = recover(schedule, journal, now_ms)
                model.advance(now_ms)
            case "compact", _:
                journal = list(schedule.snapshot())
            case _:
                pass
        assert set(schedule.hidden) == set(model.due)
        assert set(schedule.cancelled) == model.cancelled
        assert schedule.pending == len(model.due)
    shown = {one.offset: one.due_ms for one in schedule.page(skip=0, limit=10_000)}
    assert set(shown) == set(model.due)
