"""``goqueue topic``: make, list, describe, change and delete topics."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.errors import StorageFailedError, TopicExistsError
from goqueue.base.units import HOUR_MS, US_PER_MS, format_duration_ms, format_size_bytes
from goqueue.cli.failure import usage
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, count, print_data, print_grid, print_pairs, remark, say
from goqueue.cli.session import Common, Session, add_common_options, command, confirm
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue.wire.calls import TopicState

COMPLETION_SECONDS: Final = 1.0
_NOTHING: Final = {"dedup_window_ms": "off", "tombstone_retention_ms": "not at all"}
_OWN_WORDS: Final = frozenset({"name", "partitions"})


def complete_topics(incomplete: str) -> list[str]:
    """Return the topics a shell may offer; a broker that is not there offers none."""
    session = Session(Common(timeout=str(COMPLETION_SECONDS)), os.environ, "")
    try:
        with session.connect() as client:
            names = [topic.name for topic in client.list_topics()]
    except Exception:  # noqa: BLE001 - nothing may spoil the line somebody is typing
        return []
    return [name for name in names if name.startswith(incomplete)]


TopicArgument = Annotated[
    str, typer.Argument(help="Name of the topic.", autocompletion=complete_topics)
]
Partitions = Annotated[int, typer.Option("-p", "--partitions", help="Number of partitions.")]
Retention = Annotated[
    str | None,
    typer.Option(
        "-r", "--retention", help='Hours, or a duration such as "7d", to keep messages; 0 for ever.'
    ),
]
RetentionSize = Annotated[
    str | None, typer.Option(help='Bytes to keep per partition, e.g. "10GB"; 0 for no limit.')
]
Durability = Annotated[
    str | None, typer.Option(help='When an ack is sent: "fsync", "interval:1s" or "os".')
]
DedupWindow = Annotated[
    str | None,
    typer.Option(help='How long a dedup_id is remembered, e.g. "10m"; 0 for not at all.'),
]
Assigned = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting; repeatable."),
]
Quiet = Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]
Changes = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--cleanup-policy", help='What goes: "delete" what is old, or "compact" what is outdated.'
    ),
]
Chosen = Annotated[
    list[int] | None, typer.Option("-p", "--partition", help="Only this partition; repeatable.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, tell what would go.")]
Total = Annotated[int, typer.Argument(help="Number of partitions from now on; it can only grow.")]
Internal = Annotated[bool, typer.Option("--internal", help="Also show the broker's own topics.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    topic = typer.Typer()
    add_common_options(topic, "Topics: where messages are kept.")
    command(topic, "create")(create)
    command(topic, "list")(list_topics)
    command(topic, "describe")(describe)
    command(topic, "delete")(delete)
    command(topic, "config")(config)
    command(topic, "add-partitions")(add_partitions)
    command(topic, "compact")(compact)
    app.add_typer(topic, name="topic")


def create(
    session: Session,
    name: TopicArgument,
    *,
    partitions: Partitions = 3,
    retention: Retention = None,
    retention_size: RetentionSize = None,
    durability: Durability = None,
    dedup_window: DedupWindow = None,
    cleanup_policy: Policy = None,
    assigned: Assigned = None,
    if_not_exists: Quiet = False,
) -> None:
    """Make a topic."""
    settings = read_settings(assigned or [])
    if retention is not None:
        settings["retention_ms"] = int(retention) * HOUR_MS if retention.isdecimal() else retention
    named = {
        "retention_bytes": retention_size,
        "durability": durability,
        "dedup_window_ms": dedup_window,
        "cleanup_policy": cleanup_policy,
    }
    settings |= {key: value for key, value in named.items() if value is not None}
    with session.connect() as client:
        try:
            state = client.create_topic(name, partitions=partitions, **settings)
            is_new = True
        except TopicExistsError:
            if not if_not_exists:
                raise
            state = client.describe_topic(name)
            is_new = False
    if not session.is_table:
        print_data(session.output, {"created": is_new, **_plain(state)})
    elif is_new:
        say(f"topic {name} created with {count(len(state.partitions), 'partition')}")
    else:
        say(f"topic {name} exists")


def list_topics(session: Session, internal: Internal = False) -> None:
    """List the topics."""
    with session.connect() as client:
        topics = [one for one in client.list_topics() if internal or not one.name.startswith("__")]
    data = [
        {
            "name": one.name,
            "partitions": one.partitions,
            "messages": one.messages,
            "size_bytes": one.size_bytes,
        }
        for one in topics
    ]
    rows = [
        (one.name, one.partitions, one.messages, format_size_bytes(one.size_bytes))
        for one in topics
    ]
    session.show(
        data,
        Grid(
            columns=("NAME", ">PARTITIONS", ">MESSAGES", ">SIZE"),
            rows=rows,
            empty="no topics yet; `goqueue topic create orders` makes one",
        ),
    )


def describe(session: Session, name: TopicArgument) -> None:
    """Show a topic's settings and the offsets of its partitions."""
    with session.connect() as client:
        state = client.describe_topic(name)
    if not session.is_table:
        print_data(session.output, _plain(state))
        return
    plain = _plain(state)
    print_pairs(
        {
            "name": state.name,
            "created": moment(state.created_ms * US_PER_MS),
            "messages": f"{plain['messages']:,}",
            "size": format_size_bytes(sum(one.size_bytes for one in state.partitions)),
            **_readable(state),
        }
    )
    say()
    rows = [
        (
            one.partition,
            one.start_offset,
            one.end_offset,
            one.messages,
            format_size_bytes(one.size_bytes),
        )
        for one in state.partitions
    ]
    print_grid(Grid(columns=(">PARTITION", ">START", ">END", ">MESSAGES", ">SIZE"), rows=rows))


