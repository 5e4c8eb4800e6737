"""The sources of a pipeline file."""

import json
from typing import Final

from goqueue.base.errors import InvalidNameError
from goqueue.base.names import check_name
from goqueue.spark.pipelines.fields import Fields
from goqueue.spark.pipelines.problems import Problems
from goqueue.spark.pipelines.spec import (
    FileFormat,
    FileSource,
    LakeSource,
    Source,
    TopicSource,
    Watermark,
)
from goqueue.wire.times import parse_moment_us

ROWS_MAX: Final = 1_000_000_000
FILES_MAX: Final = 1_000_000
_TOPICS: Final = ("topic", "topics", "pattern")
_FILES: Final = tuple(one.value for one in FileFormat)
KINDS: Final = (*_TOPICS, "lake", *_FILES)
_OWN_OPTIONS: Final = frozenset(
    {
        "servers", "bootstrap.servers", "subscribe", "subscribepattern", "assign", "logdir",
        "startingoffsets", "maxoffsetspertrigger", "schema",
    }
)  # fmt: skip


def parse_source(fields: Fields, name: str) -> Source | None:
    """Return a source; which kind follows from the field that says where it is."""
    kind = one_of(fields, KINDS, noun="a source")
    if kind is None:
        return None
    if kind in _TOPICS:
        source: Source = _topic(fields, name)
    elif kind == "lake":
        source = _lake(fields, name)
    else:
        source = _file(fields, name, FileFormat(kind))
    fields.finish((*KINDS,))
    return source


def one_of(fields: Fields, kinds: tuple[str, ...], *, noun: str) -> str | None:
    """Return which of some fields is given; exactly one must be, be it mistyped."""
    if not any(fields.has(kind) for kind in kinds):
        fields.take_for(*kinds)
    given = [kind for kind in kinds if fields.has(kind)]
    if len(given) == 1:
        return given[0]
    if not given:
        fields.problems.add(fields.path, f"{noun} needs one of {', '.join(kinds)}")
    else:
        fields.problems.add(fields.path, f"{noun} has one of {', '.join(given)}, not several")
    return None


def check_topic(name: str, path: str, problems: Problems) -> None:
    """Note why a topic cannot be called so."""
    try:
        check_name(name, field="topic name")
    except InvalidNameError as error:
        problems.add(path, error.message)


def parse_watermark(fields: Fields) -> Watermark | None:
    """Return the watermark of a part, if it has one."""
    if not fields.has("watermark"):
        return None
    inner = Fields(fields.raw("watermark"), fields.at("watermark"), fields.problems)
    if not inner.is_usable:
        return None
    column = inner.text("column", required=True)
    delay = inner.interval("delay", required=True)
    inner.finish()
    return Watermark(column=column, delay=delay)


def _topic(fields: Fields, name: str) -> TopicSource:
    topics = fields.texts("topics", required=True) if fields.has("topics") else ()
    if fields.has("topic"):
        topics = (fields.text("topic", required=True),)
    for topic in topics:
        check_topic(
            topic, fields.at("topics" if fields.has("topics") else "topic"), fields.problems
        )
    options = fields.mapping("options")
    for option in options:
        if option.lower() in _OWN_OPTIONS:
            fields.problems.add(
                fields.at(f"options.{option}"), "has a field of its own", "see docs/pipelines.md"
            )
    return TopicSource(
        name=name,
        topics=topics,
        pattern=fields.text("pattern", required=True) if fields.has("pattern") else "",
        schema=fields.sql("schema"),
        start=_start(fields),
        rows_max=fields.number("rows_max", least=0, most=ROWS_MAX),
        is_stream=fields.flag("stream", default=True),
        watermark=parse_watermark(fields),
        options=options,
    )


def _start(fields: Fields) -> str:
    """Return where to begin: a word, or offsets by topic and partition as JSON."""
    raw = fields.raw("start")
    if raw is None:
        return ""
    if isinstance(raw, str) and raw in {"earliest", "latest"}:
        return raw
    if isinstance(raw, dict):
        try:
            return json.dumps(
                {str(t): {str(p): int(o) for p, o in v.items()} for t, v in raw.items()}
            )
        except (AttributeError, TypeError, ValueError):
            pass
    fields.problems.add(
        fields.at("start"),
        "must be earliest, latest or offsets by topic and partition",
        "for example {orders: {0: 17, 1: -2}}",
    )
    return ""


def _file(fields: Fields, name: str, kind: FileFormat) -> FileSource:
    return FileSource(
        name=name,
        format=kind,
        path=fields.text(kind.value, required=True),
        schema=fields.sql("schema"),
        is_stream=fields.flag("stream", default=False),
        files_max=fields.number("files_max", least=0, most=FILES_MAX),
        watermark=parse_watermark(fields),
        options=fields.mapping("options"),
    )


def _lake(fields: Fields, name: str) -> LakeSource:
    source = LakeSource(
        name=name,
        path=fields.text("lake", required=True),
        is_stream=fields.flag("stream", default=False),
        rows_max=fields.number("rows_max", least=0, most=ROWS_MAX),
        since=_moment(fields, "since"),
        until=_moment(fields, "until"),
        watermark=parse_watermark(fields),
    )
    if not source.is_stream and (source.since or source.until or source.rows_max):
        fields.problems.add(
            fields.path, "since, until and rows_max are of streams", "add stream: true, or use SQL"
        )
    return source


def _moment(fields: Fields, name: str) -> str:
    raw = fields.raw(name)
    if raw is None:
        return ""
    # YAML reads an unquoted time as a datetime by itself.
    text = raw if isinstance(raw, str) else getattr(raw, "isoformat", lambda: "")()
    try:
        parse_moment_us(text)
    except ValueError as error:
        fields.problems.add(fields.at(name), str(error) or "must be a time")
        return ""
    return text
