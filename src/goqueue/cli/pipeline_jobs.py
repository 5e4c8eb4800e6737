"""``goqueue pipeline replay``, ``redrive`` and ``compact``: ready-made work."""

import getpass
import socket
import threading
from contextlib import nullcontext
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.base.limits import PIPELINE_SQL_CHARACTERS_MAX, REDRIVES_DEFAULT
from goqueue.cli.failure import usage
from goqueue.cli.output import Grid, count, print_data, print_grid, remark, say
from goqueue.cli.pipeline_options import Conf, Master, Remote, State, started, state_folder
from goqueue.cli.pipeline_screen import tell_run
from goqueue.cli.position import read_time
from goqueue.cli.progress import messages_bar
from goqueue.cli.session import Session, command

if TYPE_CHECKING:
    from goqueue.spark.pipelines.redrive import Redriven

RATE_MAX = 1_000_000

LakeArgument = Annotated[Path, typer.Argument(help="Folder of the lake.")]
Target = Annotated[str, typer.Argument(help="Topic the messages go to.")]
Since = Annotated[
    str | None, typer.Option(help="Sent at or after, e.g. -1h or 2026-01-31T12:00:00Z.")
]
Until = Annotated[str | None, typer.Option(help="Sent before.")]
Key = Annotated[str | None, typer.Option(help="Only messages of this key.")]
Source = Annotated[str | None, typer.Option("--topic", help="Only messages of this topic.")]
Where = Annotated[
    str | None, typer.Option(help="Any condition of SQL, e.g. \"value LIKE '%AT%'\".")
]
Rate = Annotated[int, typer.Option(min=0, max=RATE_MAX, help="Most messages a second; 0 for all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would happen.")]
ReplayName = Annotated[str | None, typer.Option("--name", help="What to call this replay.")]
Query = Annotated[
    str, typer.Argument(help="A query over letters that returns dlq, partition and offset.")
]
Sources = Annotated[
    list[str] | None, typer.Option("-t", "--topic", help="Only of this topic; repeatable.")
]
To = Annotated[str | None, typer.Option("--to", help="Another topic than the source.")]
MaxRedrives = Annotated[int, typer.Option(min=0, help="Leave out what went back so often already.")]


def register(pipeline: typer.Typer) -> None:
    """Add the commands."""
    command(pipeline, "replay")(replay)
    command(pipeline, "redrive")(redrive)
    command(pipeline, "compact", is_local=True)(compact)


