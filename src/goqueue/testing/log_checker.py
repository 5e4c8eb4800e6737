"""The log checker: from what was sent, acknowledged and read, every promise that was broken.

A test tells it what happened, in order, over as many crashes as it likes. Payloads are unique. ::

    checker = LogChecker()
    checker.sent(partition, b"p1-7", producer="p1")
    checker.acked(partition, 41, b"p1-7")
    checker.read(partition, [(41, b"p1-7")], start_offset=41, end_offset=42)
    checker.check()
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from goqueue.base.ids import TopicPartition

Range = tuple[int, int]
"""Offsets from the first to before the second."""


class Violation(StrEnum):
    """A promise that was broken."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    TWO_VALUES = "two values at one offset"
    ORDER = "order"
    NEVER_SENT = "read of something that was refused or never sent"
    SKIPPED = "offsets skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise and where."""

    violation: Violation
    text: str

    def __str__(self) -> str:
        return f"{self.violation}: {self.text}"


@dataclass(slots=True)
class _PartitionHistory:
    """What is known of one partition."""

    sent: dict[bytes, str] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    acked: dict[bytes, int] = field(default_factory=dict)
    at: dict[int, bytes] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    expired_end: int = 0
    last_read: "_Read | None" = None


@dataclass(frozen=True, slots=True)
class _Read:
    offsets: frozenset[int]
    gaps: tuple[Range, ...]


class LogChecker:
    """Takes a history and judges it."""

    def __init__(self) -> None:
        self._traces: dict[TopicPartition, _PartitionHistory] = {}
        self._findings: list[Finding] = []

    def __repr__(self) -> str:
        sent = sum(len(trace.sent) for trace in self._traces.values())
        return f"<LogChecker of {sent} messages in {len(self._traces)} partitions>"

    # The history.

    def sent(self, partition: TopicPartition, payload: bytes, *, producer: str = "") -> None:
        """Note a message given to a producer. A retry of the same message is noted once."""
        self._trace(partition).sent.setdefault(payload, producer)

    def acked(self, partition: TopicPartition, offset: int, payload: bytes) -> None:
        """Note an acknowledgement, first or repeated."""
        trace = self._trace(partition)
        before = trace.acked.setdefault(payload, offset)
        if before != offset:
            self._find(
                Violation.DUPLICATE,
                f"{partition}: {payload!r} was acknowledged at {before} and at {offset}",
            )
        self._place(partition, trace, offset, payload)

    def refused(self, partition: TopicPartition, payload: bytes) -> None:
        """Note that the broker said it did not, and never will, write this message."""
        self._trace(partition).refused.add(payload)

    def may_expire(self, partition: TopicPartition, end_offset: int) -> None:
        """Note that retention may have deleted everything before an offset."""
        trace = self._trace(partition)
        trace.expired_end = max(trace.expired_end, end_offset)

    def deleted(self, topic: str) -> None:
        """Note that a topic is gone, with all its messages and all its promises."""
        for partition in [one for one in self._traces if one.topic == topic]:
            del self._traces[partition]

    def lost_power(self, partition: TopicPartition, end_offset: int) -> None:
        """Note where a log ends after a power cut: what was only read without sync may be gone."""
        trace = self._trace(partition)
        acked = set(trace.acked.values())
        for offset in [one for one in trace.at if one >= end_offset and one not in acked]:
            del trace.places[trace.at.pop(offset)]

    def read(
        self,
        partition: TopicPartition,
        messages: Iterable[tuple[int, bytes]],
        *,
        start_offset: int,
        end_offset: int,
        gaps: Sequence[Range] = (),
    ) -> None:
        """Note what a reader saw of a whole range, in its order, and the gaps it was told of.

        The last read of a partition is the one that must hold every acknowledged message.
        """
        trace = self._trace(partition)
        seen: list[int] = []
        for offset, payload in messages:
            if seen and offset <= seen[-1]:
                self._find(Violation.ORDER, f"{partition}: {offset} was read after {seen[-1]}")
            seen.append(offset)
            self._place(partition, trace, offset, payload)
            if payload not in trace.sent or payload in trace.refused:
                self._find(Violation.NEVER_SENT, f"{partition}: {payload!r} at {offset}")
        missing = set(range(start_offset, end_offset)) - set(seen)
        for offset in sorted(missing):
            if not _is_in(offset, gaps):
                self._find(Violation.SKIPPED, f"{partition}: {offset} of {start_offset}..")
        trace.last_read = _Read(frozenset(seen), tuple(gaps))

    # The verdict.

    def findings(self) -> list[Finding]:
        """Return everything that is wrong with the history so far."""
        late: list[Finding] = []
        for partition, trace in self._traces.items():
            late += self._lost(partition, trace)
            late += self._out_of_order(partition, trace)
        return [*self._findings, *late]

    def check(self) -> None:
        """Raise AssertionError naming every broken promise."""
        findings = self.findings()
        if findings:
            raise AssertionError("\n".join(map(str, findings)))

    @staticmethod
    def _lost(partition: TopicPartition, trace: _PartitionHistory) -> list[Finding]:
        read = trace.last_read
        if read is None:
            return []
        return [
            Finding(Violation.LOST_WRITE, f"{partition}: {payload!r} was acknowledged at {offset}")
            for payload, offset in trace.acked.items()
            if offset not in read.offsets
            and offset >= trace.expired_end
            and not _is_in(offset, read.gaps)
        ]

    @staticmethod
    def _out_of_order(partition: TopicPartition, trace: _PartitionHistory) -> list[Finding]:
        findings: list[Finding] = []
        latest: dict[str, int] = {}
        for payload, producer in trace.sent.items():
            offset = trace.places.get(payload)
            if offset is None or not producer:
                continue
            if offset < latest.get(producer, -1):
                text = f"{partition}: {producer} sent {payload!r} later than offset {offset} says"
                findings.append(Finding(Violation.ORDER, text))
            latest[producer] = max(offset, latest.get(producer, -1))
        return findings

    def _place(
        self, partition: TopicPartition, trace: _PartitionHistory, offset: int, payload: bytes
    ) -> None:
        known = trace.at.setdefault(offset, payload)
        if known != payload:
            self._find(
                Violation.TWO_VALUES, f"{partition}: {offset} holds {known!r} and {payload!r}"
            )
        place = trace.places.setdefault(payload, offset)
        if place != offset:
            self._find(
                Violation.DUPLICATE, f"{partition}: {payload!r} is at {place} and at {offset}"
            )

    def _trace(self, partition: TopicPartition) -> _PartitionHistory:
        return self._traces.setdefault(partition, _PartitionHistory())

    def _find(self, violation: Violation, text: str) -> None:
        finding = Finding(violation, text)
        if finding not in self._findings:
            self._findings.append(finding)


def _is_in(offset: int, ranges: Sequence[Range]) -> bool:
    return any(start <= offset < end for start, end in ranges)
