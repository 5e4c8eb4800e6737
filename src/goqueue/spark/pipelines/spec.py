"""A pipeline as a value: its sources, its steps, its expectations and its sinks.

Nothing here needs Spark. Names of parts are SQL identifiers, because SQL refers to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    """How a pipeline runs."""

    BATCH = "batch"
    """Once, over everything there is, without a checkpoint."""
    AVAILABLE_NOW = "available-now"
    """What is new since the last run, in bounded batches, then it ends."""
    CONTINUOUS = "continuous"
    """Until it is stopped."""


class FileFormat(StrEnum):
    """Files Spark reads by itself."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    TEXT = "text"


class Otherwise(StrEnum):
    """What becomes of a row that breaks a rule."""

    DROP = "drop"
    FAIL = "fail"
    QUARANTINE = "quarantine"


class OutputMode(StrEnum):
    """Which rows of a result go to the sink."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class Delivery(StrEnum):
    """What a topic sink promises."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late rows may come: those older than the newest time less the delay are left out."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Messages of topics. One of ``topics`` and ``pattern`` is given."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    schema: str = ""
    """``registry``, or the columns of JSON values as in CREATE TABLE; empty leaves bytes."""
    start: str = ""
    """``earliest``, ``latest`` or offsets as JSON; empty is the connector's own choice."""
    rows_max: int = 0
    """Most rows of one batch; 0 for no limit."""
    is_stream: bool = True
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it reads, for people."""
        return f"topic {', '.join(self.topics)}" if self.topics else f"topics like {self.pattern}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files of one format, below one path or pattern."""

    name: str
    format: FileFormat
    path: str
    schema: str = ""
    is_stream: bool = False
    files_max: int = 0
    """Most files of one batch; 0 for no limit."""
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it reads, for people."""
        return f"{self.format} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSource:
    """A lake as a lake sink writes it, or a table as a table sink keeps it.

    As a stream it is an archive of messages, read in the order of their offsets.
    """

    name: str
    path: str
    is_stream: bool = False
    rows_max: int = 0
    """Most rows of one batch; 0 for no limit."""
    since: str = ""
    until: str = ""
    """Times of messages, half-open; only of a stream."""
    watermark: Watermark | None = None

    @property
    def label(self) -> str:
        """What it reads, for people."""
        return f"lake {self.path}"


Source = TopicSource | FileSource | LakeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A query over named inputs."""

    name: str
    sql: str
    inputs: tuple[str, ...]
    watermark: Watermark | None = None

    @property
    def label(self) -> str:
        """What it does, for people."""
        text = " ".join(self.sql.split())
        return f"sql {text[:60]}…" if len(text) > 60 else f"sql {text}"  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """A function from DataFrames to a DataFrame; inputs are handed over in order."""

    name: str
    function: str
    """``file.py:name``, or the name of a function that came with the pipeline."""
    inputs: tuple[str, ...]
    watermark: Watermark | None = None

    @property
    def label(self) -> str:
        """What it does, for people."""
        return f"python {self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep:
    """Aggregates over windows of time; ``window`` is the column with their start and end."""

    name: str
    inputs: tuple[str, ...]
    column: str
    size: str
    aggregate: Mapping[str, str]
    slide: str = ""
    by: tuple[str, ...] = ()
    watermark: Watermark | None = None

    @property
    def label(self) -> str:
        """What it does, for people."""
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"window of {self.size} over {self.column}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupStep:
    """One row for each key; in a stream for as long as the watermark remembers."""

    name: str
    inputs: tuple[str, ...]
    by: tuple[str, ...]
    watermark: Watermark | None = None

    @property
    def label(self) -> str:
        """What it does, for people."""
        within = f" within {self.watermark.delay}" if self.watermark else ""
        return f"dedup by {', '.join(self.by)}{within}"


Step = SqlStep | PythonStep | WindowStep | DedupStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A rule every row of a part must keep; one that is neither true nor false is broken."""

    name: str
    rule: str
    otherwise: Otherwise = Otherwise.DROP
    topic: str = ""
    """Where broken rows go; empty for the dead letters of the topic they came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Messages to a topic; ``*`` sends each row to the topic in its column ``topic``."""

    name: str
    input: str
    topic: str
    key: str = ""
    value: str = ""
    headers: str = ""
    columns: tuple[str, ...] = ()
    partitions: int = 0
    """Make the topic with so many partitions if it is not there; 0 does not."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    output_mode: OutputMode = OutputMode.APPEND

    @property
    def label(self) -> str:
        """Where it goes, for people."""
        return "topic of each row" if self.topic == "*" else f"topic {self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink:
    """Parquet files below a path, in folders by columns; small files are put together."""

    name: str
    input: str
    path: str
    partition_by: tuple[str, ...] = ()
    compact: bool = True
    output_mode: OutputMode = OutputMode.APPEND

    @property
    def label(self) -> str:
        """Where it goes, for people."""
        by = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"lake {self.path}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """The latest row of each key, as Parquet."""

    name: str
    input: str
    path: str
    key: tuple[str, ...]
    latest_by: tuple[str, ...]
    delete_when: str = ""
    output_mode: OutputMode = OutputMode.APPEND

    @property
    def label(self) -> str:
        """Where it goes, for people."""
        return f"table {self.path} by {', '.join(self.key)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """A Delta table, where the session has Delta."""

    name: str
    input: str
    path: str
    partition_by: tuple[str, ...] = ()
    output_mode: OutputMode = OutputMode.APPEND

    @property
    def label(self) -> str:
        """Where it goes, for people."""
        return f"delta {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    """The terminal."""

    name: str
    input: str
    rows: int = 20
    output_mode: OutputMode = OutputMode.APPEND

    @property
    def label(self) -> str:
        """Where it goes, for people."""
        return "console"


Sink = TopicSink | LakeSink | TableSink | DeltaSink | ConsoleSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """All of it. Expectations are by the name of the source or step they are about."""

    name: str
    description: str = ""
    servers: str = ""
    trigger: str = "1 second"
    folder: str = "."
    """What paths and Python files are relative to."""
    conf: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Source]
    steps: Mapping[str, Step] = field(default_factory=dict)
    expectations: Mapping[str, tuple[Expectation, ...]] = field(default_factory=dict)
    sinks: Mapping[str, Sink]
