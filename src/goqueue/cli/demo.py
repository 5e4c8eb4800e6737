"""``goqueue demo``: everything at once, on this machine, with a report that must add up."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from goqueue.base.units import SECOND_MS
from goqueue.cli.demo_screen import Screen, tell_report
from goqueue.cli.failure import Failure
from goqueue.cli.output import print_data
from goqueue.cli.session import Session, command, read_timeout_ms
from goqueue.cli.stop_wish import stop_wish

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RATE_MAX: Final = 5_000
ORDERS_MAX: Final = 100_000_000

Seconds = Annotated[
    str | None,
    typer.Option(
        "--seconds", help="How long everything runs, e.g. 30 or 2m; until Ctrl-C if not given."
    ),
]
Rate = Annotated[int, typer.Option(min=1, max=RATE_MAX, help="Orders a second.")]
Orders = Annotated[
    int, typer.Option(min=1, max=ORDERS_MAX, help="End after so many orders.", show_default=False)
]
Seed = Annotated[int, typer.Option(help="Which orders: the same seed makes the same ones.")]
Data = Annotated[
    Path,
    typer.Option("--data", "-d", help="Folder for all of it; emptied if a demo ran in it before."),
]
NoSpark = Annotated[
    bool, typer.Option("--no-spark", help="Leave the pipeline out; the broker and the group stay.")
]
Native = Annotated[
    str, typer.Option(help="Address of the broker [127.0.0.1:7070, or a free port].")
]
Http = Annotated[str, typer.Option(help="Address of HTTP [127.0.0.1:8080, or a free port].")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "demo", is_local=True)(demo)


def demo(
    session: Session,
    *,
    seconds: Seconds = None,
    rate: Rate = 300,
    orders: Orders = ORDERS_MAX,
    seed: Seed = 1,
    data: Data = Path("data/demo"),
    no_spark: NoSpark = False,
    native: Native = "",
    http: Http = "",
) -> None:
    """See all of it at work: a broker, a stream of orders, a consumer group, a Spark pipeline.

    Some orders come twice, late or broken. The group charges them, with retries and dead letters;
    the pipeline checks, enriches and counts them into a topic and a Parquet lake. At the end every
    row is looked for where it should be; the exit code is 1 if one is not there.
    """
    # All that it needs takes a second to load, which other commands need not wait for.
    from goqueue.spark.demo.report import plain  # noqa: PLC0415
    from goqueue.spark.demo.run import DemoOptions, run_demo  # noqa: PLC0415

    duration_ms = None if seconds is None else read_timeout_ms(seconds, "--seconds")
    with (
        stop_wish(*SIGNALS) as stop,
        Screen(is_live=session.is_table and sys.stdout.isatty(), stop=stop) as screen,
    ):
        options = DemoOptions(
            folder=data,
            seconds=None if duration_ms is None else duration_ms / SECOND_MS,
            rate=rate,
            orders_max=orders,
            seed=seed,
            native=native,
            http=http,
            wants_spark=not no_spark,
            stop=stop,
            watch=screen.update,
            tell=screen.tell,
        )
        report = run_demo(options)
    if session.is_table:
        tell_report(report)
    else:
        print_data(session.output, plain(report))
    if not report.adds_up:
        raise Failure(
            "the books do not add up",
            code="demo_mismatch",
            hint=f"what is left to look at is in {report.folder}",
        )
