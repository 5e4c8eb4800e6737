"""``goqueue consume``: read a topic."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.base.errors import DataLossError
from goqueue.cli.consume_group import AutoAck, GroupName, Membership, Mode, NoAck, Ordering
from goqueue.cli.delayed import tell_hidden
from goqueue.cli.failure import usage
from goqueue.cli.message_format import (
    FORMAT_HELP,
    PIPE_FORMAT,
    Piece,
    compile_format,
    for_people,
    lost,
    structured,
)
from goqueue.cli.output import Output
from goqueue.cli.position import Position, read_position
from goqueue.cli.session import Session, command
from goqueue.cli.topic import complete_topics

if TYPE_CHECKING:
    from goqueue import Client, Message

TopicArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...",
        help="Name of the topic; with --group, several.",
        autocompletion=complete_topics,
    ),
]
FromText = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Where to begin: beginning, end, an offset, a time such as 2026-01-31T12:00, -1h (an"
        " hour ago), or -1 (the last offset of each partition, -10 the last ten of each).",
        show_default="beginning",
    ),
]
ToText = Annotated[
    str | None,
    typer.Option(
        "--to", help="Where to end, not included; written like --from.", show_default="end"
    ),
]
OffsetNumber = Annotated[int | None, typer.Option("--offset", min=0, help="Same as --from OFFSET.")]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="Same as --from beginning.")]
FromLatest = Annotated[bool, typer.Option("--from-latest", help="Same as --from end.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Wait for new messages; Ctrl-C ends.")]
Count = Annotated[
    int | None,
    typer.Option("-n", "--count", "--limit", min=1, help="Stop after so many messages."),
]
PartitionNumbers = Annotated[
    list[int] | None,
    typer.Option(
        "-p", "--partition", help="Read this partition only; repeatable.", show_default="all"
    ),
]
FormatText = Annotated[str | None, typer.Option("--format", help=FORMAT_HELP)]
SkipGaps = Annotated[
    bool, typer.Option("--skip-gaps", help="Read on behind messages that are gone or damaged.")
]


class NotDue(StrEnum):
    """What becomes of messages that are not due."""

    HIDE = "hide"
    SHOW = "show"


DelayedChoice = Annotated[
    NotDue, typer.Option("--delayed", help="Also show messages that are not due or were cancelled.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "consume")(consume)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read."""

    start: Position
    end: Position | None
    partitions: list[int] | None
    follow: bool
    count: int | None
    skip_gaps: bool
    delayed: NotDue

    def messages(self, client: "Client", topic: str, hidden: list[int]) -> "Iterator[Message]":
        """Yield the messages, in order within each partition."""
        messages = client.read(
            topic,
            start=self.start,
            end=self.end,
            partitions=self.partitions,
            follow=self.follow,
            on_gap="skip" if self.skip_gaps else "raise",
            delayed=self.delayed.value,
            on_hidden=lambda _, ranges: hidden.extend(end - start for start, end in ranges),
        )
        return islice(messages, self.count)

    def run(self, session: Session, topics: list[str], write: Piece) -> None:
        """Print the messages of a topic."""
        if self.follow and self.end is not None:
            raise usage("--follow and --to exclude each other")
        if len(topics) != 1:
            raise usage("several topics are consumed by a group", "name it with --group")
        with session.connect() as client:
            try:
                hidden: list[int] = []
                _print(self.messages(client, topics[0], hidden), write, at_once=self.follow)
                tell_hidden(sum(hidden))
            except DataLossError as error:
                raise lost(error) from error
            except KeyboardInterrupt:
                # The way to end a reader that follows, so it is no failure.
                if not self.follow:
                    raise


def consume(
    session: Session,
    topics: TopicArguments,
    *,
    from_text: FromText = None,
    to_text: ToText = None,
    offset: OffsetNumber = None,
    from_beginning: FromBeginning = False,
    from_latest: FromLatest = False,
    follow: Follow = False,
    count: Count = None,
    partition: PartitionNumbers = None,
    format_text: FormatText = None,
    skip_gaps: SkipGaps = False,
    delayed: DelayedChoice = NotDue.HIDE,
    group: GroupName = None,
    mode: Mode = None,
    ordering: Ordering = None,
    no_ack: NoAck = False,
    auto_ack: AutoAck = False,
) -> None:
    """Read messages of a topic, in order within each partition.

    A terminal shows place, time, key and value; a pipe gets the values alone, one a line. -o json
    gives JSON lines, which `goqueue produce --json` takes back. With --group one or several topics
    are consumed as a queue, and what was printed is acked.
    """
    start = _start(from_text, offset, from_beginning=from_beginning, from_latest=from_latest)
    write = _writer(session, format_text)
    now = datetime.now(UTC)
    if group is not None:
        if to_text or offset is not None or partition or skip_gaps or delayed is not NotDue.HIDE:
            raise usage("--group excludes --to, --offset, --partition, --skip-gaps and --delayed")
        membership = Membership(
            group=group,
            topics=topics,
            start=None if start is None else read_position(start, name="--from", now=now),
            mode=mode,
            ordering=ordering,
            follow=follow,
            count=count,
            no_ack=no_ack,
            auto_ack=auto_ack,
        )
        membership.run(session, write)
        return
    if mode or ordering or no_ack or auto_ack:
        raise usage("--mode, --ordering, --no-ack and --auto-ack go with --group")
    reading = Reading(
        start=read_position(start or "beginning", name="--from", now=now),
        end=None if to_text is None else read_position(to_text, name="--to", now=now),
        partitions=partition,
        follow=follow,
        count=count,
        skip_gaps=skip_gaps,
        delayed=delayed,
    )
    reading.run(session, topics, write)


def _start(
    text: str | None, offset: int | None, *, from_beginning: bool, from_latest: bool
) -> str | None:
    asked = [
        one
        for one in (
            text,
            None if offset is None else str(offset),
            "beginning" if from_beginning else None,
            "end" if from_latest else None,
        )
        if one is not None
    ]
    if len(asked) > 1:
        raise usage("--from, --offset, --from-beginning and --from-latest exclude each other")
    return asked[0] if asked else None


def _writer(session: Session, text: str | None) -> Piece:
    asked = session.asked_output
    is_terminal = sys.stdout.isatty()
    if text is not None:
        if asked in (Output.JSON, Output.YAML):
            raise usage(f"--format and -o {asked} exclude each other")
        return compile_format(text, is_terminal=is_terminal)
    if asked in (Output.JSON, Output.YAML):
        return structured(asked, is_terminal=is_terminal)
    if is_terminal or asked is Output.TABLE:
        return for_people
    return compile_format(PIPE_FORMAT, is_terminal=False)


def _print(messages: "Iterator[Message]", write: Piece, *, at_once: bool) -> None:
    stream = sys.stdout.buffer
    for message in messages:
        stream.write(write(message))
        if at_once:
            stream.flush()
    stream.flush()
