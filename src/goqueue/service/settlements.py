"""Parts of settlements between what travels and what the runtime decides."""

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.limits import IN_FLIGHT_MAX
from goqueue.core.delivery.runs import count_of, is_written, peek_at
from goqueue.core.delivery.settle import Settled
from goqueue.runtime.queue.settlements import Settlement
from goqueue.service.verb import failure_of
from goqueue.wire import queue_calls

OFFSET_MAX = 2**62


def place_of(topic: str, partition: int) -> TopicPartition:
    """Return the name of a partition."""
    return TopicPartition(TopicName(topic), PartitionId(partition))


def settlement_of(place: int, part: queue_calls.SettlePart) -> Settlement:
    """Return what a part of a request asks for, or raise naming the part."""
    if part.verb not in queue_calls.VERBS:
        raise InvalidRequestError(
            f"parts[{place}].verb: must be one of {', '.join(queue_calls.VERBS)}"
        )
    if not is_written(part.offsets, end_offset=OFFSET_MAX):
        raise InvalidRequestError(f"parts[{place}].offsets: not ascending offsets")
    if count_of(part.offsets) > IN_FLIGHT_MAX:
        raise InvalidRequestError(
            f"parts[{place}].offsets: {count_of(part.offsets)} messages; nobody may hold more than"
            f" {IN_FLIGHT_MAX}"
        )
    if part.verb == queue_calls.EXTEND and part.extension_ms is None:
        raise InvalidRequestError(f"parts[{place}].extension_ms is required")
    return Settlement(
        partition=place_of(part.topic, part.partition),
        nonce=part.nonce,
        verb=part.verb,
        offsets=peek_at(part.offsets),
        written=part.offsets,
        reason=part.reason,
        delay_ms=part.delay_ms,
        extension_ms=part.extension_ms,
    )


def settled_part(outcome: Settled) -> queue_calls.SettledPart:
    """Return what became of a part, as it travels."""
    refused = [
        queue_calls.RefusedOffset(one.offset, failure_of(one.error)) for one in outcome.refused
    ]
    return queue_calls.SettledPart(refused, list(outcome.retried), list(outcome.doomed))
