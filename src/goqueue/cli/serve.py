"""``goqueue serve``: a broker in the foreground."""

import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from goqueue.cli.failure import Failure, usage
from goqueue.cli.output import Output, remark
from goqueue.cli.session import Session, command
from goqueue.cli.terminal import style
from goqueue.config.load import Loaded, load_config

PROCESSES_MAX: Final = 32
"""Most processes of one machine: each opens the files of all topics."""

OPTIMISED: Final = (
    "the broker does not run under python -O: the checks that guard your messages would be off"
)

Data = Annotated[
    str | None,
    typer.Option("--data", "-d", help="Data directory, made if missing.", show_default="./data"),
]
Native = Annotated[
    str | None, typer.Option(help="Address of the native protocol.", show_default="127.0.0.1:7070")
]
Http = Annotated[str | None, typer.Option(help="Address of HTTP.", show_default="127.0.0.1:8080")]
NodeId = Annotated[str | None, typer.Option(help="Name of this broker.", show_default="node-1")]
LogLevel = Annotated[
    str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
]
LogFormat = Annotated[str | None, typer.Option(help="auto, console or json.", show_default="auto")]
Config = Annotated[
    Path | None,
    typer.Option(help="YAML file with settings; also GOQUEUE_CONFIG, or ./goqueue.yaml."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting, see `goqueue config show`; repeatable.",
    ),
]


Processes = Annotated[
    int,
    typer.Option(
        min=1,
        max=PROCESSES_MAX,
        help="Run so many nodes of one cluster on this machine, each on a core of its own;"
        " ports count up.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "serve", is_local=True)(serve)


def serve(
    session: Session,
    *,
    data: Data = None,
    native: Native = None,
    http: Http = None,
    node_id: NodeId = None,
    config: Config = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    assignments: Assignments = None,
    processes: Processes = 1,
) -> None:
    """Run a broker until Ctrl-C.

    Settings come from the flags, then the environment, then the file, then the defaults.
    """
    if sys.flags.optimize:
        raise Failure(OPTIMISED, code="optimised", hint="unset PYTHONOPTIMIZE and start without -O")
    if session.asked_output is Output.JSON and log_format is None:
        log_format = "json"
    flags = {
        "data_dir": data,
        "native_listener": native,
        "http_listener": http,
        "node_id": node_id,
        "log_level": log_level,
        "log_format": log_format,
    }
    loaded = load_config(
        flags=flags,
        environment=os.environ,
        file=config,
        assignments=read_assignments(assignments or []),
    )
    if processes > 1:
        _supervise(loaded, processes, assignments or [], config)
        return
    _run(loaded)


def _supervise(loaded: Loaded, processes: int, assignments: list[str], file: Path | None) -> None:
    from goqueue.cli.supervisor import supervise  # noqa: PLC0415 - needs asyncio

    settings = loaded.config
    if settings.cluster_enabled:
        raise usage("--processes: these are a cluster by themselves; leave cluster.enabled out")
    shared = ["--log-level", settings.log_level, "--log-format", settings.log_format]
    shared += [] if file is None else ["--config", str(file)]
    supervise(settings, processes, assignments=assignments, shared=shared)


def read_assignments(texts: list[str]) -> Mapping[str, str]:
    """Take ``key=value`` apart."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise usage(f"--set {text}: write it as key=value, for example log.level=debug")
        assignments[key.strip()] = value
    return assignments


def _run(loaded: Loaded) -> None:
    # What comes into being until the broker listens stays: collecting would find nothing.
    gc.disable()
    # The broker brings Arrow and uvloop along: half a second that other commands do not need.
    from goqueue.cli.foreground import run_broker  # noqa: PLC0415

    is_terminal = sys.stderr.isatty() and loaded.config.log_format != "json"
    if is_terminal:
        for warning in loaded.warnings:
            remark(f"{style('warning:', '33', sys.stderr)} {warning}")
    run_broker(loaded, is_terminal=is_terminal)
