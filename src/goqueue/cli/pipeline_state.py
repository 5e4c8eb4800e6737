"""``goqueue pipeline status``, ``stop``, ``reset`` and ``list``: pipelines that have run here."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.units import SECOND_MS
from goqueue.cli.failure import Failure
from goqueue.cli.output import Grid, count, print_data, say
from goqueue.cli.pipeline_options import State
from goqueue.cli.pipeline_screen import tell_state
from goqueue.cli.session import Session, command, confirm

if TYPE_CHECKING:
    from goqueue.spark.pipelines.state import StateFolder

POLL_SECONDS: Final = 0.1

Sink = Annotated[str | None, typer.Option(help="Only this query, as `status` calls it.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", "-f", "--force", help="Do not ask.")]


def complete_names(incomplete: str) -> list[str]:
    """Return the pipelines a shell may offer."""
    from goqueue.spark.pipelines.state import DEFAULT_ROOT, pipelines_in  # noqa: PLC0415

    names = [folder.name for folder in pipelines_in(Path(DEFAULT_ROOT))]
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(help="Name of the pipeline.", autocompletion=complete_names)]


def register(pipeline: typer.Typer) -> None:
    """Add the commands."""
    command(pipeline, "list", is_local=True)(list_pipelines)
    command(pipeline, "status", is_local=True)(status)
    command(pipeline, "stop")(stop)
    command(pipeline, "reset", is_local=True)(reset)


def _folder(name: str, state: Path | None) -> "StateFolder":
    from goqueue.base.names import check_name  # noqa: PLC0415
    from goqueue.spark.pipelines.state import (  # noqa: PLC0415
        DEFAULT_ROOT,
        PipelineUnknownError,
        StateFolder,
    )

    root = Path(DEFAULT_ROOT) if state is None else state
    folder = StateFolder(root, check_name(name, field="pipeline name"))
    if not folder.exists():
        raise PipelineUnknownError(f"no pipeline {name} has run in {root}")
    return folder


def list_pipelines(session: Session, state: State = None) -> None:
    """List the pipelines that have run below a folder."""
    from goqueue.base.errors import GoQueueError  # noqa: PLC0415
    from goqueue.spark.pipelines.state import DEFAULT_ROOT, pipelines_in, plain  # noqa: PLC0415

    states = []
    for folder in pipelines_in(Path(DEFAULT_ROOT) if state is None else state):
        try:
            states.append(folder.read())
        except GoQueueError:
            # One that was killed before it could say anything has nothing to show.
            continue
    rows = [
        (
            one.name,
            one.state,
            one.mode,
            len(one.queries),
            f"{sum(query.rows for query in one.queries.values()):,}",
            one.file,
        )
        for one in states
    ]
    columns = ("NAME", "STATE", "MODE", ">QUERIES", ">ROWS", "FILE")
    session.show(
        [plain(one) for one in states],
        Grid(columns=columns, rows=rows, empty="no pipeline has run here"),
    )


def status(session: Session, name: Name, state: State = None) -> None:
    """Tell how a pipeline stands: rows a second, time of a batch, lag."""
    from goqueue.spark.pipelines.state import plain  # noqa: PLC0415

    found = _folder(name, state).read()
    if session.is_table:
        tell_state(found)
    else:
        print_data(session.output, plain(found))


def stop(session: Session, name: Name, state: State = None) -> None:
    """Stop a pipeline that runs, and wait until it has."""
    folder = _folder(name, state)
    if not folder.is_running():
        raise Failure(f"{name} does not run", code="not_running")
    folder.ask_to_stop()
    deadline = time.monotonic() + session.timeout_ms / SECOND_MS
    while folder.is_running():
        if time.monotonic() > deadline:
            raise Failure(
                f"{name} has not stopped yet", code="deadline_exceeded", hint="it was asked to"
            )
        time.sleep(POLL_SECONDS)
    if session.is_table:
        say(f"pipeline {name} stopped")
    else:
        print_data(session.output, {"name": name, "state": folder.read().state})


def reset(
    session: Session, name: Name, sink: Sink = None, yes: Yes = False, state: State = None
) -> None:
    """Forget how far a pipeline is: the next run begins anew and writes everything again."""
    folder = _folder(name, state)
    sinks = folder.sinks()
    if sink is not None and sink not in sinks:
        there = ", ".join(sinks) or "none"
        raise Failure(f"{name} has no query {sink}", code="usage", hint=f"there are {there}")
    chosen = sinks if sink is None else [sink]
    what = count(len(chosen), "checkpoint")
    confirm(f"{what} of {name} will be gone, and rows come again.", is_forced=yes)
    folder.reset(sink)
    if session.is_table:
        say(f"{what} of {name} forgotten")
    else:
        print_data(session.output, {"name": name, "reset": chosen})
