"""The options of ``format("goqueue")``: read, checked all at once, and kept as values.

Shape: calculator. Names are those users of Spark's Kafka source know; Spark hands them over in
lower case. Everything that is wrong is told together.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from goqueue.base.errors import GoQueueError, InvalidRequestError
from goqueue.base.limits import NAME_CHARACTERS_MAX, PARTITIONS_MAX, TX_TIMEOUT_MS_MAX
from goqueue.base.names import check_name
from goqueue.base.units import SECOND_MS
from goqueue.client.protocol.exchange import parse_addresses
from goqueue.client.tls import SECURE_SCHEME, TlsOptions
from goqueue.spark.connector.option_places import (
    EARLIEST,
    LATEST,
    ROWS_MAX,
    Position,
    Times,
    end_of,
    partitions_of,
    pattern_of,
    start_of,
    times_of,
    topic_of,
    topics_of,
)

DEFAULT_SERVERS: Final = "127.0.0.1:7070"
TASKS_MAX: Final = 100_000
TRIGGER_DELAY_MS: Final = 15 * 60 * SECOND_MS
"""How long ``minOffsetsPerTrigger`` waits at most, as in Spark's Kafka source."""
TRIGGER_DELAY_MS_MAX: Final = 7 * 24 * 3_600 * SECOND_MS

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

