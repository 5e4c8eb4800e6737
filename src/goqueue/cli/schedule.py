"""``goqueue schedule``: messages that are published again and again."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import US_PER_MS, format_duration_ms
from goqueue.cli.failure import usage
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, print_data, print_pairs, say
from goqueue.cli.preview import preview
from goqueue.cli.produce import Headers, PriorityName, read_headers
from goqueue.cli.session import Common, Session, add_common_options, command, confirm
from goqueue.core.record.message import PRIORITY_NAMES
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from datetime import datetime

    from goqueue.client.protocol.schedules import Schedule
    from goqueue.wire.schedule_calls import ScheduleEntry

COMPLETION_SECONDS: Final = 1.0


def complete_schedules(incomplete: str) -> list[str]:
    """Return the schedules a shell may offer."""
    session = Session(Common(timeout=str(COMPLETION_SECONDS)), os.environ, "")
    try:
        with session.connect() as client:
            names = [one.name for one in client.list_schedules()]
    except Exception:  # noqa: BLE001 - nothing may spoil the line somebody is typing
        return []
    return [name for name in names if name.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the schedule.", autocompletion=complete_schedules),
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]
TopicName = Annotated[str, typer.Option("-t", "--topic", help="Where to publish.")]
Value = Annotated[str, typer.Option("-m", "--value", help="The value of each message.")]
Cron = Annotated[
    str | None,
    typer.Option("--cron", help='Minute, hour, day, month, weekday, e.g. "*/5 * * * *".'),
]
Every = Annotated[str | None, typer.Option("--every", help='An interval instead, e.g. "30s".')]
Zone = Annotated[
    str, typer.Option("--tz", help="The time zone of the cron line, e.g. Europe/Berlin.")
]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Key of the messages.")]
Missed = Annotated[
    str,
    typer.Option(
        "--missed",
        help="What becomes of ticks while the broker was down: skip, one (the latest) or all.",
    ),
]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="Most to show.")]
Skip = Annotated[int, typer.Option(min=0, help="How many to leave out first.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    schedule = typer.Typer()
    add_common_options(schedule, "Recurring schedules: messages published again and again.")
    command(schedule, "create")(create)
    command(schedule, "list")(list_schedules)
    command(schedule, "describe")(describe)
    command(schedule, "pause")(pause)
    command(schedule, "resume")(resume)
    command(schedule, "trigger")(trigger)
    command(schedule, "delete")(delete)
    app.add_typer(schedule, name="schedule")


def create(
    session: Session,
    name: NewName,
    *,
    topic: TopicName,
    value: Value,
    cron: Cron = None,
    every: Every = None,
    tz: Zone = "UTC",
    key: Key = None,
    header: Headers = None,
    priority: PriorityName = None,
    missed: Missed = "one",
) -> None:
    """Publish a message again and again: by a cron line, or at an interval."""
    if (cron is None) == (every is None):
        raise usage("give --cron or --every, one of them")
    with session.connect() as client:
        try:
            made = client.create_schedule(
                name,
                topic,
                value.encode(),
                cron=cron,
                every=every,
                tz=tz,
                missed=missed,
                key=None if key is None else key.encode(),
                headers=read_headers(header or []),
                priority=priority,
            )
        except InvalidRequestError as error:
            raise usage(error.message) from error
    _show(session, made)


def list_schedules(session: Session, *, limit: Limit = 1_000, skip: Skip = 0) -> None:
    """List the schedules by name, with their last and next ticks."""
    with session.connect() as client:
        found = client.list_schedules(limit=limit, skip=skip)
    rows = [
        (
            one.name,
            one.topic,
            one.cron or f"every {format_duration_ms(one.every_ms)}",
            one.tz if one.cron else "-",
            one.state,
            "-" if one.last_tick_ms is None else moment(one.last_tick_ms * US_PER_MS),
            moment(one.next_ticks_ms[0] * US_PER_MS) if one.next_ticks_ms else "-",
            one.published,
            one.missed_ticks,
            preview(one.error) or "-",
        )
        for one in found
    ]
    columns = (
        "NAME", "TOPIC", "WHEN", "TZ", "STATE", "LAST TICK", "NEXT TICK", ">PUBLISHED", ">MISSED",
        "ERROR",
    )  # fmt: skip
    grid = Grid(columns=columns, rows=rows, empty="there are no schedules")
    session.show([_listed(one) for one in found], grid)


def describe(session: Session, name: NameArgument) -> None:
    """Show a schedule: its message, its next five ticks, and what became of the last."""
    with session.connect() as client:
        _show(session, client.describe_schedule(name))


def pause(session: Session, name: NameArgument) -> None:
    """Publish no ticks until the schedule is resumed."""
    with session.connect() as client:
        paused = client.pause_schedule(name)
    _tell(session, paused, f"{name} is paused")


def resume(session: Session, name: NameArgument) -> None:
    """Publish the ticks after now; those while it was paused are not made up for."""
    with session.connect() as client:
        resumed = client.resume_schedule(name)
    _tell(session, resumed, f"{name} is active; its next tick is {_next(resumed)}")


def trigger(session: Session, name: NameArgument) -> None:
    """Publish the message of a schedule now, beside its ticks."""
    with session.connect() as client:
        after = client.trigger_schedule(name)
    place = f"{after.topic}/{after.last_partition} offset {after.last_offset}"
    _tell(session, after, f"{name}: published to {place}")


def delete(session: Session, name: NameArgument, force: Force = False) -> None:
    """End a schedule; what it has published stays."""
    confirm(f"The schedule {name} will publish nothing any more.", is_forced=force)
    with session.connect() as client:
        client.delete_schedule(name)
    if session.is_table:
        say(f"{name} is deleted")
    else:
        print_data(session.output, {"name": name, "deleted": True})


def _tell(session: Session, schedule: "Schedule", text: str) -> None:
    if session.is_table:
        say(text)
    else:
        print_data(session.output, _plain(schedule))


def _next(schedule: "Schedule") -> str:
    return _time(schedule.next_ticks[0]) if schedule.next_ticks else "-"


def _time(tick: "datetime") -> str:
    return tick.isoformat().replace("+00:00", "Z")


def _show(session: Session, one: "Schedule") -> None:
    if not session.is_table:
        print_data(session.output, _plain(one))
        return
    when = f"{one.cron} ({one.tz})" if one.cron else f"every {format_duration_ms(one.every_ms)}"
    print_pairs(
        {
            "name": one.name,
            "when": when,
            "topic": one.topic,
            "key": "-" if one.key is None else preview(one.key),
            "value": preview(one.value),
            "headers": ", ".join(f"{k}={preview(v)}" for k, v in one.headers.items()) or "-",
            "priority": PRIORITY_NAMES[one.priority],
            "missed ticks": f"{one.missed}; {one.missed_ticks:,} so far",
            "state": one.state,
            "published": f"{one.published:,}",
            "refused": f"{one.refused_ticks:,}",
            "last tick": "-" if one.last_tick is None else _time(one.last_tick),
            "next ticks": ", ".join(map(_time, one.next_ticks)) or "-",
            "error": one.error or "-",
        }
    )


def _plain(one: "Schedule") -> dict[str, object]:
    return {
        "name": one.name,
        "topic": one.topic,
        "cron": one.cron or None,
        "every": format_duration_ms(one.every_ms) if one.every_ms else None,
        "tz": one.tz,
        "missed": one.missed,
        "state": one.state,
        "key": None if one.key is None else preview(one.key),
        "value": one.value.decode("utf-8", "backslashreplace"),
        "priority": PRIORITY_NAMES[one.priority],
        "published": one.published,
        "missed_ticks": one.missed_ticks,
        "refused_ticks": one.refused_ticks,
        "last_tick": None if one.last_tick is None else _time(one.last_tick),
        "last_partition": one.last_partition,
        "last_offset": one.last_offset,
        "next_ticks": [_time(tick) for tick in one.next_ticks],
        "error": one.error,
    }


def _listed(one: "ScheduleEntry") -> dict[str, object]:
    return {
        "name": one.name,
        "topic": one.topic,
        "cron": one.cron or None,
        "every": format_duration_ms(one.every_ms) if one.every_ms else None,
        "tz": one.tz,
        "missed": one.missed,
        "state": one.state,
        "published": one.published,
        "missed_ticks": one.missed_ticks,
        "refused_ticks": one.refused_ticks,
        "last_tick": None if one.last_tick_ms is None else _at(one.last_tick_ms),
        "next_tick": _at(one.next_ticks_ms[0]) if one.next_ticks_ms else None,
        "error": one.error,
    }


def _at(tick_ms: int) -> str:
    return format_time_us(tick_ms * US_PER_MS)
