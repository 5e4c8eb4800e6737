"""``goqueue top``: what the broker does, as it does it."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.units import SECOND_MS
from goqueue.cli.failure import usage
from goqueue.cli.output import print_data
from goqueue.cli.session import Session, command, read_timeout_ms
from goqueue.cli.top_rates import TopView, sight_of, tell
from goqueue.cli.top_screen import draw, draw_plain

if TYPE_CHECKING:
    import goqueue
    from goqueue.wire.overview_calls import Overview

INTERVAL_MS_MIN: Final = 100

Once = Annotated[bool, typer.Option("--once", help="Look once and end; for scripts.")]
Interval = Annotated[str, typer.Option("-i", "--interval", help="Time between two looks.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "top")(top)


def top(session: Session, once: Once = False, interval: Interval = "1s") -> None:
    """Watch rates, lag, leases, lanes, delays and dead letters; Ctrl-C ends it.

    With --once it looks twice, one interval apart, prints what it saw and ends.
    """
    interval_ms = read_timeout_ms(interval, "--interval")
    if interval_ms < INTERVAL_MS_MIN:
        raise usage(f"--interval: at least {INTERVAL_MS_MIN}ms")
    seconds = interval_ms / SECOND_MS
    try:
        with session.connect() as client:
            if once or not session.is_table or not sys.stdout.isatty():
                _look_once(session, client, seconds)
            else:
                _watch(session, client, seconds)
    except KeyboardInterrupt:
        # It is how one leaves: nothing was broken off.
        return


def _look_once(session: Session, client: "goqueue.Client", seconds: float) -> None:
    before = client.overview()
    time.sleep(seconds)
    sight = sight_of(before, client.overview())
    if session.is_table:
        draw_plain(sight)
    else:
        print_data(session.output, tell(sight))


def _watch(session: Session, client: "goqueue.Client", seconds: float) -> None:
    # Rich takes a while to load: only those who watch wait for it.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    console = Console()
    before: Overview = client.overview()
    sight: TopView = sight_of(before, before)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(sight, console.size, session.address), refresh=True)
            time.sleep(seconds)
            now = client.overview()
            sight, before = sight_of(before, now), now
