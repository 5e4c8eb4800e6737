"""``goqueue group offsets``, ``lag`` and ``reset``: how far a group is, and beginning anew."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.base.units import format_duration_ms
from goqueue.cli.failure import usage
from goqueue.cli.group_name import GroupArgument
from goqueue.cli.output import Grid, print_data, say
from goqueue.cli.position import Position, read_position
from goqueue.cli.session import Session, command, confirm

if TYPE_CHECKING:
    from goqueue.wire.queue_calls import Progress

TopicName = Annotated[str, typer.Option("-t", "--topic", help="Topic to begin anew in.")]
ToText = Annotated[
    str | None,
    typer.Option("--to", help="Where to begin: beginning, end, an offset, a time or -1h."),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Same as --to beginning.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Same as --to end.")]
ToTimestamp = Annotated[
    str | None, typer.Option("--to-timestamp", help="Same as --to TIME.", show_default=False)
]
PartitionNumbers = Annotated[
    list[int] | None,
    typer.Option("-p", "--partition", help="This partition only; repeatable.", show_default="all"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the offsets and change nothing.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]


def add_to(group: typer.Typer) -> None:
    """Add the commands to those of groups."""
    command(group, "offsets")(offsets)
    command(group, "lag")(lag)
    command(group, "reset")(reset)
    command(group, "reset-offsets")(reset)


def offsets(session: Session, name: GroupArgument) -> None:
    """Show the committed offset of each partition, and what is not settled behind it."""
    with session.connect() as client:
        parts = client.group_progress(name)
    session.show(
        [_plain(part) for part in parts],
        Grid(
            columns=("TOPIC", ">PARTITION", ">COMMITTED", ">END", ">LAG", ">IN FLIGHT", ">WAITING"),
            rows=[
                (
                    part.topic,
                    part.partition,
                    part.committed_offset,
                    part.end_offset,
                    part.lag,
                    part.in_flight,
                    part.waiting,
                )
                for part in parts
            ],
            empty="the group has not read anything yet",
        ),
    )


def lag(session: Session, name: GroupArgument) -> None:
    """Show how far a group is behind in each topic, in messages and in time."""
    with session.connect() as client:
        parts = client.group_progress(name)
    topics: dict[str, list[Progress]] = {}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    totals = [
        {
            "topic": topic,
            "lag": sum(part.lag for part in of_topic),
            "lag_ms": max(part.lag_ms for part in of_topic),
            "in_flight": sum(part.in_flight for part in of_topic),
            "delayed": sum(part.delayed for part in of_topic),
            "dead": sum(part.dead for part in of_topic),
        }
        for topic, of_topic in topics.items()
    ]
    rows = [
        (
            one["topic"],
            one["lag"],
            format_duration_ms(int(str(one["lag_ms"]))),
            one["in_flight"],
            one["delayed"],
            one["dead"],
        )
        for one in totals
    ]
    columns = ("TOPIC", ">LAG", ">OLDEST", ">IN FLIGHT", ">DELAYED", ">DEAD")
    session.show(
        totals, Grid(columns=columns, rows=rows, empty="the group has not read anything yet")
    )


def reset(
    session: Session,
    name: GroupArgument,
    *,
    topic: TopicName,
    to_text: ToText = None,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_timestamp: ToTimestamp = None,
    partition: PartitionNumbers = None,
    dry_run: DryRun = False,
    force: Force = False,
) -> None:
    """Let a group begin anew at another place; what it holds is taken back unsettled."""
    position = _position(
        to_text, to_timestamp, to_earliest=to_earliest, to_latest=to_latest, now=datetime.now(UTC)
    )
    with session.connect() as client:
        before = client.group_offsets(name)
        if dry_run:
            found = client.offsets(topic, position)
            after = {
                (topic, number): offset
                for number, offset in found.items()
                if partition is None or number in partition
            }
        else:
            confirm(f"{name} will begin anew in {topic}.", is_forced=force)
            after = client.reset_offsets(name, topic, position, partitions=partition)
    rows = [(number, before.get((topic, number), "-"), to) for (_, number), to in after.items()]
    if session.is_table:
        say("nothing was changed; it would be so:" if dry_run else f"{name} begins anew in {topic}")
    data = [
        {"topic": topic, "partition": number, "old_offset": old, "new_offset": new}
        for number, old, new in rows
    ]
    if not session.is_table:
        print_data(session.output, data)
        return
    session.show(data, Grid(columns=(">PARTITION", ">FROM", ">TO"), rows=rows, empty="-"))


def _position(
    text: str | None,
    timestamp: str | None,
    *,
    to_earliest: bool,
    to_latest: bool,
    now: datetime,
) -> Position:
    asked = [
        one
        for one in (
            text,
            "beginning" if to_earliest else None,
            "end" if to_latest else None,
            None if timestamp is None else f"@{timestamp.removeprefix('@')}",
        )
        if one is not None
    ]
    if len(asked) != 1:
        raise usage("say where to begin: one of --to, --to-earliest, --to-latest, --to-timestamp")
    position = read_position(asked[0], name="--to", now=now)
    if isinstance(position, int) and position < 0:
        raise usage(f"--to {position}: not a position of a group", "write an offset from 0 on")
    return position


def _plain(part: "Progress") -> dict[str, object]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "committed_offset": part.committed_offset,
        "end_offset": part.end_offset,
        "lag": part.lag,
        "lag_ms": part.lag_ms,
        "in_flight": part.in_flight,
        "waiting": part.waiting,
        "delayed": part.delayed,
        "dead": part.dead,
    }
