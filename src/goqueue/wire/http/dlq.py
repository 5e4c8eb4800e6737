"""Dead letters as JSON."""

from typing import Annotated

import msgspec

from goqueue.base.limits import REDRIVES_DEFAULT
from goqueue.wire.http.messages import EncodingText
from goqueue.wire.http.topics import Int64

Moment = Annotated[str, msgspec.Meta(description="RFC 3339, or milliseconds since 1970.")]


class FilterFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which dead letters are meant; all that is given must hold.

    ``header`` is a name, or ``name=value``. ``since`` and ``until`` are of the death, half-open.
    ``text`` is somewhere in an error, in capitals or not.
    """

    reason: str | None = None
    group: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    key_encoding: EncodingText | None = None
    header: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    text: str | None = None


class DlqSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The dead letters of a topic. ``redrive`` is the job that runs."""

    topic: str
    source: str
    depth: int
    oldest: str | None = None
    redrive: int | None = None


class DlqList(msgspec.Struct, frozen=True, kw_only=True):
    """Every topic of dead letters."""

    dlqs: list[DlqSummary]


class FailedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery that failed: when that was known, in whose hands, and why."""

    time: str
    consumer: str
    error: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that failed for good, as it was, and the story of its failures.

    ``partition`` and ``offset`` are its place among the dead letters. What is not text comes as
    base64, and the matching ``encoding`` says so.
    """

    partition: int
    offset: int
    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: str
    original_key: str | None
    original_value: str | None
    delivery_attempts: int
    first_delivery: str
    last_delivery: str
    last_consumer: str
    last_group: str
    reason: str
    last_error: str
    dlq_time: str
    receipt_log: list[FailedDelivery]
    priority: str
    headers: dict[str, str] | None = None
    encoding: str | None = None
    key_encoding: str | None = None
    headers_encoding: str | None = None
    trace: str | None = None
    redrives: int = 0


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters in the order of partitions and offsets. ``more``: others may follow."""

    topic: str
    source: str
    depth: int
    messages: list[DeadLetter]
    count: int
    limit: int
    skip: int
    more: bool


class RedriveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go back: to the source, or to ``target``; at most ``rate`` messages a second.

    What went back ``max_redrives`` times already stays. With ``dry_run`` nothing goes.
    """

    target: str | None = None
    filter: FilterFields | None = None
    rate: Int64 | None = None
    max_redrives: Int64 | None = REDRIVES_DEFAULT
    dry_run: bool | None = None
    by: str | None = None


class RedriveJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A redrive or purge: what was asked for, by whom, and how far it is.

    ``state`` is running, done, cancelled or failed. ``total`` were there when it began; ``moved``,
    ``unmatched`` and ``skipped`` (went back too often) are those it has dealt with.
    """

    id: int
    kind: str
    state: str
    topic: str
    total: int
    moved: int
    unmatched: int
    skipped: int
    started_at: str
    target: str | None = None
    ended_at: str | None = None
    error: str | None = None
    by: str | None = None
    rate: int = 0
    max_redrives: int = 0
    filter: FilterFields | None = None


class RedriveReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that began; or, after a dry run, how many would go and the first of them."""

    dry_run: bool
    job: RedriveJob | None = None
    matched: int | None = None
    unmatched: int | None = None
    skipped: int | None = None
    complete: bool | None = None
    sample: list[DeadLetter] | None = None


class RedriveHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a topic, the latest first."""

    redrives: list[RedriveJob]
