"""``goqueue delayed``: messages that wait for their time."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import US_PER_MS, format_duration_ms
from goqueue.cli.failure import usage
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, count, print_data, remark, say
from goqueue.cli.position import read_time
from goqueue.cli.preview import preview
from goqueue.cli.session import Session, add_common_options, command
from goqueue.cli.terminal import text_of
from goqueue.cli.topic import TopicArgument
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue.client.protocol.delays import Delayed

Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="Most to show.")]
Skip = Annotated[int, typer.Option(min=0, help="How many to leave out first.")]
Place = Annotated[
    str | None, typer.Argument(metavar="[PARTITION:OFFSET]", help="Where the message is.")
]
DelayId = Annotated[str | None, typer.Option("--id", help="The delay_id it was published with.")]
DelayText = Annotated[
    str | None, typer.Option("-d", "--delay", help='How long from now, e.g. "5s" or "1h30m".')
]
DeliverAt = Annotated[
    str | None, typer.Option("--deliver-at", help="When, e.g. 2026-01-31T12:00:00Z or +1h.")
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    delayed = typer.Typer()
    add_common_options(delayed, "Delayed messages: those that wait for their time.")
    command(delayed, "list")(list_delayed)
    command(delayed, "get")(get)
    command(delayed, "cancel")(cancel)
    command(delayed, "reschedule")(reschedule)
    app.add_typer(delayed, name="delayed")


def list_delayed(
    session: Session, topic: TopicArgument, *, limit: Limit = 100, skip: Skip = 0
) -> None:
    """List the messages of a topic that wait, by partition and offset."""
    with session.connect() as client:
        found = client.delayed(topic, limit=limit, skip=skip)
    _show(session, found, empty=f"no message of {topic} waits for its time")


def get(session: Session, topic: TopicArgument, place: Place = None, *, id: DelayId = None) -> None:  # noqa: A002
    """Show a delayed message, whatever became of it."""
    partition, offset = read_place(place, id)
    with session.connect() as client:
        found = client.find_delayed(topic, partition, offset, id=id)
    _show(session, found)


def cancel(
    session: Session,
    topic: TopicArgument,
    place: Place = None,
    *,
    id: DelayId = None,  # noqa: A002
) -> None:
    """Have a waiting message never delivered."""
    partition, offset = read_place(place, id)
    with session.connect() as client:
        found = client.cancel_delayed(topic, partition, offset, id=id)
    if session.is_table:
        for one in found:
            say(f"{one.topic}/{one.partition} offset {one.offset} is cancelled")
    else:
        print_data(session.output, [_plain(one) for one in found])


def reschedule(
    session: Session,
    topic: TopicArgument,
    place: Place = None,
    *,
    id: DelayId = None,  # noqa: A002
    delay: DelayText = None,
    deliver_at: DeliverAt = None,
) -> None:
    """Give a waiting message another time."""
    partition, offset = read_place(place, id)
    at = None if deliver_at is None else read_time(deliver_at, name="--deliver-at")
    if (delay is None) == (at is None):
        raise usage("give --delay or --deliver-at, one of them")
    with session.connect() as client:
        try:
            found = client.reschedule_delayed(
                topic, partition, offset, id=id, delay=delay, deliver_at=at
            )
        except InvalidRequestError as error:
            raise usage(error.message) from error
    _show(session, found)


def read_place(place: str | None, name: str | None) -> tuple[int | None, int | None]:
    """Take ``partition:offset`` apart; without it a name is required."""
    if (place is None) == (name is None):
        raise usage("say which message: PARTITION:OFFSET, or --id ID")
    if place is None:
        return None, None
    partition, colon, offset = place.partition(":")
    if not colon or not partition.isdecimal() or not offset.isdecimal():
        raise usage(f"{place}: write it as PARTITION:OFFSET, for example 0:42")
    return int(partition), int(offset)


def _show(session: Session, found: "list[Delayed]", empty: str = "nothing to show") -> None:
    now_us = (datetime.now(UTC) - _EPOCH) // timedelta(microseconds=1)
    rows = [
        (
            one.partition,
            one.offset,
            moment(one.deliver_at_us),
            format_duration_ms(max(one.deliver_at_us - now_us, 0) // US_PER_MS),
            one.state,
            "-" if one.delay_id is None else preview(one.delay_id),
            "-" if one.key is None else preview(one.key),
            "-" if one.preview is None else preview(one.preview, size=one.value_bytes),
        )
        for one in found
    ]
    columns = (
        ">PARTITION", ">OFFSET", "DELIVER AT", ">LEFT", "STATE", "DELAY ID", "KEY", "PREVIEW",
    )  # fmt: skip
    session.show([_plain(one) for one in found], Grid(columns=columns, rows=rows, empty=empty))


def _plain(one: "Delayed") -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "deliver_at": format_time_us(one.deliver_at_us),
        "state": one.state,
        "delay_id": one.delay_id,
        "key": None if one.key is None else text_of(one.key),
        "preview": None if one.preview is None else text_of(one.preview),
        "value_bytes": one.value_bytes,
    }


def tell_hidden(hidden: int) -> None:
    """Say how many messages a reader passed over."""
    if hidden:
        what = count(hidden, "message")
        remark(f"{what} left out: delayed or cancelled; --delayed show also shows them")
