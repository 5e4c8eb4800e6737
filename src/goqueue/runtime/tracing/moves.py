"""Traces of messages on their way to the dead letters and back.

A moved message carries the trace it had, with the span it left as its parent, so that its story
goes on wherever it is. What happens to dead letters is always noted: where the message was not
sampled, its earlier life is told from what its dead letter knows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from goqueue.base.units import NS_PER_MS, NS_PER_US
from goqueue.core.dlq.record import Story, read_story
from goqueue.core.record.headers import TRACE
from goqueue.core.record.message import Message
from goqueue.core.tracing import kinds
from goqueue.core.tracing.ids import lease_span_of, root_span_of, trace_id_of
from goqueue.core.tracing.note import Note
from goqueue.core.tracing.traceparent import (
    HEADER,
    TraceParent,
    parse_traceparent,
    unpack_parent,
)
from goqueue.runtime.tracing.partition_trace import PartitionTrace
from goqueue.runtime.tracing.tracer import harmless

RETOLD: Final = {"retold": True}


@harmless
def trace_on(
    trace: PartitionTrace | None, message: Message, callers: Mapping[int, TraceParent]
) -> TraceParent | None:
    """Return the trace a message that is moved goes on with; None where none are taken.

    ``callers`` are the recorded traces that messages carry themselves.
    """
    if trace is None:
        return None
    tag, offset = trace.place.tag, message.offset
    given = callers.get(offset)
    if given is None:
        given = parse_traceparent((message.headers or {}).get(HEADER, b""))
    trace_id = trace_id_of(tag, offset) if given is None else given.trace_id
    nonce = trace.tracer.take_doom(tag, offset)
    span_id = root_span_of(tag, offset) if nonce is None else lease_span_of(nonce, offset)
    return TraceParent(trace_id, span_id, is_sampled=True)


@harmless
def trace_moves(
    source: PartitionTrace,
    target: PartitionTrace,
    moved: Sequence[tuple[int, int, Mapping[str, bytes] | None]],
    *,
    at_ns: int,
    group: str,
    is_redrive: bool,
) -> None:
    """Note messages that are elsewhere now: their old and new offsets, and new headers.

    ``at_ns`` is when they were appended there: somebody may have leased them before this is noted.
    """
    for old, new, headers in moved:
        caller = unpack_parent((headers or {}).get(TRACE, b""))
        if caller is None:
            continue
        story = read_story(headers)
        if not is_redrive and old not in source.choose(old, old + 1):
            for note in _retell(source, old, story, caller):
                source.tracer.emit(note)
        where = {
            "from_topic": source.place.topic,
            "from_partition": source.place.partition,
            "from_offset": old,
        }
        why = {"reason": story.reason, "attempts": story.delivery_attempts}
        source.tracer.emit(
            Note(
                kind=kinds.REDRIVEN if is_redrive else kinds.ROUTED,
                place=target.place,
                messages=BitMap64([new]),
                at_ns=at_ns,
                group="" if is_redrive else group,
                error="" if is_redrive else story.last_error,
                attributes=where if is_redrive else {**where, **why},
                callers={new: caller},
                origin=(source.place, old),
            )
        )
        target.tracer.remember_callers(target.place.tag, new, {0: caller})


def _retell(
    trace: PartitionTrace, offset: int, story: Story, caller: TraceParent
) -> Iterator[Note]:
    """Yield what a dead letter tells of its life, where nothing of it was noted."""
    offsets, group = BitMap64([offset]), story.last_group
    tag = trace.place.tag
    callers: dict[int, TraceParent] = {}
    if caller.trace_id != trace_id_of(tag, offset):
        # The sender gave a trace and did not record it: its id is known, its span is not.
        callers[offset] = TraceParent(caller.trace_id, 0, is_sampled=False)
    yield Note(
        kind=kinds.RECEIVED,
        place=trace.place,
        messages=offsets,
        at_ns=story.original_timestamp_us * NS_PER_US,
        attributes=RETOLD,
        callers=callers,
    )
    for attempt in story.receipt_log:
        yield Note(
            kind=kinds.NACKED,
            place=trace.place,
            messages=offsets,
            at_ns=attempt.at_ms * NS_PER_MS,
            group=group,
            member=attempt.consumer,
            error=attempt.error,
            attributes=RETOLD,
            callers=callers,
        )
