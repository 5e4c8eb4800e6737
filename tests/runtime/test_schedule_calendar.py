"""When cron lines tick, compared with a naive model that looks at every minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from goqueue.core.record.queue_rows import DELAY_ID, ON_CONFLICT
from goqueue.core.recurring.spec import ScheduleSpec, check_spec
from goqueue.core.recurring.ticks import Calendar, IntervalCalendar, Recent
from goqueue.runtime.recurring.calendar import CronCalendar, check_calendar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHANGES = {
    "Europe/Berlin": (datetime(2025, 3, 30, 1, tzinfo=UTC), datetime(2025, 10, 26, 1, tzinfo=UTC)),
    "America/New_York": (datetime(2025, 3, 9, 7, tzinfo=UTC), datetime(2025, 11, 2, 6, tzinfo=UTC)),
    "Australia/Lord_Howe": (
        datetime(2025, 10, 4, 15, 30, tzinfo=UTC),
        datetime(2025, 4, 5, 15, tzinfo=UTC),
    ),
}
"""When clocks are set forward and back in each zone."""

MINUTES = ("0", "30", "15,45", "*", "*/20", "59")
HOURS = ("*", "2", "1-3", "0", "3", "*/2")


def to_ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def numbers(field: str, most: int) -> set[int]:
    """Read one field of a cron line the way a person would."""
    if field == "*":
        return set(range(most))
    if field.startswith("*/"):
        return set(range(0, most, int(field[2:])))
    if "-" in field:
        first, last = map(int, field.split("-"))
        return set(range(first, last + 1))
    return set(map(int, field.split(",")))


def model(minute: str, hour: str, zone: str, first: datetime, days: int) -> list[int]:
    """Return the ticks of some days: every minute is looked at.

    A line with a star ticks whenever the wall shows its time. Any other ticks once for each of its
    times: the first time round, or at the first minute behind a gap.
    """
    minutes, hours, where = numbers(minute, 60), numbers(hour, 24), ZoneInfo(zone)
    count = days * 24 * 60
    if minute.startswith("*") or hour.startswith("*"):
        moments = [first + timedelta(minutes=number) for number in range(count)]
        local = [(one, one.astimezone(where)) for one in moments]
        return [to_ms(one) for one, wall in local if wall.minute in minutes and wall.hour in hours]
    begin = first.astimezone(where).replace(tzinfo=None, hour=0, minute=0) - timedelta(days=1)
    found = set()
    for number in range(count + 3 * 24 * 60):
        wall = begin + timedelta(minutes=number)
        if wall.minute in minutes and wall.hour in hours:
            at = wall.replace(tzinfo=where)
            while at.astimezone(UTC).astimezone(where).replace(tzinfo=None) != wall:
                wall += timedelta(minutes=1)
                at = wall.replace(tzinfo=where)
            found.add(to_ms(at.astimezone(UTC)))
    start_ms, end_ms = to_ms(first), to_ms(first + timedelta(days=days))
    return sorted(one for one in found if start_ms <= one < end_ms)


def counted(calendar: Calendar, after_ms: int, until_ms: int, count_max: int) -> tuple[Recent, int]:
    """Return the last ticks of a range, and how often other work could go between."""
    work = calendar.recent(after_ms=after_ms, until_ms=until_ms, count_max=count_max)
    portions = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, portions
        portions += 1


def ticks(calendar: CronCalendar, start_ms: int, end_ms: int) -> list[int]:
    found: list[int] = []
    at = calendar.after(start_ms - 1)
    while at is not None and at < end_ms:
        found.append(at)
        at = calendar.after(at)
    return found


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("change", [0, 1], ids=["forward", "back"])
@pytest.mark.parametrize("minute", MINUTES)
def test_the_days_on_which_clocks_change(zone: str, change: int, minute: str) -> None:
    """No tick is lost and none comes twice, whichever line, zone and direction it is."""
    first = CHANGES[zone][change] - timedelta(days=1)
    for hour in HOURS:
        wanted = model(minute, hour, zone, first, 2)
        calendar = CronCalendar(f"{minute} {hour} * * *", zone)
        found = ticks(calendar, to_ms(first), to_ms(first + timedelta(days=2)))

        assert found == wanted, f"{minute} {hour}"


@given(
    zone=st.sampled_from(sorted(CHANGES)),
    change=st.sampled_from([0, 1]),
    minute=st.sampled_from(MINUTES),
    hour=st.sampled_from(HOURS),
    from_ms=st.integers(0, DAY_MS),
)
def test_where_the_question_begins_does_not_matter(
    zone: str, change: int, minute: str, hour: str, from_ms: int
) -> None:
    """The next tick after a moment is the first later one of all, from any moment on."""
    first = CHANGES[zone][change] - timedelta(hours=12)
    asked_ms = to_ms(first) + from_ms
    calendar = CronCalendar(f"{minute} {hour} * * *", zone)
    later = [one for one in model(minute, hour, zone, first, 4) if one > asked_ms]

    assert calendar.after(asked_ms) == later[0]


@given(
    line=st.sampled_from(["* * * * *", "*/5 * * * *", "0 9 * * *", "0 0 1 * *", "0 0 29 2 *"]),
    gap_ms=st.integers(0, 400 * DAY_MS),
    count_max=st.sampled_from([1, 3, 1_000]),
)
def test_the_last_ticks_of_a_long_absence(line: str, gap_ms: int, count_max: int) -> None:
    """They are the same as if each had been looked at, and the others are counted."""
    calendar, start_ms = CronCalendar(line, "Europe/Berlin"), 1_700_000_000_000
    recent, _ = counted(calendar, start_ms, start_ms + gap_ms, count_max)
    walked = []
    at = calendar.after(max(start_ms, start_ms + gap_ms - 1_500 * MINUTE_MS))
    while at is not None and at <= start_ms + gap_ms:
        walked.append(at)
        at = calendar.after(at)

    assert list(recent.ticks)[-len(walked) :] == walked[-count_max:] or not walked
    assert len(recent.ticks) <= count_max
    assert recent.earlier <= 1_000


@given(
    zone=st.sampled_from(sorted(CHANGES)),
    change=st.sampled_from([0, 1]),
    minute=st.sampled_from(MINUTES),
    hour=st.sampled_from(HOURS),
    from_ms=st.integers(0, DAY_MS),
    span_ms=st.integers(0, 2 * DAY_MS),
)
def test_ticks_are_the_same_looked_at_from_their_end(
    zone: str, change: int, minute: str, hour: str, from_ms: int, span_ms: int
) -> None:
    """On days on which clocks change as on any other."""
    start_ms = to_ms(CHANGES[zone][change] - timedelta(days=1)) + from_ms
    calendar = CronCalendar(f"{minute} {hour} * * *", zone)
    wanted = ticks(calendar, start_ms + 1, start_ms + span_ms + 1)
    recent, _ = counted(calendar, start_ms, start_ms + span_ms, 10_000)

    assert list(recent.ticks) == wanted
    assert recent.earlier == 0


@pytest.mark.parametrize("line", ["* 3 1 7 *", "*/5 2 * 3,10 SUN", "0 12 1 */6 *", "0 0 29 2 *"])
def test_ticks_far_apart_are_the_same_looked_at_from_their_end(line: str) -> None:
    """With changes of the clocks between two of them."""
    calendar, start_ms = CronCalendar(line, "Europe/Berlin"), 1_700_000_000_000
    until_ms = start_ms + 3 * 366 * DAY_MS
    recent, _ = counted(calendar, start_ms, until_ms, 10_000)

    assert list(recent.ticks) == ticks(calendar, start_ms + 1, until_ms + 1)


@pytest.mark.parametrize("line", ["* * * * *", "0 9 * * *", "* * * 2 *"])
def test_the_ticks_of_ten_years_are_counted_in_portions(line: str) -> None:
    """As many are looked at as are held or counted, some at a time."""
    calendar, now_ms = CronCalendar(line, "Europe/Berlin"), 1_700_000_000_000
    recent, portions = counted(calendar, now_ms - 10 * 366 * DAY_MS, now_ms, 1_000)

    assert (len(recent.ticks), recent.earlier) == (1_000, 1_000)
    assert portions == 2_000 // 32


@given(
    every_ms=st.integers(1_000, HOUR_MS),
    after_ms=st.integers(-HOUR_MS, HOUR_MS),
    span_ms=st.integers(0, HOUR_MS // 8),
    count_max=st.integers(1, 5),
)
def test_intervals(every_ms: int, after_ms: int, span_ms: int, count_max: int) -> None:
    """Ticks are whole numbers of intervals from the beginning on."""
    anchor_ms = 1_700_000_000_000
    after_ms += anchor_ms
    until_ms = after_ms + span_ms
    calendar = IntervalCalendar(every_ms, anchor_ms=anchor_ms)
    count = max((until_ms - anchor_ms) // every_ms, 0)
    wanted = [anchor_ms + number * every_ms for number in range(1, count + 1)]
    wanted = [one for one in wanted if one > after_ms]
    recent, _ = counted(calendar, after_ms, until_ms, count_max)

    assert list(recent.ticks) == wanted[-count_max:]
    assert recent.earlier == len(wanted) - len(recent.ticks)
    assert calendar.after(after_ms) > after_ms
    assert (calendar.after(after_ms) - anchor_ms) % every_ms == 0


def spec(**fields: object) -> ScheduleSpec:
    given_fields = {"topic": "t", "value": b"v", **fields}
    return ScheduleSpec(**given_fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"cron": "0 0 30 2 *"},
            "cron: '0 0 30 2 \\*': bad day-of-month, or no day that there is$",
        ),
        ({"cron": "0 0 31 4 1#5"}, ""),
        ({"cron": "* * * * * *"}, "has 6 fields; five are allowed"),
        ({"cron": "@daily"}, "has 1 fields; five"),
        ({"cron": "61 * * * *"}, "bad minute$"),
        ({"cron": "0 25 * * *"}, "bad hour"),
        ({"cron": "\x1b[31m * * * *"}, "cron: '\\\\x1b"),
        ({"cron": "*" * 257}, "257 characters; the limit is 256"),
        ({"cron": "0 9 * * *", "zone": "Europe/Atlantis"}, "tz: 'Europe/Atlantis' is not known"),
        ({"cron": "0 9 * * *", "zone": "../../etc/passwd"}, "tz: .* is not known"),
        ({"cron": "0 9 * * *", "zone": "right/Europe/Berlin"}, "tz: .* is not known"),
        ({"cron": "0 9 * * *", "zone": ""}, "tz: 0 characters"),
        ({"cron": "0 9 * * *", "zone": "x" * 65}, "tz: 65 characters; 1 to 64"),
        ({"every_ms": 999}, "every: 999ms is not between 1s and 366 days"),
        ({"every_ms": 367 * DAY_MS}, "is not between 1s and 366 days"),
        ({"cron": "0 9 * * *", "every_ms": 1_000}, "give cron or every, one of them"),
        ({}, "give cron or every, one of them"),
        ({"every_ms": 1_000, "value": b"x" * 65_537}, "65537 bytes; the limit of a schedule is"),
        ({"every_ms": 1_000, "key": b"x" * 65_536}, "key: 65536 bytes; the limit is 65535"),
        ({"every_ms": 1_000, "headers": {"__x": b""}}, "headers: names beginning with '__'"),
        ({"every_ms": 1_000, "headers": {"goqueue-tick": b""}}, "is set by the schedule"),
        ({"every_ms": 1_000, "headers": {DELAY_ID: b"x"}}, "goqueue-delay-id is for delayed"),
        ({"cron": "0 9 * * *", "headers": {ON_CONFLICT: b""}}, "conflict is for delayed"),
        ({"every_ms": 1_000, "zone": "Europe/Berlin"}, "tz: is for cron; an interval has no"),
        ({"every_ms": 1_000, "topic": "__consumer_offsets"}, "written by the broker"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, object], message: str) -> None:
    """The error names the field and the limit; text of a stranger is harmless in it."""
    wanted = spec(**fields)
    if not message:
        # A day that a month may not have counts as a weekday then.
        check_calendar(wanted, now_ms=0)
        return

    def check() -> None:
        check_spec(wanted)
        check_calendar(wanted, now_ms=1_700_000_000_000)

    with pytest.raises(InvalidRequestError, match=message):
        check()


def test_a_line_that_never_comes_is_refused() -> None:
    """Also one that the fields alone allow: the fifth Monday of a February of 28 days."""
    calendar = CronCalendar("0 0 * 2 MON#5", "UTC")
    after = calendar.after(1_700_000_000_000)

    assert after is not None
    assert datetime.fromtimestamp(after / 1_000, UTC).year == 2044
    assert calendar.after(9_000 * 366 * DAY_MS) is None
