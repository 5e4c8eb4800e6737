"""What the commands on pipelines share: their options, and a session of Spark."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.base.errors import GoQueueError
from goqueue.cli.failure import Failure, usage
from goqueue.cli.output import remark
from goqueue.cli.session import Session

if TYPE_CHECKING:
    from goqueue.spark.pipelines.bind import Surroundings
    from goqueue.spark.pipelines.spec import Mode, Pipeline
    from goqueue.spark.pipelines.state import StateFolder

_SPARK = "Spark"
SAID_LINES = 3
"""So much of what Java said last is told when it did not start."""

State = Annotated[
    Path | None,
    typer.Option("--state", help="Folder of checkpoints and states [./pipelines-state]."),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs, e.g. local[4] or spark://host:7077.", rich_help_panel=_SPARK
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(help="A Spark Connect server, e.g. sc://host:15002.", rich_help_panel=_SPARK),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A setting of Spark; repeatable.",
        rich_help_panel=_SPARK,
    ),
]


@dataclass(frozen=True, slots=True)
class Started:
    """A session that runs, and what a pipeline finds around it."""

    around: "Surroundings"


def read_mode(text: str) -> "Mode":
    """Return a mode, or fail with those there are."""
    from goqueue.spark.pipelines.spec import Mode  # noqa: PLC0415

    try:
        return Mode(text)
    except ValueError as error:
        raise usage(f"--mode {text}: must be one of {', '.join(Mode)}") from error


def state_folder(name: str, state: Path | None) -> "StateFolder":
    """Return where a pipeline keeps how far it is."""
    from goqueue.spark.pipelines.state import DEFAULT_ROOT, StateFolder  # noqa: PLC0415

    return StateFolder(Path(DEFAULT_ROOT) if state is None else state, name)


@contextmanager
def started(
    session: Session,
    pipeline: "Pipeline | None",
    *,
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    log: Path | None = None,
) -> Iterator[Started]:
    """Start Spark for a pipeline, and end it afterwards; what it says by itself goes to a log."""
    if master is not None and remote is not None:
        raise usage("--master and --remote: one of them")
    settings: dict[str, str] = dict(pipeline.conf) if pipeline is not None else {}
    for one in conf or []:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise usage(f"--conf {one}: write NAME=VALUE")
        settings[name] = value
    from goqueue.spark.session import SparkNotStartedError  # noqa: PLC0415
    from goqueue.spark.session import session as spark_session  # noqa: PLC0415

    name = "goqueue" if pipeline is None else f"goqueue {pipeline.name}"
    quiet_loggers()
    remark("starting Spark …")
    # Spark's processes keep the error stream they were started with.
    try:
        with _errors_to(log):
            spark: Any = spark_session(name, master=master, remote=remote, conf=settings)
    except SparkNotStartedError as error:
        raise _not_started(error, log) from error
    try:
        quiet_loggers()
        from goqueue.spark.pipelines.bind import Surroundings  # noqa: PLC0415 - loads PySpark

        own = pipeline.servers if pipeline is not None else ""
        address = session.asked_address or own or session.address
        yield Started(
            Surroundings(
                spark=spark,
                servers=address,
                api_key=session.api_key or "",
                tls={} if session.tls is None else session.tls.spark_options(),
            )
        )
    finally:
        with _errors_to(None):
            spark.stop()


def _not_started(error: GoQueueError, log: Path | None) -> Failure:
    """Return what Java said about it, as far as that was kept."""
    said = log.read_text(errors="replace").strip().splitlines() if log is not None else []
    reason = ": " + "; ".join(said[-SAID_LINES:]) if said else ""
    where = f"{log} has all of it" if said else "GOQUEUE_TRACEBACK=1 shows what Java says"
    hint = f"{where}; look at --conf, spark.jars.packages and JAVA_HOME"
    return Failure(f"{error.message}{reason}", code=error.code, hint=hint)


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Let what is started here write its errors to a file, or nowhere."""
    if os.environ.get("GOQUEUE_TRACEBACK"):
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    target = os.open(os.devnull if log is None else log, flags, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def quiet_loggers() -> None:
    """Keep PySpark from logging what is raised anyway."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger(name).disabled = True
