"""How the demonstration looks: on terminals small and large, in lines, and when it is over."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo.books import Check
from examples.demo.errors import errors_of_children
from examples.demo.report import Report
from examples.demo.screen import draw, line_of, spark_line, tell_report
from examples.demo.sight import GroupSight, Phase, VisibleFrames
from goqueue.spark.pipelines.state import QueryState

BUSY = VisibleFrames(
    phase=Phase.RUNNING,
    seconds=42.0,
    seconds_left=18.0,
    published=12_345,
    published_per_second=300.0,
    kinds={"good": 12_000, "late": 200, "duplicate": 100, "garbled": 45},
    group=GroupSight(members=2, acked=11_000, lag=1_300, in_flight=250, waiting=7, dead=45),
    spark="running",
    queries={
        name: QueryState(state="running", rows=12_000, batches=7, batch_ms=1_250, lag_rows=345)
        for name in ("clean_orders", "lake", "quarantine_orders", "totals")
    },
    quarantined={f"orders: a rule with a rather long name {place}": 9 for place in range(5)},
    totals=[(f"category {place}", 100, 123_456) for place in range(5)],
    windows=5,
    rates=[100.0, 200.0, 300.0],
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_view_fits_a_terminal(width: int) -> None:
    """Nothing is wider than the terminal, and the usual 24 lines are enough."""
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(draw(BUSY, is_stopping=False))
    lines = out.getvalue().splitlines()

    assert max(map(len, lines)) <= width
    assert len(lines) <= 24
    assert "12,345" in out.getvalue()


def test_a_line_tells_how_it_stands() -> None:
    """Where there is no terminal, one line has the figures that matter."""
    line = line_of(BUSY)

    assert "running" in line
    assert "published 12,345 (300/s)" in line
    assert "group lag 1,300, dead 45" in line
    assert "quarantined 45" in line


def test_bars_grow_with_their_values() -> None:
    """The highest value has the highest bar; nothing at all has none."""
    assert spark_line([0.0, 50.0, 100.0], width=4) == "  ▄█"
    assert spark_line([], width=2) == "  "


def test_a_report_that_does_not_add_up_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing is told with what was expected."""
    report = Report(
        seconds=1.0,
        seed=1,
        folder=Path("/demo"),
        rows=10,
        kinds={},
        went={"group": {"invoices": 9, "dead letters": 0}},
        faults={},
        checks=[
            Check(name="all is there", expected=10, found=9, is_same=False),
            Check(name="the same ones", expected=10, found=10, is_same=False),
            Check(name="nothing else", expected=0, found=0, is_same=True),
        ],
        latency={"group": None},
        no_spark="no Java",
        picture=None,
    )
    tell_report(report)
    out = capsys.readouterr().out

    assert "NO  all is there: 10, found 9\n" in out
    assert "NO  the same ones: 10, found 10 others\n" in out
    assert "ok  nothing else: 0\n" in out
    assert "it does not add up" in out
    assert "no Java" in out


def test_errors_of_children_go_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Ours are still seen, theirs are in the file; afterwards all is as it was."""
    speak = [sys.executable, "-c", "import os; os.write(2, b'child')"]
    with errors_of_children(tmp_path / "log"):
        subprocess.run(speak, check=True)
        sys.stderr.write("parent\n")
    os.write(2, b"after\n")
    seen = capfd.readouterr().err

    assert (tmp_path / "log").read_text() == "child"
    assert seen == "parent\nafter\n"
