"""The gathering half of a producer: ``send`` adds to a pile, piles go out by size or by time.

``send`` is the one call made per message, so it does as little as it can: checks, three appends, a
future. Everything else happens once per pile.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from time import monotonic_ns, time_ns
from typing import Final

import numpy as np

from goqueue.base.errors import (
    BufferFullError,
    ClosedError,
    GoQueueError,
    InvalidRequestError,
    TooLargeError,
)
from goqueue.base.limits import (
    BATCH_ROWS_MAX,
    DEDUP_ID_BYTES_MAX,
    KEY_BYTES_MAX,
    PARTITIONS_MAX,
    TIMESTAMP_AHEAD_MS_MAX,
    VALUE_BYTES_MAX,
)
from goqueue.base.units import DAY_MS, NS_PER_US, US_PER_MS, MiB
from goqueue.client.delays import Delay, check_delay_id, due_us
from goqueue.client.link import Link
from goqueue.client.packing import Packing, check_partition
from goqueue.client.pile import Extra, Outcome, Pile, SendFuture
from goqueue.client.positions import microseconds_of
from goqueue.client.producer_options import ProducerOptions
from goqueue.client.sender import Batch, Sender
from goqueue.client.transaction_sender import TxSender
from goqueue.core.record.batch import REPEATS_MAX
from goqueue.core.record.headers import check_headers
from goqueue.core.record.message import Priority, parse_priority
from goqueue.core.record.queue_rows import DELAY_ID
from goqueue.wire.calls import ProducerIdentity

ROW_OVERHEAD_BYTES: Final = 24
"""What a message costs in a batch beside its key and value."""

OVERSIZE_SUSPECT_BYTES: Final = KEY_BYTES_MAX
"""Below this a message needs no closer look at its sizes."""

PILE_BYTES_MAX: Final = 14 * MiB
_LAST_ROW: Final = BATCH_ROWS_MAX - 1_000
"""A pile is closed behind this row; other threads may add a few before that is done."""

_EXTRAS_MAX: Final = REPEATS_MAX - 90
"""Any message with a ``dedup_id`` may be a repeat, and a batch can name only so many."""


class Gatherer:
    """Gathers messages for one topic. ``send`` may be called from any thread."""

    def __init__(
        self,
        link: Link,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        options: ProducerOptions,
        *,
        loop_thread: int,
        is_transactional: bool = False,
    ) -> None:
        self._loop = loop
        self._topic = topic
        self._options = options
        self._packing: Packing | None = None
        self._pile_bytes_max = min(options.buffer_bytes, PILE_BYTES_MAX)
        self._early: list[Pile] = []
        self._transaction = 0
        self._sender = (TxSender if is_transactional else Sender)(
            link,
            topic,
            acks=options.acks,
            in_flight_max=options.in_flight_max,
            on_settled=self._settled,
        )
        self._sender.on_slot = self._slot_free
        # Guards the current pile; taken once per send. A handler of a signal may send as well.
        self._lock = threading.RLock()
        self._pile = Pile(topic, self.hurry, loop)
        self._is_timer_set = False
        self._is_due = False
        self._sealed: deque[list[Batch]] = deque()
        self._has_sealed = False
        self._number = 0
        # Guards the count of buffered bytes, and wakes those who wait for room.
        self._room = threading.Condition(threading.Lock())
        self._buffered = 0
        self._is_full = False
        self._closed: GoQueueError | None = None
        self.failure: GoQueueError | None = None
        """Why something of the open transaction was not published."""
        self._loop_thread = loop_thread

    def __repr__(self) -> str:
        return f"<Producer of {self._topic}: {self._buffered} bytes buffered>"

    def send(  # noqa: C901, PLR0913 - one flat piece on purpose: it runs once per message
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        priority: Priority | str | int | None = None,
        partition: int | None = None,
        dedup_id: bytes | str | None = None,
        timestamp: datetime | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        delay_id: str | None = None,
    ) -> SendFuture:
        """Queue one message and return its future at once."""
        # Exact types first: they are what nearly every message has, and the check costs least.
        if type(value) is bytes and type(key) is bytes:
            size = len(value) + len(key) + ROW_OVERHEAD_BYTES
        else:
            size = _size_of(value, key)
        extra = None
        if size > OVERSIZE_SUSPECT_BYTES:
            _check_sizes(value, key)
        if (
            headers is not None
            or priority is not None
            or partition is not None
            or dedup_id is not None
            or timestamp is not None
            or delay is not None
            or deliver_at is not None
            or delay_id is not None
        ):
            if delay is not None or deliver_at is not None or delay_id is not None:
                headers = _name_delay(headers, delay_id)
                due = due_us(delay, deliver_at, now_us=time_ns() // NS_PER_US)
            else:
                due = None
            extra, size = self._extra(headers, priority, partition, dedup_id, timestamp, due, size)
        if self._is_full:
            self._wait_for_room()
        with self._lock:
            pile = self._pile
            row = len(pile.values)
            if pile.size + size > self._pile_bytes_max and row:
                self._seal(pile)
                pile = self._pile
                row = 0
            if row == 0:
                self._begin()
            try:
                pile.values.append(value)
                pile.keys.append(key)
                pile.times_ns.append(time_ns())
                if extra is not None:
                    pile.extras[row] = extra
            except BaseException:
                # A signal may raise between any two of them; then this message was not sent.
                pile.forget(row)
                raise
            pile.size += size
        if row == 0 or row == _LAST_ROW or self._has_sealed or extra is not None:  # noqa: PLR1714 - faster than a set
            self._look_after(pile)
        return SendFuture(pile, row)

    def _extra(
        self,
        headers: Mapping[str, bytes | str] | None,
        priority: Priority | str | int | None,
        partition: int | None,
        dedup_id: bytes | str | None,
        timestamp: datetime | None,
        due: int | None,
        size: int,
    ) -> tuple[Extra, int]:
        """Check what only some messages have; return it and the message's size with it."""
        checked = check_headers(headers) if headers else None
        if checked:
            size += sum(len(name) * 4 + len(value) + 8 for name, value in checked.items())
        if partition is not None:
            partitions = PARTITIONS_MAX if self._packing is None else self._packing.partitions
            check_partition(partition, partitions)
        if isinstance(dedup_id, str):
            dedup_id = dedup_id.encode()
        if dedup_id is not None:
            if self._transaction:
                raise InvalidRequestError("dedup_id: not in a transaction, which may be undone")
            size += len(dedup_id) + 4
            if not 0 < len(dedup_id) <= DEDUP_ID_BYTES_MAX:
                raise InvalidRequestError(
                    f"dedup_id: {len(dedup_id)} bytes; 1 to {DEDUP_ID_BYTES_MAX} are allowed"
                )
        extra = Extra(
            checked or None,
            None if priority is None else int(parse_priority(priority)),
            partition,
            dedup_id,
            None if timestamp is None else _check_time(timestamp),
            due,
        )
        return extra, size

    def _wait_for_room(self) -> None:
        """Block until the buffer has room. In the loop's thread nobody could make any: raise."""
        seconds = self._options.block_ms_max / 1_000
        if threading.get_ident() == self._loop_thread:
            seconds = 0
        with self._room:
            if self._room.wait_for(lambda: not self._is_full, seconds):
                return
        raise BufferFullError(
            f"the buffer of {self._options.buffer_bytes} bytes stayed full for {seconds:g} s"
        )

    def hurry(self, pile: Pile) -> None:
        """Somebody waits for this pile: send it as soon as a request may go out."""
        with self._lock:
            if pile is self._pile and pile.values:
                self._seal_or_mark(pile)
        self._hand_over()

    def _look_after(self, pile: Pile) -> None:
        """See that a pile that was just begun or is full goes out, and hand over sealed ones."""
        if self._options.linger_ms == 0 or _is_full(pile):
            self.hurry(pile)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give sealed piles to the sender. Not under the lock: the sender calls back."""
        if not self._has_sealed:
            return
        self._has_sealed = False
        if threading.get_ident() == self._loop_thread:
            self._submit()
        else:
            self._loop.call_soon_threadsafe(self._submit)

    # Under the lock.

    def _begin(self) -> None:
        """Make sure that a pile about to get its first message goes out in time."""
        if self._closed is not None:
            raise self._closed
        if self._options.linger_ms and not self._is_timer_set:
            self._is_timer_set = True
            self._loop.call_soon_threadsafe(self._set_timer)

    def _seal_or_mark(self, pile: Pile) -> None:
        # Marked first: a slot that becomes free from here on is then not missed.
        self._is_due = True
        has_slot = self._packing is not None and self._sender.has_slot and not self._sealed
        if has_slot or _is_full(pile):
            self._seal(pile)

    def _seal(self, pile: Pile) -> None:
        """Close the pile and begin an empty one."""
        fresh = Pile(self._topic, self.hurry, self._loop)
        if self._packing is None:
            self._early.append(pile)
            self._pile = fresh
        else:
            try:
                self._pack(pile, self._packing)
            finally:
                # Whatever interrupts this, a pile in the queue is not the current one any more.
                if pile.parts_left:
                    self._pile = fresh
        self._is_due = False
        self._count(pile.size)

    def _pack(self, pile: Pile, packing: Packing) -> None:
        """Cut a closed pile into batches, to be handed over."""
        deadline = self._loop.time() + self._options.delivery_timeout_ms / 1_000
        try:
            parts = packing.cut(pile, self._transaction)
        except GoQueueError as error:
            pile.parts_left = 1
            self._loop.call_soon_threadsafe(self._refuse, pile, error)
            return
        number = self._number + 1
        batches = [Batch(pile, part, number=number, deadline=deadline) for part in parts]
        self._has_sealed = True
        self._number = number
        pile.parts_left = len(parts)
        # Through one queue, so that piles leave in the order they were sealed by any thread.
        self._sealed.append(batches)

    # In the loop's thread.

    def learn(self, partitions: int) -> None:
        """Take the number of partitions; nothing is sent before it is known."""
        with self._lock:
            self._packing = Packing(
                partitions, self._options.compression, turn=monotonic_ns() % partitions
            )
            self._pile_bytes_max = min(
                self._options.batch_bytes * partitions, self._options.buffer_bytes, PILE_BYTES_MAX
            )
            early, self._early = self._early, []
            for one in early:
                self._pack(one, self._packing)
            if self._is_due and self._pile.values:
                self._seal(self._pile)
        self._hand_over()

    def fail(self, error: GoQueueError) -> None:
        """Refuse what was gathered and all that may follow: the topic cannot be published to."""
        self._closed = error
        with self._lock:
            if self._pile.values:
                self._seal(self._pile)
        early, self._early = self._early, []
        for one in early:
            self._refuse(one, error)

    def open(self, transaction: int, identity: ProducerIdentity) -> None:
        """Take messages, which belong to a transaction of somebody."""
        assert isinstance(self._sender, TxSender), "made for transactions"
        self._sender.identify(identity)
        with self._lock:
            assert not self._pile.values, "what was gathered before was sealed"
            self._transaction = transaction
            self._closed = None
            self.failure = None

    def shut(self, reason: GoQueueError) -> None:
        """Take no more messages; those gathered so far go out."""
        with self._lock:
            self._closed = reason
            if self._pile.values:
                self._seal(self._pile)
        self._hand_over()

    def _refuse(self, pile: Pile, error: GoQueueError) -> None:
        pile.parts_left = 1
        rows = np.arange(len(pile))
        pile.settle(Outcome(rows, -1, -1, "", is_duplicate=False, repeats=(), error=error))
        self._settled(pile)

    def _submit(self) -> None:
        while self._sealed:
            self._sender.submit(self._sealed.popleft())

    def _set_timer(self) -> None:
        self._loop.call_later(self._options.linger_ms / 1_000, self._linger_over)

    def _linger_over(self) -> None:
        self._is_timer_set = False
        self.hurry(self._pile)

    def _slot_free(self) -> None:
        if self._is_due and self._packing is not None:
            self.flush_now()

    def flush_now(self) -> None:
        """Send what is gathered without waiting for the linger time."""
        with self._lock:
            if self._pile.values and self._packing is not None:
                self._seal(self._pile)
        self._hand_over()

    async def abandon(self, reason: GoQueueError, *, grace_s: float) -> None:
        """Send no more; wait a little for answers that are under way."""
        assert isinstance(self._sender, TxSender), "made for transactions"
        self._submit()
        await self._sender.abandon(reason, grace_s=grace_s)

    @property
    def is_spoiled(self) -> bool:
        """Tell whether the broker must give a new life before more is sent."""
        return isinstance(self._sender, TxSender) and self._sender.is_spoiled

    def _settled(self, pile: Pile) -> None:
        self._count(-pile.size)
        self.failure = self.failure or pile.first_error()
        self._report(pile)

    def _count(self, size: int) -> None:
        with self._room:
            self._buffered += size
            self._is_full = self._buffered > self._options.buffer_bytes
            if not self._is_full:
                self._room.notify_all()

    def _report(self, pile: Pile) -> None:
        if self._options.on_error is None:
            return
        for error, count in pile.errors():
            try:
                self._options.on_error(error, count)
            except Exception as fault:  # noqa: BLE001 - the caller's code must not stop the sender
                pile.complain("on_error", fault)

    async def room(self) -> None:
        """Return when the buffer has room."""
        while self._is_full:
            await self._sender.progress()

    async def flush(self) -> None:
        """Send what is gathered and return when every message is settled."""
        self.flush_now()
        self._submit()
        await self._sender.idle()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Flush and take no more; what is not settled in time fails."""
        self._closed = ClosedError("the producer was closed")
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            self._sender.abort()


