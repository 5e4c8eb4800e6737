"""What only some messages are sent with: headers, a priority, a partition, ids, times."""

from collections.abc import Mapping
from datetime import datetime
from time import time_ns
from typing import Any, Final, TypedDict

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import DEDUP_ID_BYTES_MAX, TIMESTAMP_AHEAD_MS_MAX
from goqueue.base.units import DAY_MS, NS_PER_US, US_PER_MS
from goqueue.client.producer.packing import check_partition
from goqueue.client.protocol.delays import Delay, check_delay_id, check_on_conflict, due_us
from goqueue.client.protocol.outcome import Extra
from goqueue.client.protocol.positions import microseconds_of
from goqueue.core.record.headers import check_headers
from goqueue.core.record.message import Priority, parse_priority
from goqueue.core.record.queue_rows import DELAY_ID, ON_CONFLICT

Special = tuple[
    Mapping[str, bytes | str] | None,
    Priority | str | int | None,
    int | None,
    bytes | str | None,
    datetime | None,
    Delay | None,
    datetime | None,
    str | None,
    str | None,
]
"""As ``send`` takes them, from the headers to what becomes of a delay whose id is taken."""

PLAIN: Final = (None,) * 9
"""What nearly every message is sent with."""


class SendFields(TypedDict, total=False):
    """What a message may have beside its key and value."""

    headers: Mapping[str, bytes | str] | None
    priority: Priority | str | int | None
    partition: int | None
    timestamp: datetime | None
    delay: Delay | None
    deliver_at: datetime | None
    delay_id: str | None


class PublishFields(SendFields, total=False):
    """What a message outside transactions may have beside its key and value."""

    dedup_id: bytes | str | None
    on_conflict: str | None


def special_of(fields: PublishFields) -> Special:
    """Return fields by name in the order in which they are checked."""
    if unknown := fields.keys() - PublishFields.__annotations__.keys():
        raise TypeError(f"a message has no {', '.join(sorted(unknown))}")
    return (
        fields.get("headers"),
        fields.get("priority"),
        fields.get("partition"),
        fields.get("dedup_id"),
        fields.get("timestamp"),
        fields.get("delay"),
        fields.get("deliver_at"),
        fields.get("delay_id"),
        fields.get("on_conflict"),
    )


def extra_of(special: Special, *, partitions: int, is_in_transaction: bool) -> tuple[Extra, int]:
    """Check what a message is sent with; return it and the bytes it adds to the message."""
    headers, priority, partition, dedup_id, timestamp, *delayed = special
    due = None
    if delayed != _NOT_DELAYED:
        headers, due = _delayed(headers, delayed, is_in_transaction=is_in_transaction)
    checked = check_headers(headers) if headers else {}
    size = sum(len(name) * 4 + len(value) + 8 for name, value in checked.items())
    if partition is not None:
        check_partition(partition, partitions)
    if dedup_id is not None:
        if is_in_transaction:
            raise InvalidRequestError("dedup_id: not in a transaction, which may be undone")
        dedup_id = _check_dedup_id(dedup_id)
        size += len(dedup_id) + 4
    extra = Extra(
        checked or None,
        None if priority is None else int(parse_priority(priority)),
        partition,
        dedup_id,
        None if timestamp is None else _check_time(timestamp),
        due,
    )
    return extra, size


def _check_dedup_id(dedup_id: bytes | str) -> bytes:
    raw = dedup_id.encode() if isinstance(dedup_id, str) else dedup_id
    if not 0 < len(raw) <= DEDUP_ID_BYTES_MAX:
        raise InvalidRequestError(
            f"dedup_id: {len(raw)} bytes; 1 to {DEDUP_ID_BYTES_MAX} are allowed"
        )
    return raw


_NOT_DELAYED: Final = [None] * 4


def _delayed(
    headers: Mapping[str, bytes | str] | None, delayed: list[Any], *, is_in_transaction: bool
) -> tuple[Mapping[str, bytes | str] | None, int | None]:
    """Return the headers of a delayed message, and when it is due."""
    delay, deliver_at, delay_id, on_conflict = delayed
    now_us = time_ns() // NS_PER_US
    due = due_us(delay, deliver_at, now_us=now_us)
    if delay_id is not None:
        headers = {**(headers or {}), DELAY_ID: check_delay_id(delay_id)}
    if on_conflict is not None:
        if is_in_transaction:
            raise InvalidRequestError("on_conflict: not in a transaction, which may be undone")
        wish = check_on_conflict(on_conflict, delay_id)
        headers = {**(headers or {}), ON_CONFLICT: wish}
        # Due at once it takes the place of what waits all the same.
        due = now_us if due is None else due
    return headers, due


def _check_time(timestamp: datetime) -> int:
    """Return a time as it is stored; one the broker would refuse would take others with it."""
    time_us = microseconds_of(timestamp)
    if not 0 <= time_us <= time_ns() // NS_PER_US + TIMESTAMP_AHEAD_MS_MAX * US_PER_MS:
        raise InvalidRequestError(
            f"timestamp: {timestamp} lies before 1970 or more than"
            f" {TIMESTAMP_AHEAD_MS_MAX // DAY_MS} day ahead"
        )
    return time_us
