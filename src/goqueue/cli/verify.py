"""``goqueue verify``: a data directory checked from end to end."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.base.errors import DataDirLockedError
from goqueue.base.units import format_size_bytes
from goqueue.cli.failure import FAILED, Failure
from goqueue.cli.output import Grid, count, print_data, print_grid, remark
from goqueue.cli.progress import bytes_bar
from goqueue.cli.session import Session, command

if TYPE_CHECKING:
    from goqueue.storage.findings import Report

DataDir = Annotated[Path, typer.Argument(help="Data directory of a broker that is stopped.")]
Deep = Annotated[bool, typer.Option("--deep", help="Also decode every message: slower.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "verify", is_local=True)(verify)


def verify(session: Session, data_dir: DataDir, deep: Deep = False) -> None:
    """Check a data directory offline, without changing anything.

    Every checksum, every index entry, the sequence of offsets, the catalogue of topics and what is
    remembered of producers. Exit code 0 if all is good, 1 if there is a problem. A note is
    something the broker mends at its next start without loss; it is no problem.
    """
    # The formats need Arrow, which takes a quarter of a second to load.
    from goqueue.storage.read_only import ReadOnlyDisk  # noqa: PLC0415
    from goqueue.storage.verify import Verification  # noqa: PLC0415

    if not data_dir.is_dir():
        raise Failure(f"{data_dir} is not a directory", code="not_a_data_dir")
    if not (data_dir / "meta").is_dir() and not (data_dir / "logs").is_dir():
        raise Failure(
            f"{data_dir} is not a data directory: it has neither meta nor logs",
            code="not_a_data_dir",
            hint="name the directory that `goqueue serve --data` uses",
        )
    disk = ReadOnlyDisk(data_dir)
    try:
        disk.lock()
    except DataDirLockedError as error:
        hint = "stop that broker first: a directory is checked at rest"
        raise Failure(error.message, code=error.code, hint=hint) from error
    started = time.perf_counter()
    try:
        verification = Verification(disk, is_deep=deep)
        with bytes_bar("checking", verification.total_bytes()) as advance:
            for count in verification.run():
                advance(count)
    finally:
        disk.unlock()
    seconds = time.perf_counter() - started
    _print(session, verification.report, data_dir=data_dir, seconds=seconds)
    if not verification.report.is_clean:
        raise typer.Exit(FAILED)


def _print(session: Session, report: "Report", *, data_dir: Path, seconds: float) -> None:
    if not session.is_table:
        print_data(session.output, _plain(report, data_dir=data_dir, seconds=seconds))
        return
    if report.findings:
        rows = [(one.severity.value, one.path, one.text) for one in report.findings]
        print_grid(Grid(columns=("KIND", "FILE", "FINDING"), rows=rows))
    verdict = "all good" if report.is_clean else count(report.problems, "problem")
    remark(
        f"{data_dir}: {verdict}; checked {count(report.messages, 'message')} in"
        f" {count(report.frames, 'frame')}, {count(report.segments, 'segment')},"
        f" {count(report.partitions, 'partition')} and {count(report.topics, 'topic')}"
        f" ({format_size_bytes(report.bytes_checked)}, {seconds:.2f} s)"
    )


def _plain(report: "Report", *, data_dir: Path, seconds: float) -> dict[str, object]:
    return {
        "data_dir": str(data_dir),
        "clean": report.is_clean,
        "problems": report.problems,
        "findings": [
            {"kind": one.severity.value, "file": one.path, "text": one.text}
            for one in report.findings
        ],
        "topics": report.topics,
        "partitions": report.partitions,
        "segments": report.segments,
        "frames": report.frames,
        "messages": report.messages,
        "bytes_checked": report.bytes_checked,
        "seconds": round(seconds, 3),
    }
