"""The drawing of a trace, at the widths people have."""

import pytest

from goqueue.cli.trace_timeline import BAR_WIDTH, draw_timeline
from goqueue.wire.trace_calls import SpanEntry, TraceEntry

MS = 1_000_000
REASON = "the customer could not be charged because the card expired and nobody answers"
CONSUMER = "goqueue-consume-5381a217cf9b224f"
FAILED = {"from_topic": "orders", "from_partition": 0, "reason": "REJECTED", "attempts": 4}


def span(number: int, event: str, parent: int | None = None, **more: object) -> SpanEntry:
    return SpanEntry(
        trace_id="ab" * 16,
        span_id=f"{number:016x}",
        event_type=event,
        timestamp_ns=number * 1_500 * MS,
        topic="orders",
        partition=0,
        offset=7,
        parent_span_id=None if parent is None else f"{parent:016x}",
        **more,  # type: ignore[arg-type]
    )


TRACE = TraceEntry(
    "ab" * 16, "orders", 0, 7, 0, 6_000 * MS, "failed", 4,
    [
        span(0, "publish.received", duration_ns=3 * MS),
        span(1, "delay.scheduled", 0, attributes={"deliver_at": "2026-11-18T02:15:20.023Z"}),
        span(2, "consume.fetched", 0, consumer_group="billing", consumer_id=CONSUMER),
        span(3, "dlq.routed", 2, consumer_group="billing", error=REASON, attributes=FAILED),
    ],
)  # fmt: skip


def draw(capsys: pytest.CaptureFixture[str], width: int | None) -> list[str]:
    draw_timeline(TRACE, width)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [72, 80, 100, 120, 200])
def test_a_trace_fits_the_terminal(capsys: pytest.CaptureFixture[str], width: int) -> None:
    """No line is too long, no word is broken, whatever the width."""
    lines = draw(capsys, width)
    words = " ".join(lines).split()

    assert max(map(len, lines)) <= width
    for word in (f"billing/{CONSUMER}", "deliver_at=2026-11-18T02:15:20.023Z", "reason=REJECTED"):
        assert word in words
    assert REASON in " ".join(words)
    assert all(line == line.rstrip() for line in lines)


def test_notes_stand_below_their_event_where_there_is_no_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At 80 columns a note has a line of its own, at 160 the one of its event."""
    narrow = draw(capsys, 80)
    wide = draw(capsys, 160)

    fetched = next(place for place, line in enumerate(narrow) if "consume.fetched" in line)
    assert CONSUMER not in narrow[fetched]
    assert narrow[fetched + 1].strip() == f"billing/{CONSUMER}"
    assert any("consume.fetched" in line and CONSUMER in line for line in wide)


def test_a_program_gets_one_line_for_each_span(capsys: pytest.CaptureFixture[str]) -> None:
    """So that grep finds the event and what is said of it together."""
    lines = draw(capsys, None)

    assert len(lines) == 3 + len(TRACE.spans)
    assert lines[-1].endswith(f"attempts=4  error: {REASON}")


def test_bars_show_where_time_went(capsys: pytest.CaptureFixture[str]) -> None:
    """The last event lies at the right end of the bar, the first at its left."""
    lines = draw(capsys, None)
    start = next(line for line in lines if "publish.received" in line).index("━")

    assert lines[-1].index("▏") - start == BAR_WIDTH * 3 * 1_500 // 6_000
