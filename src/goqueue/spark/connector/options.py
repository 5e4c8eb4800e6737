"""The options of ``format("goqueue")``: read, checked all at once, and kept as values.

Shape: calculator. Names are those users of Spark's Kafka source know; Spark hands them over in
lower case. Everything that is wrong is told together.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from goqueue.base.errors import GoQueueError, InvalidRequestError
from goqueue.base.limits import NAME_CHARACTERS_MAX, TX_TIMEOUT_MS_MAX
from goqueue.base.names import check_name
from goqueue.base.units import SECOND_MS
from goqueue.client.link import parse_address

DEFAULT_SERVERS: Final = "127.0.0.1:7070"
EARLIEST: Final = -2
LATEST: Final = -1
TOPICS_MAX: Final = 1_000
"""Most topics of one reader: each is asked for its offsets in every micro-batch."""
PATTERN_CHARACTERS_MAX: Final = 1_000
ROWS_MAX: Final = 2**62
TASKS_MAX: Final = 100_000

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""
Position = int | Offsets
"""EARLIEST or LATEST for every partition, or an offset for each; there, too, -2 and -1."""

READ_OPTIONS: Final = (
    "servers",
    "bootstrap.servers",
    "apiKey",
    "logdir",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "schema",
    "timeout",
)
WRITE_OPTIONS: Final = (
    "servers",
    "bootstrap.servers",
    "apiKey",
    "topic",
    "txnAppId",
    "txnVersion",
    "delivery",
    "compression",
    "transactionTimeout",
    "timeout",
)
SPARKS_OWN: Final = ("checkpointlocation", "queryname")
"""What Spark passes on although it is meant for itself."""

Given = Mapping[str, str]
Value = TypeVar("Value")


class OptionsError(InvalidRequestError):
    """Options are unknown, contradictory or out of bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach the broker."""

    servers: str = DEFAULT_SERVERS
    api_key: str | None = None
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read. Exactly one of ``topics``, ``pattern`` and ``assigned`` is given."""

    connection: Connection
    logdir: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    start: Position = EARLIEST
    end: Position = LATEST
    start_ms: int | None = None
    end_ms: int | None = None
    rows_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    tasks_min: int = 1
    rows_per_task_max: int | None = None
    is_loss_fatal: bool = True
    has_headers: bool = True
    is_typed: bool = False

    def wants(self, topic: str) -> bool:
        """Tell whether a topic is among those to be read."""
        if self.pattern is not None:
            # Internal topics are nobody's data unless they are asked for by name.
            return not topic.startswith("__") and re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or topic in (self.assigned or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write, and how surely."""

    connection: Connection
    topic: str | None = None
    app_id: str | None = None
    version: int | None = None
    is_exactly_once: bool = True
    compression: str | None = None
    transaction_timeout_ms: int = TX_TIMEOUT_MS_MAX


class _Reading:
    """Takes options out one by one and gathers what is wrong with them."""

    def __init__(self, given: Given, known: Sequence[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}
        self.problems: list[str] = []
        for name in self._given:
            if name not in self._known and name not in SPARKS_OWN:
                self.problems.append(_unknown(name, self._known))

    def has(self, *names: str) -> list[str]:
        return [name for name in names if name.lower() in self._given]

    def take(self, name: str, parse: Callable[[str], Value], default: Value) -> Value:
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except (ValueError, GoQueueError) as error:
            self.problems.append(f"{name}: {error}")
            return default

    def refuse_together(self, *names: str) -> None:
        found = self.has(*names)
        if len(found) > 1:
            self.problems.append(f"{' and '.join(found)} contradict each other; give one of them")

    def finish(self) -> None:
        if self.problems:
            raise OptionsError("; ".join(self.problems))


def read_options(given: Given, *, is_stream: bool | None) -> ReadOptions:
    """Check the options of a reader; None where it may be of a batch or of a stream."""
    reading = _Reading(given, READ_OPTIONS)
    _check_source(reading, is_stream=is_stream)
    # A stream begins with what is new, a batch takes all there is: as Spark's Kafka source.
    default_start: Position = LATEST if is_stream else EARLIEST
    default_end: Position = LATEST
    options = ReadOptions(
        connection=_connection(reading),
        logdir=reading.take("logdir", _directory, None),
        topics=reading.take("subscribe", _topics, ()),
        pattern=reading.take("subscribePattern", _pattern, None),
        assigned=reading.take("assign", _assigned, None),
        start=reading.take("startingOffsets", _start, default_start),
        end=reading.take("endingOffsets", _end, default_end),
        start_ms=reading.take("startingTimestamp", _natural, None),
        end_ms=reading.take("endingTimestamp", _natural, None),
        rows_per_trigger_max=reading.take("maxOffsetsPerTrigger", _count, None),
        bytes_per_trigger_max=reading.take("maxBytesPerTrigger", _count, None),
        tasks_min=reading.take("minPartitions", _tasks, 1),
        rows_per_task_max=reading.take("maxRecordsPerPartition", _count, None),
        is_loss_fatal=reading.take("failOnDataLoss", _flag, default=True),
        has_headers=reading.take("includeHeaders", _flag, default=True),
        is_typed=reading.take("schema", _schema, default=False),
    )
    reading.finish()
    return options


def _check_source(reading: _Reading, *, is_stream: bool | None) -> None:
    choices = ("subscribe", "subscribePattern", "assign")
    reading.refuse_together(*choices)
    if not reading.has(*choices):
        reading.problems.append(f"say what to read: one of {', '.join(choices)}")
    reading.refuse_together("servers", "bootstrap.servers", "logdir")
    reading.refuse_together("maxOffsetsPerTrigger", "maxBytesPerTrigger")
    reading.refuse_together("startingOffsets", "startingTimestamp")
    reading.refuse_together("endingOffsets", "endingTimestamp")
    of_batches = ("logdir", "endingOffsets", "endingTimestamp")
    of_streams = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
    if is_stream is not None:
        wrong, kind = (of_batches, "batches") if is_stream else (of_streams, "streams")
        reading.problems += [f"{name} is for {kind} only" for name in reading.has(*wrong)]
    if reading.has("logdir"):
        reading.problems += [
            f"{name} needs a broker, and logdir reads without one"
            for name in reading.has("schema", "apiKey")
        ]


def write_options(given: Given, *, is_stream: bool) -> WriteOptions:
    """Check the options of a writer."""
    reading = _Reading(given, WRITE_OPTIONS)
    reading.refuse_together("servers", "bootstrap.servers")
    if is_stream and reading.has("txnVersion"):
        reading.problems.append("txnVersion is for batches only; a stream counts by itself")
    if not is_stream and len(reading.has("txnAppId", "txnVersion")) == 1:
        reading.problems.append("txnAppId and txnVersion of a batch belong together")
    options = WriteOptions(
        connection=_connection(reading),
        topic=reading.take("topic", _topic, None),
        app_id=reading.take("txnAppId", _app_id, None),
        version=reading.take("txnVersion", _version, None),
        is_exactly_once=reading.take("delivery", _delivery, default=True),
        compression=reading.take("compression", _compression, None),
        transaction_timeout_ms=reading.take(
            "transactionTimeout", _transaction_timeout, TX_TIMEOUT_MS_MAX
        ),
    )
    if not options.is_exactly_once:
        reading.problems += [
            f"{name} is for delivery={EXACTLY_ONCE} only"
            for name in reading.has("txnAppId", "txnVersion", "transactionTimeout")
        ]
    reading.finish()
    return options


def _connection(reading: _Reading) -> Connection:
    servers = reading.take("servers", _servers, DEFAULT_SERVERS)
    return Connection(
        servers=reading.take("bootstrap.servers", _servers, servers),
        api_key=reading.take("apiKey", _plain, None),
        timeout_ms=reading.take("timeout", _timeout, 30_000),
    )


def _unknown(name: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    return f"{name[:100]!a} is not an option{hint}"


# The values.


def _plain(text: str) -> str | None:
    if not text:
        raise ValueError("is empty")
    return text


def _directory(text: str) -> str | None:
    if not text.startswith("/") or "\0" in text:
        raise ValueError(f"{text[:100]!a} is not a whole path, which drivers and executors share")
    return text


def _servers(text: str) -> str:
    address = text.split(",", maxsplit=1)[0].strip()
    parse_address(address)
    return address


def _topic(text: str) -> str:
    return check_name(text.strip(), field="topic")


def _topics(text: str) -> tuple[str, ...]:
    names = [_topic(name) for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("names no topic")
    if len(names) > TOPICS_MAX:
        raise ValueError(f"names {len(names)} topics; the limit is {TOPICS_MAX}")
    return tuple(dict.fromkeys(names))


def _pattern(text: str) -> str:
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters; the limit is {PATTERN_CHARACTERS_MAX}")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text


def _assigned(text: str) -> Mapping[str, tuple[int, ...]]:
    found = _json_object(text, '{"orders": [0, 1]}')
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(map(_is_natural, partitions)):
            raise ValueError(f"{topic!a} must have a list of partition numbers")
        assigned[_topic(topic)] = tuple(sorted(set(partitions)))
    if not assigned:
        raise ValueError("names no topic")
    return assigned


def _start(text: str) -> Position:
    return _position(text, allowed=(EARLIEST, LATEST))


def _end(text: str) -> Position:
    position = _position(text, allowed=(LATEST,))
    if position == EARLIEST:
        raise ValueError("'earliest' is no end; write latest or offsets")
    return position


def _position(text: str, *, allowed: tuple[int, ...]) -> Position:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    found = _json_object(text, 'earliest, latest or {"orders": {"0": 23, "1": -2}}')
    offsets: Offsets = {}
    for topic, parts in found.items():
        if not isinstance(parts, dict):
            raise ValueError(f"{topic!a} must have an offset for each partition")  # noqa: TRY004
        offsets[_topic(topic)] = {
            _partition(partition): _offset(offset, allowed) for partition, offset in parts.items()
        }
    return offsets


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > len(str(2**31)):
        raise ValueError(f"{text[:50]!a} is not a partition number")
    return int(text)


def _offset(offset: object, allowed: tuple[int, ...]) -> int:
    if _is_natural(offset) or (isinstance(offset, int) and offset in allowed):
        return int(str(offset))
    raise ValueError(f"{str(offset)[:50]!a} is not an offset, nor one of {list(allowed)}")


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < ROWS_MAX


def _json_object(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{text[:100]!a} is not {example}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{text[:100]!a} is not {example}")  # noqa: TRY004 - a value, not a type
    return found


def _natural(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or int(text) >= ROWS_MAX:
        raise ValueError(f"{text[:50]!a} is not milliseconds since 1970")
    return int(text)


def _count(text: str) -> int | None:
    return _within(text, 1, ROWS_MAX)


def _version(text: str) -> int | None:
    return _within(text, 0, ROWS_MAX)


def _tasks(text: str) -> int:
    return _within(text, 1, TASKS_MAX)


def _timeout(text: str) -> int:
    return _within(text, 1, 600) * SECOND_MS


def _transaction_timeout(text: str) -> int:
    return _within(text, 1, TX_TIMEOUT_MS_MAX // SECOND_MS) * SECOND_MS


def _within(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise ValueError(f"{text[:50]!a} is not a whole number between {least} and {most}")
    return int(text)


def _flag(text: str) -> bool:
    return _choice(text, {"true": True, "false": False})


def _schema(text: str) -> bool:
    return _choice(text, {"registry": True, "raw": False})


def _delivery(text: str) -> bool:
    return _choice(text, {EXACTLY_ONCE: True, AT_LEAST_ONCE: False})


def _compression(text: str) -> str | None:
    return _choice(text, {"none": None, "lz4": "lz4", "zstd": "zstd"})


def _choice(text: str, choices: Mapping[str, Value]) -> Value:
    word = text.strip().lower()
    if word not in choices:
        raise ValueError(f"{text[:50]!a} is none of {', '.join(choices)}")
    return choices[word]


APP_ID_CHARACTERS_MAX: Final = NAME_CHARACTERS_MAX - 60
"""Room is left for the task and the attempt that follow it."""


def _app_id(text: str) -> str:
    if len(text) > APP_ID_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters; the limit is {APP_ID_CHARACTERS_MAX}")
    return check_name(text, field="txnAppId")