def _size_of(value: bytes | None, key: bytes | None) -> int:
    """Return what a message costs in a batch, refusing what is not bytes."""
    for field, part in (("value", value), ("key", key)):
        if part is not None and not isinstance(part, bytes):
            raise TypeError(f"{field} must be bytes or None, not {type(part).__name__}")
    return len(value or b"") + len(key or b"") + ROW_OVERHEAD_BYTES


def _check_sizes(value: bytes | None, key: bytes | None) -> None:
    if value is not None and len(value) > VALUE_BYTES_MAX:
        raise TooLargeError(f"value: {len(value)} bytes; the limit is {VALUE_BYTES_MAX}")
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise TooLargeError(f"key: {len(key)} bytes; the limit is {KEY_BYTES_MAX}")


def _name_delay(
    headers: Mapping[str, bytes | str] | None, delay_id: str | None
) -> Mapping[str, bytes | str] | None:
    """Return the headers with the name a delayed message was given."""
    if delay_id is None:
        return headers
    return {**(headers or {}), DELAY_ID: check_delay_id(delay_id)}


def _check_time(timestamp: datetime) -> int:
    """Return a time as it is stored; one the broker would refuse would take others with it."""
    time_us = microseconds_of(timestamp)
    if not 0 <= time_us <= time_ns() // NS_PER_US + TIMESTAMP_AHEAD_MS_MAX * US_PER_MS:
        raise InvalidRequestError(
            f"timestamp: {timestamp} lies before 1970 or more than"
            f" {TIMESTAMP_AHEAD_MS_MAX // DAY_MS} day ahead"
        )
    return time_us


def _is_full(pile: Pile) -> bool:
    return len(pile) > _LAST_ROW or len(pile.extras) >= _EXTRAS_MAX
