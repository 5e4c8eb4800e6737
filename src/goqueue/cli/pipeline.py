"""``goqueue pipeline``: data pipelines on Spark, from files or ready-made."""

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from goqueue.base.errors import GoQueueError
from goqueue.cli import pipeline_jobs, pipeline_reports, pipeline_state
from goqueue.cli.failure import Failure, usage
from goqueue.cli.output import print_data, remark, say
from goqueue.cli.pipeline_options import (
    Conf,
    Master,
    Remote,
    Started,
    State,
    quiet_loggers,
    read_mode,
    started,
    state_folder,
)
from goqueue.cli.pipeline_screen import LiveScreen, Schemas, draw_graph, tell_run
from goqueue.cli.session import Session, add_common_options, command, knock
from goqueue.cli.stop_wish import stop_wish

if TYPE_CHECKING:
    from goqueue.spark.pipelines.graph import Graph
    from goqueue.spark.pipelines.load import Loaded
    from goqueue.spark.pipelines.spec import Mode
    from goqueue.spark.pipelines.topics import NewTopic

PORT_MAX: Final = 65_535
SPARK_LOG: Final = "spark.log"
"""Where Spark writes what nobody asked for, beside the state of the pipeline."""

File = Annotated[Path, typer.Argument(help="A pipeline file, .yaml or .py.")]
ModeOption = Annotated[
    str, typer.Option("--mode", help="batch, available-now (what is new, then end) or continuous.")
]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=PORT_MAX, help="Serve metrics for Prometheus on 127.0.0.1."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Look at the file alone, without Spark or the broker.")
]
Kind = Annotated[str, typer.Argument(help="What to start from; --help of `new` lists them.")]
Assigned = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A blank of the template; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    pipeline = typer.Typer()
    add_common_options(
        pipeline,
        "Data pipelines on Spark: topics, lakes and files, checked and transformed.\n\n"
        "Needs the extra: pip install 'goqueue[spark]'. Try `goqueue pipeline new orders`.",
    )
    command(pipeline, "new", is_local=True)(new)
    command(pipeline, "plan")(plan)
    command(pipeline, "run")(run)
    pipeline_state.register(pipeline)
    pipeline_jobs.register(pipeline)
    pipeline_reports.register(pipeline)
    app.add_typer(pipeline, name="pipeline")


def new(session: Session, kind: Kind = "", assigned: Assigned = None) -> None:
    """Print a pipeline file to start from; without a name, list what there is.

    goqueue pipeline new archive --set topics=orders,payments > archive.yaml
    """
    from goqueue.spark.pipelines.templates import TEMPLATES, fill  # noqa: PLC0415 - reads files

    if not kind:
        if not session.is_table:
            print_data(session.output, {one.name: one.about for one in TEMPLATES.values()})
            return
        width = max(map(len, TEMPLATES))
        for one in TEMPLATES.values():
            say(f"{one.name.ljust(width)}  {one.about} ({', '.join(one.blanks)})")
        return
    try:
        say(fill(kind, _pairs(assigned, "--set")).rstrip("\n"))
    except ValueError as error:
        raise usage(str(error)) from error


