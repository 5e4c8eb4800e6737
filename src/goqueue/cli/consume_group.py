"""``goqueue consume --group``: take messages as a member of a consumer group."""

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.cli.failure import usage
from goqueue.cli.group_name import complete_groups
from goqueue.cli.message_format import Piece
from goqueue.cli.position import Position
from goqueue.cli.session import Session

if TYPE_CHECKING:
    from goqueue import Client, Consumer, Delivery

MESSAGES_AT_ONCE: Final = 500
IDLE_SECONDS: Final = 2.0
"""A consumer that does not follow ends when nothing came for so long."""
FOLLOW_SECONDS: Final = 60.0

_PANEL: Final = "As a member of a group"

GroupName = Annotated[
    str | None,
    typer.Option(
        "-g",
        "--group",
        help="Consume as a member of this group: what is acked does not come again.",
        autocompletion=complete_groups,
        rich_help_panel=_PANEL,
    ),
]
Ordering = Annotated[
    str | None,
    typer.Option(
        "--ordering", help="none, or key: a key's messages in turn.", rich_help_panel=_PANEL
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        help="exclusive, or shared: more consumers than partitions.",
        rich_help_panel=_PANEL,
    ),
]
NoAck = Annotated[
    bool,
    typer.Option("--no-ack", help="Only look: everything is given back.", rich_help_panel=_PANEL),
]
AutoAck = Annotated[
    bool,
    typer.Option(
        "--auto-ack",
        help="Ack what comes before it is printed: it is never printed twice.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How to consume."""

    group: str
    topics: list[str]
    start: Position | None
    mode: str | None
    ordering: str | None
    follow: bool
    count: int | None
    no_ack: bool
    auto_ack: bool

    def run(self, session: Session, write: Piece) -> None:
        """Print what comes."""
        if self.no_ack and self.auto_ack:
            raise usage("--no-ack and --auto-ack exclude each other")
        if self.start not in (None, "earliest", "latest"):
            raise usage("--from: a new group begins at the beginning or at the end")
        with session.connect() as client:
            self._consume(client, write)

    def _consume(self, client: "Client", write: Piece) -> None:
        # No more than is wanted: what waits here is kept from other members.
        prefetch = MESSAGES_AT_ONCE if self.count is None else min(self.count, MESSAGES_AT_ONCE)
        with client.consumer(
            self.group,
            self.topics,
            mode=self.mode,
            ordering=self.ordering,
            start=self.start,
            prefetch=prefetch,
            client_id="goqueue-consume",
        ) as consumer:
            interrupts: list[int] = []

            def stop(number: int, _: object) -> None:
                # Not raised anywhere: what is being printed is printed and acked.
                interrupts.append(number)
                consumer.stop()
                if len(interrupts) > 1:
                    raise KeyboardInterrupt

            before = signal.signal(signal.SIGINT, stop)
            try:
                for messages in self._batches(consumer):
                    self._print(messages, write)
                    if interrupts:
                        break
                consumer.flush()
            finally:
                signal.signal(signal.SIGINT, before)
        # The way to end a consumer that follows, so it is no failure.
        if interrupts and not self.follow:
            raise KeyboardInterrupt

    def _batches(self, consumer: "Consumer") -> "Iterator[list[Delivery]]":
        left = self.count
        seconds = FOLLOW_SECONDS if self.follow else IDLE_SECONDS
        while left is None or left > 0:
            wanted = MESSAGES_AT_ONCE if left is None else min(left, MESSAGES_AT_ONCE)
            messages = consumer.poll(wanted, timeout=seconds)
            if not messages and not (self.follow and consumer.is_running):
                return
            left = None if left is None else left - len(messages)
            yield messages

    def _print(self, messages: "list[Delivery]", write: Piece) -> None:
        stream = sys.stdout.buffer
        if self.auto_ack:
            _ack(messages)
        for message in messages:
            stream.write(write(message))
        stream.flush()
        if not (self.no_ack or self.auto_ack):
            _ack(messages)


def _ack(messages: "list[Delivery]") -> None:
    for message in messages:
        message.ack()
