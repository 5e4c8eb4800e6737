"""Publishing messages that are a key and a value and nothing else, without an object for each."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.limits import BATCH_BYTES_MAX
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import build_batch
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import ROWS_AS_BATCH_MIN, frame_drafts
from goqueue.core.record.single_row import encode_single_row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.runtime.log.draft_shares import DRAFT_OVERHEAD_BYTES
from goqueue.runtime.log.places import outcomes_of
from goqueue.runtime.log.published import Published, Reach
from goqueue.runtime.log.small_group import Done
from goqueue.runtime.log.topic import Topic

Outcome = tuple[PartitionId, Offset] | GoQueueError

PLAIN_BYTES_MAX: Final = BATCH_BYTES_MAX // 2
"""More bytes than this might not fit one batch per partition and are published as drafts."""


@fast_path(of="Topic.publish_drafts", bench="http", test="tests/runtime/test_plain.py")
async def publish_plain(
    grant: Grant,
    topic: Topic,
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    *,
    timestamp_us: int,
    reach: Reach | None = None,
) -> Sequence[Outcome]:
    """Publish messages of one time; return where each went or why it did not."""
    reach = reach or Reach()
    if topic.door is not None and not topic.door.is_all_here:
        drafts = _drafts(keys, values, timestamp_us)
        return await topic.publish_drafts(grant, [(draft, None) for draft in drafts], reach)
    if len(values) == 1:
        return await _publish_one(grant, topic, keys[0], values[0], timestamp_us, reach)
    size = sum(map(len, values)) + sum(len(key) for key in keys if key)
    if size + len(values) * DRAFT_OVERHEAD_BYTES > PLAIN_BYTES_MAX:
        drafts = _drafts(keys, values, timestamp_us)
        return await topic.publish_drafts(grant, [(draft, None) for draft in drafts], reach)
    rows_of: dict[PartitionId, list[int]] = {}
    for row, partition in enumerate(topic.choose_all(keys)):
        if partition in rows_of:
            rows_of[partition].append(row)
        else:
            rows_of[partition] = [row]
    publishing = [
        _publish(
            grant,
            topic,
            partition,
            [keys[row] for row in rows],
            [values[row] for row in rows],
            timestamp_us,
            reach,
        )
        for partition, rows in rows_of.items()
    ]
    # One alone needs no task of its own.
    outcomes = [await publishing[0]] if len(publishing) == 1 else await asyncio.gather(*publishing)
    results: list[Outcome | None] = [None] * len(values)
    for rows, outcome in zip(rows_of.values(), outcomes, strict=True):
        for row, result in zip(rows, outcome, strict=True):
            results[row] = result
    return [result for result in results if result is not None]


def begin_plain(
    grant: Grant, topic: Topic, key: bytes | None, value: bytes, *, timestamp_us: int, done: Done
) -> Published | GoQueueError | bool:
    """Publish one message with others of this moment, as ``SmallRequests.begin`` does."""
    if topic.door is not None or not topic.small.is_plain:
        return False
    (partition,) = topic.choose_all([key])
    view = memoryview(_frame_of_one(key, value, timestamp_us))
    begun = topic.small.publish_at_once(grant, partition, view)
    return topic.small.begin(grant, partition, view, done) if begun is None else begun


def _frame_of_one(key: bytes | None, value: bytes, timestamp_us: int) -> bytes:
    if key and value:
        return encode_single_row(value, key, timestamp_us, NO_STAMP)
    return _frame([key], [value], timestamp_us)


async def _publish_one(
    grant: Grant,
    topic: Topic,
    key: bytes | None,
    value: bytes,
    timestamp_us: int,
    reach: Reach,
) -> Sequence[Outcome]:
    """Publish a message with others of the same moment, if nothing else is to be considered."""
    waiting: asyncio.Future[Published | GoQueueError]
    waiting = asyncio.get_running_loop().create_future()
    done = partial(_resolve, waiting)
    begun = begin_plain(grant, topic, key, value, timestamp_us=timestamp_us, done=done)
    if not isinstance(begun, bool):
        published = begun
    elif begun:
        published = await waiting
    else:
        published = await _publish_alone(grant, topic, key, value, timestamp_us)
    if isinstance(published, GoQueueError):
        return [published]
    reach.note(published)
    return outcomes_of(published, 1)


async def _publish_alone(
    grant: Grant, topic: Topic, key: bytes | None, value: bytes, timestamp_us: int
) -> Published | GoQueueError:
    (partition,) = topic.choose_all([key])
    frame = memoryview(_frame_of_one(key, value, timestamp_us))
    try:
        return await topic.publish(grant, partition, frame)
    except GoQueueError as error:
        return error


def _resolve(
    waiting: asyncio.Future[Published | GoQueueError], outcome: Published | GoQueueError
) -> None:
    # Who was cancelled does not wait any more.
    if not waiting.done():
        waiting.set_result(outcome)


async def _publish(
    grant: Grant,
    topic: Topic,
    partition: PartitionId,
    keys: list[bytes | None],
    values: list[bytes],
    timestamp_us: int,
    reach: Reach,
) -> Sequence[Outcome]:
    try:
        frame = _frame(keys, values, timestamp_us)
        published = await topic.publish(grant, partition, memoryview(frame))
    except GoQueueError as error:
        return [error] * len(values)
    reach.note(published)
    return outcomes_of(published, len(values))


def _frame(keys: list[bytes | None], values: list[bytes], timestamp_us: int) -> bytes:
    if len(values) < ROWS_AS_BATCH_MIN:
        return frame_drafts(_drafts(keys, values, timestamp_us))
    batch, column_set = build_batch(
        keys=keys, values=values, timestamps_us=[timestamp_us] * len(values)
    )
    packed = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=timestamp_us,
        last_timestamp_us=timestamp_us,
    )
    return packed.frame(NO_STAMP)


def _drafts(
    keys: Sequence[bytes | None], values: Sequence[bytes], timestamp_us: int
) -> list[Draft]:
    return [
        Draft(key=key, value=value, timestamp_us=timestamp_us)
        for key, value in zip(keys, values, strict=True)
    ]
