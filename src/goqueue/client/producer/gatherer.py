"""The gathering half of a producer: ``send`` adds to a pile, piles go out by size or by time.

``send`` is the one call made per message, so it does as little as it can: checks, an append, a
future. Everything else happens once per pile.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from time import monotonic_ns, time_ns
from typing import Any, ClassVar, Final

import numpy as np

from goqueue.base.errors import BufferFullError, ClosedError, GoQueueError
from goqueue.base.fast_path import fast_path
from goqueue.base.limits import BATCH_ROWS_MAX, PARTITIONS_MAX
from goqueue.base.units import MiB
from goqueue.client.aio.link import Link
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.outboxes import outbox_for
from goqueue.client.producer.packing import Packing
from goqueue.client.producer.pile import FIELDS, Moment, Pile, SendFuture
from goqueue.client.producer.sender import Sender
from goqueue.client.producer.single import Sent, Single, report
from goqueue.client.producer.sizes import OVERSIZE_SUSPECT_BYTES, ROW_OVERHEAD_BYTES, size_of
from goqueue.client.producer.special import PLAIN, Special, extra_of
from goqueue.client.producer.untold import Untold
from goqueue.client.protocol.delays import Delay
from goqueue.client.protocol.outbox import Batch
from goqueue.client.protocol.outcome import Outcome
from goqueue.client.protocol.sending import Sending
from goqueue.core.record.batch import REPEATS_MAX
from goqueue.core.record.message import Priority

PILE_BYTES_MAX: Final = 14 * MiB
_LAST_ROW: Final = BATCH_ROWS_MAX - 1_000
LAST_AT: Final = _LAST_ROW * FIELDS
"""A pile is closed behind this row; other threads may add a few before that is done."""

_EXTRAS_MAX: Final = REPEATS_MAX - 90
"""Any message with a ``dedup_id`` may be a repeat, and a batch can name only so many."""

_BUSY_ROWS: Final = 256
_BUSY_SECONDS: Final = 0.001
"""A thread that sent so many rows sends the next soon, and cuts the pile; if not, the loop does."""


class Gatherer:
    """Gathers messages for one topic. ``send`` may be called from any thread."""

    make_outbox: ClassVar[Callable[..., Sending[Sent]]] = staticmethod(outbox_for)
    linger_ms_min: ClassVar[float] = 0

    def __init__(
        self,
        link: Link,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        options: ProducerOptions,
        *,
        loop_thread: int,
    ) -> None:
        self._loop = loop
        self.topic = topic
        self._options = options
        self.packing: Packing | None = None
        self.pile_bytes_max = min(options.buffer_bytes, PILE_BYTES_MAX)
        self._transaction = 0
        self._linger_ms = max(options.linger_ms, self.linger_ms_min)
        self._delivery_ms = options.delivery_timeout_ms
        self._apart = link.cluster is not None
        self._outbox = self.make_outbox(link.cluster, options, self._settled)
        self._sender = Sender(link, self._outbox)
        self._sender.on_slot = self._slot_free
        # Guards which pile is the current one. A handler of a signal may send as well.
        self._lock = threading.RLock()
        # Nobody waits for it: it knows whether this very thread holds the lock.
        self._held = threading.Condition(self._lock)
        self.pile = self.fresh_pile()
        """What messages are added to."""
        self._is_timer_set = self._is_submitting = self._is_due = False
        self._is_elsewhere = False
        """Whether messages are sent from another thread than the loop's."""
        self._has_sealed = False
        self._number = 0
        self.on_submit: Callable[[], None] = _nothing
        """Called before piles are given to the sender: what was published earlier goes first."""
        self.on_slot: Callable[[], None] = _nothing
        """Called when a request could go out at once."""
        # Guards the count of buffered bytes, and wakes those who wait for room.
        self._room = threading.Condition(threading.RLock())
        self._buffered = 0
        self.is_full = False
        """Whether there is no room for more messages."""
        self._closed: GoQueueError | None = None
        self.failure: GoQueueError | None = None
        """Why something of the open transaction was not published."""
        self.untold = Untold()
        """What failed and was not asked about; empty where ``on_error`` hears of it."""
        self._loop_thread = loop_thread

    def __repr__(self) -> str:
        return f"<Producer of {self.topic}: {self._buffered} bytes buffered>"

    @fast_path(of="Gatherer._add", bench="publish", test="tests/client/test_fast_sends.py")
    def send(  # noqa: PLR0913, PLR0917 - one flat piece on purpose: it runs once per message
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        priority: Priority | str | int | None = None,
        partition: int | None = None,
        dedup_id: bytes | str | None = None,
        timestamp: datetime | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        delay_id: str | None = None,
        on_conflict: str | None = None,
    ) -> SendFuture:
        """Queue one message and return its future at once."""
        # Exact types first: they are what nearly every message has, and the check costs least.
        if (
            type(value) is bytes
            and type(key) is bytes
            and headers is None
            and priority is None
            and partition is None
            and dedup_id is None
            and timestamp is None
            and delay is None
            and deliver_at is None
            and delay_id is None
            and on_conflict is None
            and not self.is_full
        ):
            pile = self.pile
            rows = pile.rows
            at = len(rows)
            size = len(value) + len(key) + ROW_OVERHEAD_BYTES
            if at and size <= OVERSIZE_SUSPECT_BYTES:
                now = time_ns()
                # No lock: added in one step, and whatever else happened is looked at afterwards.
                rows += (value, key, now)
                pile.size = size = pile.size + size
                if size < pile.limit and at < LAST_AT and rows[at + 2] is now:
                    return SendFuture(pile, at)
                return self.look_closer(pile, rows, now)
        delayed = (delay, deliver_at, delay_id, on_conflict)
        special = (headers, priority, partition, dedup_id, timestamp, *delayed)
        return self._add(value, key, None if special == PLAIN else special)

    def _add(self, value: bytes | None, key: bytes | None, special: Special | None) -> SendFuture:
        """Add a message that begins a pile, is large, or has something that few have."""
        size = size_of(value, key)
        extra = None
        if special is not None:
            extra, more = extra_of(
                special,
                partitions=PARTITIONS_MAX if self.packing is None else self.packing.partitions,
                is_in_transaction=bool(self._transaction),
            )
            size += more
        if self.is_full:
            self._wait_for_room(size)
        with self._lock:
            pile, rows = self._open_pile(size)
            is_first = not rows
            if is_first:
                self._begin()
            moment: Moment = time_ns() if extra is None else (time_ns(), extra)
            pile.extra_count += extra is not None
            rows += (value, key, moment)
            pile.size += size
            at = _place_of(moment, rows)
            is_late = pile.has_missed(at)
        if is_late:
            self._hand_over()
            return self._add(value, key, special)
        if is_first or extra is not None or at >= LAST_AT or self._has_sealed:
            self._look_after(pile)
        return SendFuture(pile, at)

    def look_closer(self, pile: Pile, rows: list[Any], moment: int) -> SendFuture:
        """See to a message after which a pile is full or due, or that others came in between."""
        with self._lock:
            at = _place_of(moment, rows)
            is_late = pile.has_missed(at)
            if not pile.is_closed and (pile.size >= pile.limit or _is_full(pile)):
                self._seal(pile)
        self._hand_over()
        if is_late:
            # Not under the lock: it may wait for room, and the loop needs the lock to make any.
            return self._add(rows[at], rows[at + 1], None)
        return SendFuture(pile, at)

    def _wait_for_room(self, size: int) -> None:
        """Block until the buffer has room. In the loop's thread nobody could make any: raise."""
        seconds = self._options.block_ms_max / 1_000
        if threading.get_ident() == self._loop_thread:
            seconds = 0
        elif self._holds_lock():
            # A signal's handler within a send: the loop makes no room before that one is done.
            if self.pile.size + size <= self.pile.limit:
                return
            seconds = 0
        with self._room:
            if self._room.wait_for(lambda: not self.is_full, seconds):
                return
        raise BufferFullError(
            f"the buffer of {self._options.buffer_bytes} bytes stayed full for {seconds:g} s"
        )

    def hurry(self, pile: Pile) -> None:
        """Somebody waits for this pile: send it as soon as a request may go out."""
        with self._lock:
            if pile is self.pile and len(pile):
                self._seal_or_mark(pile)
        self._hand_over()

    def _look_after(self, pile: Pile) -> None:
        """See that a pile that was just begun or is full goes out, and hand over sealed ones."""
        if self._linger_ms == 0 or _is_full(pile):
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

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is gathered and everything that was sent is settled."""
        with self._lock:
            return not len(self.pile) and not self._buffered

    def _holds_lock(self) -> bool:
        try:
            self._held.notify(0)
        except RuntimeError:
            return False
        return True

    # Under the lock.

    def _open_pile(self, size: int) -> tuple[Pile, list[Any]]:
        """Return a pile that has room for a message, and its rows."""
        while True:
            pile = self.pile
            # Taken before the look: a signal's handler may close the pile from here on.
            rows = pile.rows
            if not (pile.is_closed or (rows and pile.size + size > self.pile_bytes_max)):
                return pile, rows
            self._seal(pile)

    def _begin(self) -> None:
        """Make sure that a pile about to get its first message goes out in time."""
        if self._closed is not None:
            raise self._closed
        self._is_elsewhere = threading.get_ident() != self._loop_thread
        if self._linger_ms and not self._is_timer_set:
            self._is_timer_set = True
            self._loop.call_soon_threadsafe(self._set_timer)

    def _seal_or_mark(self, pile: Pile) -> None:
        # Marked first: a slot that becomes free from here on is then not missed.
        self._is_due = True
        is_first = self.packing is not None and pile.previous is None
        if (is_first and self._sender.has_slot) or _is_full(pile):
            self._seal(pile)

    def _seal(self, pile: Pile) -> None:
        """Close the pile, put an empty one before it, and cut it.

        Whatever interrupts this, the pile is either still the current one or in the chain behind
        it; one that is not cut when its turn comes is cut then.
        """
        pile.close()
        fresh = self.fresh_pile()
        fresh.previous = pile
        if self.pile is not pile:
            # A signal's handler has done it in between.
            return
        self.pile = fresh
        self._has_sealed = True
        self._is_due = False
        self._count(pile.sealed_size)
        if self.packing is not None:
            self._cut(pile, self.packing)

    def _cut(self, pile: Pile, packing: Packing) -> None:
        if pile.parts is None:
            try:
                pile.parts = packing.cut(pile, self._transaction)
            except GoQueueError as error:
                pile.parts = error

    # In the loop's thread.

    def learn(self, partitions: int) -> None:
        """Take the number of partitions; nothing is sent before it is known."""
        with self._lock:
            self.packing = Packing(
                partitions, self._options.compression, turn=monotonic_ns() % partitions
            )
            self.pile_bytes_max = min(
                self._options.batch_bytes * partitions, self._options.buffer_bytes, PILE_BYTES_MAX
            )
            self.pile.limit = min(self.pile.limit, self.pile_bytes_max)
            if self._is_due and len(self.pile):
                self._seal(self.pile)
            self._has_sealed = True
        self._hand_over()

    def fail(self, error: GoQueueError) -> None:
        """Refuse what was gathered and all that may follow: the topic cannot be published to."""
        self._closed = error
        with self._lock:
            if len(self.pile):
                self._seal(self.pile)
        for pile in self._take_sealed():
            self._refuse(pile, error)

    def shut(self, reason: GoQueueError) -> None:
        """Take no more messages; those gathered so far go out."""
        with self._lock:
            self._closed = reason
            if len(self.pile):
                self._seal(self.pile)
        self._hand_over()

    def _refuse(self, pile: Pile, error: GoQueueError) -> None:
        pile.parts_left = 1
        pile.settle(Outcome(np.arange(len(pile)), -1, error=error))
        self._settled(pile)

    def _submit(self) -> None:
        """Give the sealed piles to the sender, in the order they were sealed."""
        # The sender calls back from within: what is sealed then must wait for those before it.
        if self.packing is None or self._is_submitting:
            return
        self._is_submitting = True
        try:
            self.on_submit()
            while sealed := self._take_sealed():
                for pile in sealed:
                    self._submit_one(pile, self.packing)
        finally:
            self._is_submitting = False

    @property
    def packing_alone(self) -> Packing | None:
        """Return how messages are packed, if one may go out by itself; None: it is gathered."""
        pile = self.pile
        is_behind = pile.rows or pile.previous is not None or self._transaction
        is_refused = self._closed is not None or self.is_full
        return None if is_behind or is_refused else self.packing

    @property
    def has_slot(self) -> bool:
        """Return True if a request could go out at once."""
        return self._sender.has_slot

    def fresh_pile(self) -> Pile:
        """Return an empty pile."""
        return Pile(self.topic, self.hurry, self._loop, self.pile_bytes_max, is_apart=self._apart)

    def submit_pile(self, pile: Pile) -> None:
        """Send a pile that was gathered elsewhere."""
        assert self.packing is not None, "known"
        pile.close()
        self._count(pile.sealed_size)
        self._submit_one(pile, self.packing)

    def submit_single(self, single: Single) -> None:
        """Send a message by itself."""
        self._count(single.sealed_size)
        self._number += 1
        deadline = self._loop.time() + self._delivery_ms / 1_000
        batch: Batch[Sent] = Batch(single, single.part, number=self._number, deadline=deadline)
        self._sender.submit([batch])

    def _submit_one(self, pile: Pile, packing: Packing) -> None:
        with self._lock:
            self._cut(pile, packing)
        parts = pile.parts
        assert parts is not None, "cut"
        if isinstance(parts, GoQueueError):
            self._refuse(pile, parts)
            return
        self._number += 1
        pile.parts_left = len(parts)
        deadline = self._loop.time() + self._delivery_ms / 1_000
        self._sender.submit(
            [Batch(pile, part, number=self._number, deadline=deadline) for part in parts]
        )

    def _take_sealed(self) -> list[Pile]:
        """Take the sealed piles out of the chain, the oldest first."""
        sealed: list[Pile] = []
        newer = self.pile
        while (pile := newer.previous) is not None:
            newer.previous = None
            sealed.append(pile)
            newer = pile
        return sealed[::-1]

    def _set_timer(self) -> None:
        self._loop.call_later(self._linger_ms / 1_000, self._linger_over)

    def _linger_over(self) -> None:
        self._is_timer_set = False
        if not self._leave_to_caller():
            self.hurry(self.pile)

    def _slot_free(self) -> None:
        self.on_slot()
        if self._is_due and self.packing is not None and not self._leave_to_caller():
            self.flush_now()

    def _leave_to_caller(self) -> bool:
        """Let the thread that is busy sending close the pile with its next message.

        Cut here, the two would take the interpreter from each other in slices of milliseconds.
        """
        with self._lock:
            pile = self.pile
            if not self._is_elsewhere or len(pile) < _BUSY_ROWS or pile.is_closed:
                return False
            self._is_due = True
            if self._sender.has_slot and self.packing is not None:
                pile.limit = 0
                self._loop.call_later(_BUSY_SECONDS, self.hurry, pile)
        return True

    def flush_now(self) -> None:
        """Send what is gathered without waiting for the linger time."""
        with self._lock:
            if len(self.pile) and self.packing is not None:
                self._seal(self.pile)
        self._hand_over()

    def _settled(self, sent: Sent) -> None:
        self._count(-sent.sealed_size)
        error = sent.first_error()
        if error is not None:
            self.failure = self.failure or error
            report(sent, self._options.on_error, self.untold, self._loop)

    def _count(self, size: int) -> None:
        with self._room:
            was_full = self.is_full
            self._buffered += size
            self.is_full = self._buffered > self._options.buffer_bytes
            if was_full and not self.is_full:
                self._room.notify_all()

    async def room(self) -> None:
        """Return when the buffer has room."""
        while self.is_full:
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


def _nothing() -> None:
    """Leave everything as it is."""


def _is_full(pile: Pile) -> bool:
    return len(pile) > _LAST_ROW or pile.extra_count >= _EXTRAS_MAX


def _place_of(moment: Moment, rows: list[Any]) -> int:
    """Return where a message was added just now; others may have been added behind it."""
    at = len(rows) - FIELDS
    while rows[at + 2] is not moment:
        at -= FIELDS
    return at
