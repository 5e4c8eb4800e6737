"""``goqueue produce``: publish lines, files or a single message."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.errors import GoQueueError
from goqueue.base.units import format_size_bytes
from goqueue.cli.failure import Failure, usage
from goqueue.cli.message_input import MessageLines, Outgoing, Style, split_lines
from goqueue.cli.output import count, print_data, remark, say
from goqueue.cli.position import read_time
from goqueue.cli.progress import bytes_bar
from goqueue.cli.session import Session, command
from goqueue.cli.topic import TopicArgument
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue import Producer, SendFuture

LINGER_MS: Final = 5
"""Long enough to gather lines that come in a burst, too short for a person to notice."""


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


Message = Annotated[
    str | None, typer.Option("-m", "--message", help="Publish this one value and end.")
]
File = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--file",
        help="Read messages from a file: JSON messages, # comments, any other line is a value.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Every line is a JSON object with value, key, headers, priority, partition, delay.",
    ),
]
Lines = Annotated[
    bool, typer.Option("--lines", help="Every line is a value, whatever it looks like.")
]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Key of messages that bring none.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--key-delimiter", help="Lines are key, this delimiter, value: e.g. --key-delimiter :"
    ),
]
Partition = Annotated[
    int,
    typer.Option("-p", "--partition", help="Publish to this partition; -1 lets the key decide."),
]
PriorityName = Annotated[
    str | None, typer.Option(help="critical, high, normal, low or background.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("-H", "--header", metavar="NAME=VALUE", help="Header; repeatable."),
]
DelayText = Annotated[
    str | None,
    typer.Option("-d", "--delay", help='Hide messages for so long, e.g. "5s" or "1h30m".'),
]
DeliverAt = Annotated[
    str | None,
    typer.Option(
        "--deliver-at", help="Hide messages until then, e.g. 2026-01-31T12:00:00Z or +1h."
    ),
]
DelayId = Annotated[
    str | None, typer.Option("--delay-id", help="Name to cancel or reschedule a message by.")
]
OnConflict = Annotated[
    str | None,
    typer.Option(
        "--on-conflict",
        help="Where a message waits under the --delay-id: error, or replace to take its place.",
    ),
]
CompressionName = Annotated[Compression, typer.Option(help="Compress batches.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "produce")(produce)


def produce(
    session: Session,
    topic: TopicArgument,
    *,
    message: Message = None,
    file: File = None,
    json: Json = False,
    lines: Lines = False,
    key: Key = None,
    key_delimiter: Delimiter = None,
    partition: Partition = -1,
    priority: PriorityName = None,
    header: Headers = None,
    delay: DelayText = None,
    deliver_at: DeliverAt = None,
    delay_id: DelayId = None,
    on_conflict: OnConflict = None,
    compression: CompressionName = Compression.NONE,
) -> None:
    """Publish messages: lines of stdin, of a file, or one given with --message.

    Every message is acknowledged before the command ends; a failure gives exit code 1.
    """
    if message is not None and file is not None:
        raise usage("--message and --file exclude each other")
    if json and lines:
        raise usage("--json and --lines exclude each other")
    style = Style.JSON if json else Style.LINES
    if file is not None and not json and not lines:
        style = Style.MIXED
    reader = MessageLines(
        style=style,
        key=None if key is None else key.encode(),
        key_delimiter=key_delimiter.encode() if key_delimiter else None,
        headers=read_headers(header or []),
        priority=priority,
        partition=None if partition < 0 else partition,
        delay=delay,
        deliver_at=None if deliver_at is None else read_time(deliver_at, name="--deliver-at"),
        delay_id=delay_id,
        on_conflict=on_conflict,
    )
    codec = None if compression is Compression.NONE else compression.value
    with session.connect() as client, ExitStack() as stack:
        tally = Tally()
        producer = client.producer(
            topic,
            linger_ms=LINGER_MS,
            compression=codec,
            delivery_timeout_ms=session.timeout_ms,
            block_ms_max=session.timeout_ms,
            on_error=tally.failed,
        )
        if message is not None:
            _publish_one(session, producer, _only(reader, message))
            return
        _publish_lines(producer, reader, _lines(file, stack), tally)
    _summarise(session, topic, tally, reader.skipped)


class Tally:
    """What became of the messages of one run."""

    def __init__(self) -> None:
        self.sent = 0
        self.size_bytes = 0
        self.failures = 0
        self.reasons: dict[str, str] = {}
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Return how long it took until now."""
        return max(time.perf_counter() - self._started, 1e-9)

    def failed(self, error: GoQueueError, count: int) -> None:
        """Take messages that were not published. Called by the producer's sender."""
        self.failures += count
        self.reasons.setdefault(error.code, error.message)

    def plain(self, topic: str, *, skipped: int) -> dict[str, object]:
        """Return the outcome for programs."""
        return {
            "topic": topic,
            "published": self.sent - self.failures,
            "failed": self.failures,
            "skipped_lines": skipped,
            "value_bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
        }