def replay(
    session: Session,
    lake: LakeArgument,
    target: Target,
    *,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    topic: Source = None,
    where: Where = None,
    rate: Rate = 0,
    dry_run: DryRun = False,
    name: ReplayName = None,
    state: State = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Send messages of an archive to a topic, in their order, each once.

    Where and when they were is kept in the headers goqueue-original-place and
    goqueue-original-timestamp. The same replay again goes on where it was: one with the same
    choices, or of the same --name, since times such as -1h are others every time.
    """
    blanks = {
        "lake": str(lake.resolve()),
        "topic": target,
        "since": _time("--since", since),
        "until": _time("--until", until),
        "where": " AND ".join(_conditions(key, topic, where)) or "true",
    }
    if name is not None:
        from goqueue.base.names import check_name  # noqa: PLC0415

        blanks["name"] = check_name(name, field="--name")
    from goqueue.spark.pipelines.templates import replay_name  # noqa: PLC0415

    if not dry_run:
        with session.connect() as client:
            client.describe_topic(target)
    folder = state_folder(name or replay_name(blanks), state)
    with (
        nullcontext() if dry_run else folder.lock(),
        started(session, None, master=master, remote=remote, conf=conf) as spark,
    ):
        from goqueue.spark.pipelines import jobs  # noqa: PLC0415 - loads PySpark
        from goqueue.spark.pipelines.run import RunOptions  # noqa: PLC0415

        if dry_run:
            _tell_replay(session, jobs.replay_rows(spark.around, blanks))
            return
        options = RunOptions(
            state_root=folder.root, file=str(lake), stop=threading.Event(), is_locked=True
        )
        ended = jobs.replay(spark.around, blanks, rate=rate, options=options)
    tell_run(session, ended)
    if session.is_table and not any(query.rows for query in ended.queries.values()):
        remark(f"nothing was left to send; `goqueue pipeline reset {ended.name}` begins anew")


def _conditions(key: str | None, topic: str | None, where: str | None) -> list[str]:
    found = []
    if key is not None:
        found.append(f"key = X'{key.encode().hex()}'")
    if topic is not None:
        from goqueue.base.names import topic_name  # noqa: PLC0415

        found.append(f"topic = '{topic_name(topic)}'")
    if where is not None:
        if len(where) > PIPELINE_SQL_CHARACTERS_MAX or "\n" in where:
            raise usage("--where: must be one line")
        found.append(f"({where})")
    return found


def _time(option: str, text: str | None) -> str:
    """Return a time as RFC 3339, empty if none is given."""
    if text is None:
        return ""
    return read_time(text, name=option).astimezone(UTC).isoformat()


def _tell_replay(session: Session, rows: Any) -> None:  # noqa: ANN401 - PySpark is loaded late
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    counted = rows.groupBy("topic").agg(
        F.count(F.lit(1)).alias("messages"),
        F.date_format(F.min("timestamp"), "yyyy-MM-dd HH:mm:ss").alias("first"),
        F.date_format(F.max("timestamp"), "yyyy-MM-dd HH:mm:ss").alias("last"),
        F.sum(F.octet_length("value")).alias("bytes"),
    )
    found = [row.asDict() for row in counted.orderBy("topic").collect()]
    lines = [
        (row["topic"], f"{row['messages']:,}", row["first"], row["last"], f"{row['bytes'] or 0:,}")
        for row in found
    ]
    columns = ("TOPIC", ">MESSAGES", "FIRST", "LAST", ">BYTES")
    session.show(found, Grid(columns=columns, rows=lines, empty="no message would be sent"))


def redrive(
    session: Session,
    query: Query,
    *,
    topic: Sources = None,
    to: To = None,
    rate: Rate = 0,
    max_redrives: MaxRedrives = REDRIVES_DEFAULT,
    dry_run: DryRun = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Send dead letters back that a query picks, just those.

    goqueue pipeline redrive "SELECT * FROM letters WHERE error LIKE '%timeout%' AND attempts > 3"

    The view letters has dlq, partition, offset, died_at, source, source_partition, source_offset,
    sent_at, reason, error, group, consumer, attempts, redrives, key, value, headers and priority.
    """
    if len(query) > PIPELINE_SQL_CHARACTERS_MAX:
        raise usage(f"the query has more than {PIPELINE_SQL_CHARACTERS_MAX:,} characters")
    with session.connect() as client:
        from goqueue.spark.pipelines.letter_names import dlqs_of  # noqa: PLC0415

        dlqs = dlqs_of(client, topic or [])
        if not dlqs:
            _tell_redriven(session, [], dry_run=dry_run)
            return
        with started(session, None, master=master, remote=remote, conf=conf) as spark:
            from goqueue.spark.pipelines import redrive as job  # noqa: PLC0415 - loads PySpark

            picked = job.pick(spark.around, dlqs, query)
        if dry_run:
            done = job.preview(client, picked, max_redrives=max_redrives)
        else:
            with messages_bar("redriving") as watch:
                done = job.redrive(
                    client,
                    picked,
                    target=to,
                    rate=rate,
                    max_redrives=max_redrives,
                    by=_me(),
                    watch=lambda one: watch(one.looked_at, one.total),
                )
    _tell_redriven(session, done, dry_run=dry_run)


def _me() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    except (OSError, KeyError):
        return ""


def _tell_redriven(session: Session, done: "list[Redriven]", *, dry_run: bool) -> None:
    if not session.is_table:
        data = [
            {name: getattr(one, name) for name in ("dlq", "picked", "moved", "skipped", "gone")}
            for one in done
        ]
        print_data(session.output, {"dry_run": dry_run, "topics": data})
        return
    rows = [(one.dlq, one.picked, one.moved, one.skipped, one.gone) for one in done]
    verb = ">WOULD GO" if dry_run else ">WENT BACK"
    columns = ("DEAD LETTERS", ">PICKED", verb, ">TOO OFTEN", ">GONE BEFORE")
    print_grid(Grid(columns=columns, rows=rows, empty="the query picked no dead letters"))


def compact(session: Session, lake: LakeArgument) -> None:
    """Put the small files of a lake together, without Spark; pipelines may go on meanwhile."""
    from goqueue.spark.pipelines.lake import Lake, LakeError  # noqa: PLC0415 - loads Arrow
    from goqueue.spark.pipelines.lake_compaction import compact as compact_lake  # noqa: PLC0415

    if Lake(lake).layout() is None:
        raise LakeError(f"there is no lake at {lake}")
    done = compact_lake(Lake(lake), files_min=2)
    if session.is_table:
        say(f"{count(done.files_before, 'file')} became {done.files_after:,}")
    else:
        print_data(session.output, done._asdict())