TLS_OPTIONS: Final = ("tls", "tlsCa", "tlsCert", "tlsKey", "tlsPin", "tlsServerName")
READ_OPTIONS: Final = (
    "servers",
    "bootstrap.servers",
    "apiKey",
    *TLS_OPTIONS,
    "logdir",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
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
    *TLS_OPTIONS,
    "topic",
    "createTopic",
    "txnAppId",
    "txnVersion",
    "delivery",
    "compression",
    "transactionTimeout",
    "timeout",
)
SOURCES: Final = ("subscribe", "subscribePattern", "assign")
"""One of them says what to read."""
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
    tls: TlsOptions | None = None


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
    start_times: Times = field(default_factory=dict)
    end_times: Times = field(default_factory=dict)
    needs_start_time: bool = False
    """Whether a time behind all messages is an error; else it is the end."""
    rows_per_trigger_min: int | None = None
    trigger_delay_max_ms: int = TRIGGER_DELAY_MS
    rows_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    tasks_min: int = 1
    rows_per_task_max: int | None = None
    is_loss_fatal: bool = True
    has_headers: bool = True
    is_typed: bool = False

    def wants(self, topic: str) -> bool:
        """Return True if a topic is among those to be read."""
        if self.pattern is not None:
            # Internal topics are nobody's data unless they are asked for by name.
            return not topic.startswith("__") and re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or topic in (self.assigned or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to write, and how surely."""

    connection: Connection
    topic: str | None = None
    partitions_made: int | None = None
    """Topics that are not there are made with so many partitions."""
    app_id: str | None = None
    version: int | None = None
    is_exactly_once: bool = True
    compression: str | None = None
    transaction_timeout_ms: int = TX_TIMEOUT_MS_MAX


class _OptionReading:
    """Takes options out one by one and gathers what is wrong with them."""

    def __init__(self, given: Given, known: Sequence[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._known = {name.lower(): name for name in known}
        self.problems: list[str] = []
        for name in self._given:
            if name not in self._known and name not in SPARKS_OWN:
                self.problems.append(_unknown(name, self._known))

    @property
    def is_empty(self) -> bool:
        return not self._given

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
    reading = _OptionReading(given, READ_OPTIONS)
    _check_source(reading, is_stream=is_stream)
    # A stream begins with what is new, a batch takes all there is: as Spark's Kafka source.
    default_start: Position = LATEST if is_stream else EARLIEST
    default_end: Position = LATEST
    options = ReadOptions(
        connection=_connection(reading),
        logdir=reading.take("logdir", _directory, None),
        topics=reading.take("subscribe", topics_of, ()),
        pattern=reading.take("subscribePattern", pattern_of, None),
        assigned=reading.take("assign", partitions_of, None),
        start=reading.take("startingOffsets", start_of, default_start),
        end=reading.take("endingOffsets", end_of, default_end),
        start_ms=reading.take("startingTimestamp", _natural, None),
        end_ms=reading.take("endingTimestamp", _natural, None),
        start_times=reading.take("startingOffsetsByTimestamp", times_of, {}),
        end_times=reading.take("endingOffsetsByTimestamp", times_of, {}),
        needs_start_time=reading.take(
            "startingOffsetsByTimestampStrategy", _time_strategy, default=False
        ),
        rows_per_trigger_min=reading.take("minOffsetsPerTrigger", _count, None),
        trigger_delay_max_ms=reading.take("maxTriggerDelay", _duration_ms, TRIGGER_DELAY_MS),
        rows_per_trigger_max=reading.take("maxOffsetsPerTrigger", _count, None),
        bytes_per_trigger_max=reading.take("maxBytesPerTrigger", _count, None),
        tasks_min=reading.take("minPartitions", _tasks, 1),
        rows_per_task_max=reading.take("maxRecordsPerPartition", _count, None),
        is_loss_fatal=reading.take("failOnDataLoss", _flag, default=True),
        has_headers=reading.take("includeHeaders", _flag, default=True),
        is_typed=reading.take("schema", _schema, default=False),
    )
    most = options.rows_per_trigger_max
    if most is not None and (options.rows_per_trigger_min or 0) > most:
        reading.problems.append("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
    reading.finish()
    return options


def check_source(given: Given) -> None:
    """Refuse options that do not say what to read."""
    reading = _OptionReading(given, READ_OPTIONS)
    if not reading.has(*SOURCES):
        _check_source(reading, is_stream=None)
        reading.finish()


def _check_source(reading: _OptionReading, *, is_stream: bool | None) -> None:
    reading.refuse_together(*SOURCES)
    if not reading.has(*SOURCES):
        reading.problems.append(
            f"say what to read: one of {', '.join(SOURCES)}{_sql_hint(reading)}"
        )
    reading.refuse_together("servers", "bootstrap.servers", "logdir")
    reading.refuse_together("maxOffsetsPerTrigger", "maxBytesPerTrigger")
    for name in ("starting", "ending"):
        times = (f"{name}Timestamp", f"{name}OffsetsByTimestamp")
        reading.refuse_together(f"{name}Offsets", *times)
    if reading.has("maxTriggerDelay") and not reading.has("minOffsetsPerTrigger"):
        reading.problems.append("maxTriggerDelay needs minOffsetsPerTrigger, which it bounds")
    of_batches = ("logdir", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    of_streams = (
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    )
    if is_stream is not None:
        wrong, kind = (of_batches, "batches") if is_stream else (of_streams, "streams")
        reading.problems += [f"{name} is for {kind} only" for name in reading.has(*wrong)]
    if reading.has("logdir"):
        reading.problems += [
            f"{name} needs a broker, and logdir reads without one"
            for name in reading.has("schema", "apiKey", *TLS_OPTIONS)
        ]


def _sql_hint(reading: _OptionReading) -> str:
    """Return what helps where SQL has lost the options, or a view is meant for writing."""
    if reading.has("topic"):
        return "; a view to write to names its columns: (key STRING, value STRING)"
    if reading.is_empty:
        return (
            "; Spark keeps no options of CREATE TABLE … USING goqueue: write CREATE TEMPORARY"
            " VIEW … USING goqueue OPTIONS (…), or SELECT … FROM table WITH (subscribe = '…')"
        )
    return ""


def write_options(given: Given, *, is_stream: bool) -> WriteOptions:
    """Check the options of a writer."""
    reading = _OptionReading(given, WRITE_OPTIONS)
    reading.refuse_together("servers", "bootstrap.servers")
    if is_stream and reading.has("txnVersion"):
        reading.problems.append("txnVersion is for batches only; a stream counts by itself")
    if not is_stream and len(reading.has("txnAppId", "txnVersion")) == 1:
        reading.problems.append("txnAppId and txnVersion of a batch belong together")
    options = WriteOptions(
        connection=_connection(reading),
        topic=reading.take("topic", topic_of, None),
        partitions_made=reading.take("createTopic", _partitions, None),
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


def _connection(reading: _OptionReading) -> Connection:
    given = reading.take("servers", _servers, DEFAULT_SERVERS)
    servers = reading.take("bootstrap.servers", _servers, given)
    return Connection(
        servers=servers.removeprefix(SECURE_SCHEME),
        tls=_tls(reading, is_wanted=servers.startswith(SECURE_SCHEME)),
        api_key=reading.take("apiKey", _plain, None),
        timeout_ms=reading.take("timeout", _timeout, 30_000),
    )


def _tls(reading: _OptionReading, *, is_wanted: bool) -> TlsOptions | None:
    """Return how TLS is spoken; any option of it asks for it."""
    names = ("ca", "cert", "key", "pin", "server_name")
    texts = [reading.take(name, str, "") for name in TLS_OPTIONS[1:]]
    is_asked = reading.take("tls", _flag, is_wanted or any(texts))
    if not is_asked:
        if is_wanted or any(texts):
            reading.problems.append("tls is false, but servers or other options ask for TLS")
        return None
    try:
        return TlsOptions(**dict(zip(names, texts, strict=True)))
    except InvalidRequestError as error:
        reading.problems.append(error.message)
        return None


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
    scheme = SECURE_SCHEME if SECURE_SCHEME in text else ""
    return scheme + ",".join(parse_addresses(text))


def _natural(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or int(text) >= ROWS_MAX:
        raise ValueError(f"{text[:50]!a} is not milliseconds since 1970")
    return int(text)


def _time_strategy(text: str) -> bool:
    return _choice(text, {"error": True, "latest": False})


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    duration_ms = int(found[1]) * _UNITS_MS[found[2] or "ms"] if found else 0
    if not 1 <= duration_ms <= TRIGGER_DELAY_MS_MAX:
        raise ValueError(f"{text[:50]!a} is not a time up to a week, such as 500ms, 30s or 15m")
    return duration_ms


_DURATION: Final = re.compile(r"(\d{1,12})\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {
    "ms": 1,
    "s": SECOND_MS,
    "m": 60 * SECOND_MS,
    "min": 60 * SECOND_MS,
    "h": 3_600 * SECOND_MS,
    "d": 24 * 3_600 * SECOND_MS,
}


def _partitions(text: str) -> int | None:
    return _within(text, 1, PARTITIONS_MAX)


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
