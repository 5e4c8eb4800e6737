"""Times as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.times import format_time_us, parse_moment_us, parse_time_us

YEAR_9999_US = 253_402_300_800_000_000


@given(st.integers(min_value=-62_135_596_800_000_000 + 86_400_000_000, max_value=YEAR_9999_US - 1))
def test_what_is_written_can_be_read(timestamp_us: int) -> None:
    """Every microsecond of every year people write comes back the same."""
    text = format_time_us(timestamp_us)

    assert parse_time_us(text) == timestamp_us
    assert len(text) == len("2026-01-31T12:00:00.000000000Z")


@pytest.mark.parametrize(
    ("text", "timestamp_us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:01Z", 1_000_000),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.000001999Z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00 01:00", 0),
        ("1969-12-31T21:30:00-02:30", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
    ],
)
def test_many_spellings_are_understood(text: str, timestamp_us: int) -> None:
    """Zones, fractions and every spelling of RFC 3339; nanoseconds are cut to microseconds."""
    assert parse_time_us(text) == timestamp_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:00:60Z",
        "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00.0000000000Z",
        "2026-01-31T12:00:00+25:00",
        "2026-01-31T12:00:00+01:60",
        "2026-01-31T12:00:00+0100",
        "0000-01-01T00:00:00Z",
        "\uff12\uff10\uff12\uff16-01-31T12:00:00Z",
        "2026-01-31T12:00:00Z\n",
        "\x1b[31m",
        "9" * 100_000,
    ],
)
def test_what_is_no_time_is_refused_in_print(text: str) -> None:
    """The message can be shown anywhere, whatever was sent."""
    with pytest.raises(ValueError, match=r"is not a time|is in no time zone") as caught:
        parse_moment_us(text)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


def test_a_moment_may_be_milliseconds() -> None:
    """A plain number counts milliseconds since 1970."""
    assert parse_moment_us("1700000000123") == 1_700_000_000_123_000
    assert parse_moment_us("0") == 0