def delete(session: Session, name: TopicArgument, force: Force = False) -> None:
    """Delete a topic with all its messages."""
    with session.connect() as client:
        state = client.describe_topic(name)
        messages = sum(one.messages for one in state.partitions)
        confirm(f"{name} and its {count(messages, 'message')} will be gone.", is_forced=force)
        client.delete_topic(name)
    if session.is_table:
        say(f"topic {name} deleted")
    else:
        print_data(session.output, {"deleted": True, "name": name})


def config(
    session: Session,
    name: TopicArgument,
    changes: Changes = None,
    *,
    assigned: Assigned = None,
) -> None:
    """Show or change the settings of a topic, e.g. retention_ms=7d durability=interval:1s.

    --set retention_ms=7d does the same, as with `topic create`.
    """
    settings = read_settings([*(changes or []), *(assigned or [])])
    with session.connect() as client:
        if settings:
            state = client.configure_topic(name, **settings)
        else:
            state = client.describe_topic(name)
    if session.is_table:
        print_pairs(_readable(state))
        if settings:
            remark(f"topic {name} changed")
    else:
        print_data(session.output, {"name": state.name, "settings": dict(state.settings)})


def add_partitions(session: Session, name: TopicArgument, total: Total) -> None:
    """Give a topic more partitions. Keys may go to other partitions from then on."""
    with session.connect() as client:
        added = client.add_partitions(name, total)
    if session.is_table:
        say(f"topic {name} has {count(added.after, 'partition')}, {added.before} before")
        return
    data = {
        "topic_name": added.name,
        "old_partition_count": added.before,
        "new_partition_count": added.after,
        "partitions_added": list(range(added.before, added.after)),
    }
    print_data(session.output, data)


def compact(
    session: Session, name: TopicArgument, partition: Chosen = None, *, dry_run: DryRun = False
) -> None:
    """Keep only the last message of each key, in a topic with cleanup_policy=compact."""
    with session.connect() as client:
        parts = client.compact_topic(name, partition or None, dry_run=dry_run)
    results = [
        {
            "partition": one.partition,
            "records_before": one.records_before,
            "records_after": one.records_after,
            "records_removed": one.records_removed,
            "dirty_ratio": one.dirty_ratio,
            **({} if one.error is None else {"error": one.error}),
        }
        for one in parts
    ]
    failed = [one for one in parts if one.error is not None]
    if session.is_table:
        rows = [
            (one.partition, one.records_before, one.records_removed, one.error or "")
            for one in parts
        ]
        columns = (">PARTITION", ">MESSAGES", ">WOULD GO" if dry_run else ">REMOVED", "ERROR")
        print_grid(Grid(columns=columns, rows=rows))
    else:
        data = {"success": not failed, "topic": name, "dry_run": dry_run, "results": results}
        print_data(session.output, data)
    if failed:
        raise StorageFailedError(f"{name}: {count(len(failed), 'partition')} not compacted")


def read_settings(texts: list[str]) -> dict[str, str | float]:
    """Take ``key=value`` apart."""
    settings: dict[str, str | float] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise usage(f"{text}: write a setting as key=value, for example retention_ms=7d")
        if key in _OWN_WORDS:
            raise usage(f"{key} is not a setting", "`goqueue topic add-partitions` adds partitions")
        if settings.get(key, value) != value:
            raise usage(f"{key} is given twice, as {settings[key]} and as {value}")
        settings[key] = value
    return settings


def _plain(state: "TopicState") -> dict[str, object]:
    parts = state.partitions
    return {
        "name": state.name,
        "created_at": format_time_us(state.created_ms * US_PER_MS),
        "messages": sum(one.messages for one in parts),
        "size_bytes": sum(one.size_bytes for one in parts),
        "settings": dict(state.settings),
        "partitions": [
            {
                "partition": one.partition,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "size_bytes": one.size_bytes,
            }
            for one in parts
        ],
    }


def _readable(state: "TopicState") -> dict[str, object]:
    """Return the settings with their units spelled out."""
    readable: dict[str, object] = {}
    for name, value in state.settings.items():
        shown: object = value
        if name.endswith("_ms") and isinstance(value, int):
            shown = _duration(value, nothing=_NOTHING.get(name, "for ever"))
        elif name.endswith("_bytes") and isinstance(value, int):
            shown = format_size_bytes(value) if value else "no limit"
        readable[name] = shown
    return readable


def _duration(duration_ms: int, *, nothing: str) -> str:
    if not duration_ms:
        return nothing
    days, rest = divmod(duration_ms, 24 * HOUR_MS)
    if days and not rest:
        return f"{days}d"
    return format_duration_ms(duration_ms)