def _only(reader: MessageLines, text: str) -> Outgoing:
    try:
        return reader.one(text.encode())
    except ValueError as error:
        raise usage(f"--message: {error}") from error


def _send(producer: "Producer", message: Outgoing) -> "SendFuture":
    if message.is_plain:
        return producer.send(message.value, key=message.key)
    return producer.send(
        message.value,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        partition=message.partition,
        dedup_id=message.dedup_id,
        timestamp=message.timestamp,
        delay=message.delay,
        deliver_at=message.deliver_at,
        delay_id=message.delay_id,
        on_conflict=message.on_conflict,
    )


def _publish_lines(
    producer: "Producer", reader: MessageLines, lines: Iterator[bytes], tally: Tally
) -> None:
    """Publish every line; a bad one ends it, and says what became of those before it."""
    try:
        for outgoing in reader.read(lines):
            _send(producer, outgoing)
            tally.sent += 1
            tally.size_bytes += len(outgoing.value or b"")
    except (GoQueueError, ValueError) as error:
        producer.flush()
        before = count(tally.sent - tally.failures, "message")
        raise Failure(
            f"line {reader.number}: {error}; {before} before it published",
            code=getattr(error, "code", "bad_line"),
        ) from error
    producer.flush()


def _publish_one(session: Session, producer: "Producer", message: Outgoing) -> None:
    place = _send(producer, message).result()
    if session.is_table:
        again = ", published before" if place.is_duplicate else ""
        copies = f", {place.replicas} replicas" if place.replicas > 1 else ""
        meaning = f"{place.durability}{copies}{again}"
        say(f"{place.topic}/{place.partition} offset {place.offset} ({meaning})")
    else:
        print_data(
            session.output,
            {
                "topic": place.topic,
                "partition": place.partition,
                "offset": place.offset,
                "timestamp": format_time_us(place.timestamp_us),
                "durability": place.durability,
                "replicas": place.replicas,
                "duplicate": place.is_duplicate,
            },
        )


def _lines(file: Path | None, stack: ExitStack) -> Iterator[bytes]:
    if file is None:
        if sys.stdin.isatty():
            remark("type messages, one a line; Ctrl-D ends")
        yield from split_lines(sys.stdin.buffer, lambda _: None)
        return
    try:
        content = stack.enter_context(file.open("rb"))
    except OSError as error:
        raise Failure(
            f"{file}: {(error.strerror or str(error)).lower()}", code="no_file"
        ) from error
    advance = stack.enter_context(bytes_bar(file.name, file.stat().st_size))
    yield from split_lines(content, advance)


def _summarise(session: Session, topic: str, tally: Tally, skipped: int) -> None:
    published = tally.sent - tally.failures
    if not session.is_table:
        print_data(session.output, tally.plain(topic, skipped=skipped))
    else:
        comments = f", {skipped} lines skipped" if skipped else ""
        remark(
            f"{count(published, 'message')} to {topic} in {tally.seconds:.2f} s"
            f" ({published / tally.seconds:,.0f}/s,"
            f" {format_size_bytes(tally.size_bytes)}{comments})"
        )
    if tally.failures:
        reasons = "; ".join(f"{message} ({code})" for code, message in tally.reasons.items())
        raise Failure(
            f"{tally.failures:,} of {tally.sent:,} messages were not published: {reasons}",
            code=next(iter(tally.reasons)),
        )


def read_headers(texts: list[str]) -> dict[str, bytes | str]:
    """Take ``name=value`` apart."""
    headers: dict[str, bytes | str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise usage(f"--header {text}: write it as name=value")
        headers[name] = value
    return headers