def plan(
    session: Session,
    file: File,
    *,
    mode: ModeOption = "available-now",
    quick: Quick = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Draw a pipeline and check all of it without running it.

    The file, the files and topics it names, its SQL as Spark understands it, and what a stream
    cannot do. Nothing is written anywhere.
    """
    chosen = read_mode(mode)
    loaded, graph, new_topics = _checked(session, file, chosen, quick=quick)
    if quick:
        _show_plan(session, graph, schemas={}, new=[])
        return
    with started(session, loaded.pipeline, master=master, remote=remote, conf=conf) as spark:
        from goqueue.spark.pipelines.outputs import analyse  # noqa: PLC0415 - loads PySpark

        graph, bound = analyse(loaded, spark.around, chosen)
        schemas = {
            name: {one.name: one.dataType.simpleString() for one in rows.schema.fields}
            for name, rows in bound.clean.items()
        }
    _show_plan(session, graph, schemas=schemas, new=new_topics)


def _checked(
    session: Session, file: Path, mode: "Mode", *, quick: bool = False
) -> "tuple[Loaded, Graph, list[NewTopic]]":
    """Find out all that is wrong with a file and missing around it, and raise it at once.

    Returns the pipeline, how it hangs together, and the topics it will make.
    """
    from goqueue.spark.pipelines.files import check_files  # noqa: PLC0415
    from goqueue.spark.pipelines.graph import survey  # noqa: PLC0415
    from goqueue.spark.pipelines.load import read  # noqa: PLC0415
    from goqueue.spark.pipelines.topics import check_topics, needs_broker, topics_on  # noqa: PLC0415

    reading = read(file)
    loaded, problems = reading.loaded, reading.problems
    graph = survey(loaded.pipeline, mode, problems, unreadable=reading.parsed.unreadable)
    new_topics: list[NewTopic] = []
    if not quick:
        check_files(graph, problems)
        if needs_broker(graph):
            try:
                with connected(session, loaded) as client:
                    new_topics, missing = check_topics(graph, topics_on(client))
                problems.found += missing.found
            except GoQueueError:
                # A broker that is away is the lesser problem of a file that is wrong.
                if not problems.found:
                    raise
    problems.check(name=f"pipeline {loaded.pipeline.name}")
    return loaded, graph, new_topics


def connected(session: Session, loaded: "Loaded") -> Any:  # noqa: ANN401 - loaded late
    """Return a client of the broker a pipeline talks to."""
    address = session.asked_address or loaded.pipeline.servers or session.address
    knock(address, session.timeout_ms / 1_000)
    import goqueue  # noqa: PLC0415

    return goqueue.connect(
        address,
        timeout=session.timeout_ms / 1_000,
        api_key=session.api_key,
        tls=None if session.tls is None else session.tls.options(),
    )


def _show_plan(
    session: Session, graph: "Graph", *, schemas: Schemas, new: "list[NewTopic]"
) -> None:
    if session.is_table:
        draw_graph(graph, schemas, new)
        return
    pipeline = graph.pipeline
    parts = [
        {
            "name": name,
            "what": graph.part(name).label,
            "inputs": list(graph.inputs[name]),
            "stream": name in graph.streams,
            "schema": _struct(schemas[name]) if name in schemas else None,
            "expectations": [
                {"name": rule.name, "rule": rule.rule, "else": rule.otherwise.value}
                for rule in pipeline.expectations.get(name, ())
            ],
        }
        for name in graph.order
    ]
    sinks = [
        {"name": sink.name, "from": sink.input, "what": sink.label}
        for sink in pipeline.sinks.values()
    ]
    print_data(
        session.output,
        {
            "name": pipeline.name,
            "parts": parts,
            "sinks": sinks,
            "unused": list(graph.unused),
            "new_topics": [one.name for one in new],
        },
    )


def _struct(columns: Mapping[str, str]) -> str:
    """Return columns as Spark writes a type."""
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in columns.items())}>"


def run(
    session: Session,
    file: File,
    *,
    mode: ModeOption = "available-now",
    state: State = None,
    metrics_port: MetricsPort = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Run a pipeline. Killed or stopped, the next run goes on where it was.

    Ctrl-C and `goqueue pipeline stop` end it; nothing is lost or doubled by that.
    """
    loaded, _, new_topics = _checked(session, file, read_mode(mode))
    folder = state_folder(loaded.pipeline.name, state)
    with (
        # First of all: a second run must not wait for Spark to hear that it is one.
        folder.lock(),
        stop_wish(signal.SIGINT, signal.SIGTERM, tell=_tell_wish) as stop,
        started(
            session,
            loaded.pipeline,
            master=master,
            remote=remote,
            conf=conf,
            log=folder.path / SPARK_LOG,
        ) as spark,
    ):
        if new_topics:
            from goqueue.spark.pipelines.topics import make_topics  # noqa: PLC0415

            with connected(session, loaded) as client:
                make_topics(client, new_topics)
        _run(session, loaded, spark, stop, mode=mode, file=file, state=state, port=metrics_port)


def _run(
    session: Session,
    loaded: "Loaded",
    spark: Started,
    stop: threading.Event,
    *,
    mode: str,
    file: Path,
    state: Path | None,
    port: int | None,
) -> None:
    from goqueue.spark.pipelines.metrics import PipelineMetrics  # noqa: PLC0415
    from goqueue.spark.pipelines.run import RunOptions  # noqa: PLC0415
    from goqueue.spark.pipelines.run import run as run_pipeline  # noqa: PLC0415

    metrics = PipelineMetrics()
    if port is not None:
        remark(f"metrics on http://127.0.0.1:{metrics.serve(port)}/metrics")
    with LiveScreen(is_wanted=session.is_table and sys.stderr.isatty()) as screen:

        def watch(run_state: Any) -> None:  # noqa: ANN401 - loaded late
            metrics.update(run_state)
            screen.update(run_state)

        options = RunOptions(
            mode=read_mode(mode),
            state_root=state_folder(loaded.pipeline.name, state).root,
            file=str(file),
            watch=watch,
            stop=stop,
            is_locked=True,
        )
        quiet_loggers()
        ended = run_pipeline(loaded, spark.around, options)
    tell_run(session, ended)


def _tell_wish(number: signal.Signals) -> None:
    remark(f"stopping ({number.name}); once more ends it at once")


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for one in given or []:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise Failure(f"{option} {one}: write NAME=VALUE", code="usage", exit_code=2)
        pairs[name] = value
    return pairs
