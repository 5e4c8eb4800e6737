"""The figures of a soak: what counts as growth, and that the load and the report hold together."""

import io
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from benchmarks.soak import report
from benchmarks.soak.load import PROCESSES
from benchmarks.soak.samples import Sample, last_half, look, per_minute, size_below

FLAT = Sample(
    seconds=0, rss=200_000_000, uss=150_000_000, files=100, threads=16, data_bytes=1,
    processor_seconds=1.0,
)  # fmt: skip


def samples(
    *, minutes: int, grown_a_minute: float, noise: int = 0, field: str = "uss"
) -> list[Sample]:
    """Return samples of which one figure grows."""
    start = getattr(FLAT, field)
    return [
        replace(
            FLAT,
            seconds=second,
            **{
                field: int(
                    start + grown_a_minute * second / 60 + (noise if second % 10 else -noise)
                )
            },
        )
        for second in range(0, minutes * 60, 5)
    ]


def test_the_slope_is_that_of_the_line_that_fits_best() -> None:
    """Noise that comes and goes is no growth."""
    grown = samples(minutes=10, grown_a_minute=3e6, noise=1_000_000)

    assert per_minute(grown, "uss") == pytest.approx(3e6, rel=0.05)
    assert per_minute(grown, "files") == pytest.approx(0)
    assert per_minute(grown[:1], "uss") == 0


def test_the_first_half_does_not_count() -> None:
    """What fills up and then stays is level."""
    start = samples(minutes=10, grown_a_minute=20e6)
    rest = [replace(start[-1], seconds=600.0 + second) for second in range(0, 660, 5)]

    assert min(one.seconds for one in last_half([*start, *rest])) >= 600
    assert per_minute(last_half([*start, *rest]), "uss") == pytest.approx(0)
    assert list(last_half([])) == []


def test_the_report_tells_growth_from_a_level_broker() -> None:
    """Growth, and parts of the load that ended early, make it fail."""
    console = Console(quiet=True)
    level = samples(minutes=10, grown_a_minute=0.1e6)

    assert report.show(level, {"published": 3}, console)
    assert not report.show(samples(minutes=10, grown_a_minute=1e6), {}, console)
    assert not report.show(level, {"error special: ended early": 1}, console)
    assert not report.show([], {}, console)
    assert "rss" in report.line(level[0])


def test_memory_is_judged_by_what_is_private() -> None:
    """Pages that other processes share are shown, and that they are not judged is said."""
    console = Console(record=True, file=io.StringIO(), width=160)

    assert report.show(samples(minutes=10, grown_a_minute=5e6, field="rss"), {}, console)
    shown = console.export_text()
    assert "not judged: shared pages count" in shown
    assert "judged by its private part (uss)" in shown


def test_a_look_at_a_process_finds_its_files_and_memory(tmp_path: Path) -> None:
    """What is sampled is there; files that go meanwhile do not matter."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a").write_bytes(b"x" * 100)
    sample = look(psutil.Process(), tmp_path, seconds=1)

    assert sample.data_bytes == size_below(tmp_path) == 100
    assert sample.rss > sample.uss > 0
    assert sample.threads > 0
    assert size_below(tmp_path / "nowhere") == 0


def test_every_part_of_the_load_is_run_by_one_process() -> None:
    """Parts are told apart by name in the counts of errors."""
    names = [part.__name__ for parts in PROCESSES.values() for part in parts]

    assert len(PROCESSES) == 5
    assert names
    assert all(part.__doc__ for parts in PROCESSES.values() for part in parts)
