"""Messages on their way: gathered by ``send``, cut into batches, placed when the broker has them.

While a pile grows it is one list: value, key, time, again and again. A message is added to it in
one step, so no lock is needed, and without an object of its own, so the collector has no work.
Closed, it is columns: lists of keys, values and times.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from goqueue.base.errors import (
    ClosedError,
    DeadlineExceededError,
    GoQueueError,
)
from goqueue.base.units import NS_PER_US
from goqueue.client.blocking.loop_thread import LOOK_SECONDS
from goqueue.client.producer.untold import Untold
from goqueue.client.protocol.outcome import Extra, Outcome, Part, Place
from goqueue.core.record.stamp import REFUSED_OFFSET
from goqueue.wire.calls import RepeatPart

Moment = int | tuple[int, Extra]
"""When a message was sent, in nanoseconds, and what few have beside it. No two are one object."""

FIELDS = 3
"""So many entries of the list of rows are one message: value, key, moment."""


FEW_ROWS_MAX = 64
"""Where so few messages are is worked out without numpy."""


class _PileColumns(NamedTuple):
    """The rows of a pile when it was closed."""

    length: int
    size: int
    values: list[bytes | None]
    keys: list[bytes | None]
    times_ns: list[int]
    extras: dict[int, Extra]


def _columns_of(rows: list[Any], size: int, *, has_extras: bool) -> _PileColumns:
    moments = rows[2::FIELDS]
    extras: dict[int, Extra] = {}
    if has_extras:
        special = {row: one for row, one in enumerate(moments) if isinstance(one, tuple)}
        for row, (time_ns, extra) in special.items():
            moments[row] = time_ns
            extras[row] = extra
    return _PileColumns(len(moments), size, rows[0::FIELDS], rows[1::FIELDS], moments, extras)


class Pile:
    """A growing run of messages of one producer, and later what became of them."""

    __slots__ = (
        "_callbacks",
        "_columns",
        "_guard",
        "_is_done",
        "_offsets",
        "_outcomes",
        "_partitions",
        "_refused",
        "_repeats",
        "_row_callbacks",
        "_told",
        "_untold",
        "extra_count",
        "extras",
        "hurry",
        "is_apart",
        "keys",
        "limit",
        "loop",
        "parts",
        "parts_left",
        "previous",
        "rows",
        "sealed_size",
        "size",
        "times_ns",
        "topic",
        "values",
    )

    def __init__(
        self,
        topic: str,
        hurry: Callable[["Pile"], None],
        loop: asyncio.AbstractEventLoop,
        limit: int = 0,
        *,
        is_apart: bool = False,
    ) -> None:
        self.topic = topic
        self.rows: list[Any] = []
        self.limit = limit
        """The bytes at which whoever adds looks closer; less than none when it is closed."""
        self.extra_count = 0
        self.sealed_size = 0
        self.previous: Pile | None = None
        """The one that was sealed before it and is not on its way yet."""
        self.parts: list[Part] | GoQueueError | None = None
        """Its messages by partition, or why there are none; None before it is cut."""
        # The first entry counts: a signal may have it closed while it is being closed.
        self._columns: list[_PileColumns] = []
        self.loop = loop
        self.hurry = hurry
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.times_ns: list[int] = []
        self.extras: dict[int, Extra] = {}
        self.size = 0
        self.parts_left = 0
        self._outcomes: list[Outcome] = []
        self._offsets: np.ndarray[Any, Any] | list[int] | None = None
        self._partitions: np.ndarray[Any, Any] | list[int] | None = None
        self._repeats: dict[int, RepeatPart] = {}
        self._refused: dict[int, GoQueueError] = {}
        self._is_done = False
        self._told: set[int] = set()
        """Failed messages somebody has asked about."""
        self._untold: Callable[[], None] | None = None
        # Guards the callbacks, and who was told, between the sender's and the callers' threads.
        self._guard = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self.is_apart = is_apart
        """Whether its parts go to several nodes: who waits for a message waits for its part."""
        self._row_callbacks: list[tuple[int, Callable[[], object]]] = []

    def __len__(self) -> int:
        return self._columns[0].length if self._columns else len(self.rows) // FIELDS

    @property
    def is_done(self) -> bool:
        """Tell whether every message is placed or failed."""
        return self._is_done

    def close(self) -> None:
        """Take no more rows: those that are there become columns.

        One that is added after this was begun is not among them, and whoever adds it sees the
        limit. Interrupted at any point, it can be done again.
        """
        self.limit = -1
        if not self._columns:
            has_extras = self.extra_count > 0
            self._columns.append(_columns_of(self.rows[:], self.size, has_extras=has_extras))
        columns = self._columns[0]
        self.values, self.keys = columns.values, columns.keys
        self.times_ns, self.extras = columns.times_ns, columns.extras
        self.sealed_size = columns.size
        self.rows = []

    @property
    def is_closed(self) -> bool:
        """Tell whether the pile takes no more rows."""
        return self.limit < 0

    def has_missed(self, at: int) -> bool:
        """Tell whether it was closed before a message was there, which must go into the next."""
        if not self.is_closed:
            return False
        self.close()
        return at >= len(self) * FIELDS

    def settle(self, outcome: Outcome) -> bool:
        """Take the outcome of one part; return True when it was the last."""
        self._outcomes.append(outcome)
        self.parts_left -= 1
        if self.parts_left:
            if self.is_apart:
                self._settle_rows(outcome)
            return False
        # The messages themselves are no longer needed.
        self.keys, self.values, self.parts = [], [], []
        self._columns = [one._replace(keys=[], values=[]) for one in self._columns[:1]]
        with self._guard:
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
            callbacks += [callback for _, callback in self._row_callbacks]
            self._row_callbacks = []
        self._call(callbacks)
        return True

    def _settle_rows(self, outcome: Outcome) -> None:
        """Call back who waits for a message of one part."""
        with self._guard:
            waiting = self._row_callbacks
            ours = set(outcome.rows.tolist()) if waiting else set()
            self._row_callbacks = [one for one in waiting if one[0] not in ours]
        self._call([callback for row, callback in waiting if row in ours])

    def _call(self, callbacks: list[Callable[[], object]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as fault:  # noqa: BLE001 - the caller's code must not stop the sender
                complain(self.loop, "a callback", fault)

    def is_row_done(self, row: int) -> bool:
        """Tell whether a message is placed or failed, as far as that is told."""
        return self._is_done or (self.is_apart and self._outcome_of(row) is not None)

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when every message is settled, from the sender's thread or at once."""
        with self._guard:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        callback()

    def when_row_done(self, row: int, callback: Callable[[], object]) -> None:
        """Call back when a message is settled; if all parts are one request, when all are."""
        if not self.is_apart:
            self.when_done(callback)
            return
        with self._guard:
            if not self.is_row_done(row):
                self._row_callbacks.append((row, callback))
                return
        callback()

    def wait(self, row: int, timeout_s: float | None) -> bool:
        """Block until a message is settled."""
        if self._is_done:
            return True
        self.hurry(self)
        event = threading.Event()
        self.when_row_done(row, event.set)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        left_s = LOOK_SECONDS if timeout_s is None else timeout_s
        while not event.wait(min(left_s, LOOK_SECONDS)):
            if self.loop.is_closed():
                raise ClosedError("the client was closed while somebody waited for an ack")
            if deadline_s is not None:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
        return True

    def failure_of(self, row: int) -> GoQueueError | None:
        """Return why a settled message was not published, or None if it was."""
        if not self._is_done:
            return self._early_failure_of(row)
        self._index()
        assert self._partitions is not None, "indexed"
        outcome = self._outcomes[int(self._partitions[row])]
        error = outcome.error or self._refused.get(row)
        if error is not None:
            self._tell(row)
        return error

    def place_of(self, row: int) -> Place:
        """Return where a settled message is, or raise why it is not."""
        if not self._is_done:
            return self._early_place_of(row)
        self._index()
        assert self._offsets is not None, "indexed"
        assert self._partitions is not None, "indexed"
        outcome = self._outcomes[self._partitions[row]]
        if outcome.error is not None:
            self._tell(row)
            raise outcome.error
        partition, offset = outcome.partition, int(self._offsets[row])
        is_duplicate = outcome.is_duplicate
        if (repeat := self._repeats.get(row)) is not None:
            if repeat.offset == REFUSED_OFFSET:
                self._tell(row)
                raise self._refused[row]
            partition, offset, is_duplicate = repeat.partition, repeat.offset, True
        return Place(
            self.topic,
            partition,
            offset,
            self.times_ns[row] // NS_PER_US,
            outcome.durability,
            is_duplicate,
            outcome.replicas,
        )

    def _outcome_of(self, row: int) -> tuple[Outcome, int] | None:
        """Return what became of the part of a message, and its place in it; None if not known."""
        for outcome in self._outcomes:
            place = int(np.searchsorted(outcome.rows, row))
            if place < len(outcome.rows) and outcome.rows[place] == row:
                return outcome, place
        return None

    def _early_failure_of(self, row: int) -> GoQueueError | None:
        try:
            self._early_place_of(row)
        except GoQueueError as error:
            return error
        return None

    def _early_place_of(self, row: int) -> Place:
        """Return where a message is while other parts are under way, or raise why it is not."""
        found = self._outcome_of(row)
        assert found is not None, "settled"
        outcome, place = found
        repeat = next((one for one in outcome.repeats if one.row == place), None)
        error = outcome.error
        if repeat is not None and repeat.offset == REFUSED_OFFSET:
            error = error or outcome.refusal(place)
        if error is not None:
            self._tell(row)
            raise error
        time_us = self.times_ns[row] // NS_PER_US
        offset = outcome.base_offset + place - sum(one.row < place for one in outcome.repeats)
        at, is_repeated = (outcome.partition, offset), outcome.is_duplicate
        if repeat is not None:
            at, is_repeated = (repeat.partition, repeat.offset), True
        return Place(self.topic, *at, time_us, outcome.durability, is_repeated, outcome.replicas)

    def count_untold(self, untold: Untold) -> None:
        """Let failed messages be counted until somebody has asked about each."""
        errors = self.errors()
        with self._guard:
            count = sum(count for _, count in errors) - len(self._told)
            self._untold = partial(untold.tell, untold.add(errors[0][0], count))

    def _tell(self, row: int) -> None:
        with self._guard:
            if row in self._told:
                return
            self._told.add(row)
            if self._untold is not None:
                self._untold()

    def errors(self) -> list[tuple[GoQueueError, int]]:
        """Return every error with how many messages it failed."""
        self._index()
        failed = [(one.error, len(one.rows)) for one in self._outcomes if one.error is not None]
        return [*failed, *((refusal, 1) for refusal in self._refused.values())]

    def first_error(self) -> GoQueueError | None:
        """Return why something was not published, or None if all was."""
        for outcome in self._outcomes:
            if outcome.error is not None:
                return outcome.error
            for one in outcome.repeats:
                if one.offset == REFUSED_OFFSET:
                    return outcome.refusal(one.row)
        return None

    def _index(self) -> None:
        """Work out each row's offset, once somebody asks."""
        if self._offsets is not None:
            return
        for outcome in self._outcomes:
            self._repeats |= {int(outcome.rows[one.row]): one for one in outcome.repeats}
            self._refused |= {
                int(outcome.rows[one.row]): outcome.refusal(one.row)
                for one in outcome.repeats
                if one.offset == REFUSED_OFFSET
            }
        rows = len(self.times_ns)
        if rows == 1:
            self._partitions = _ONE_ROW
            self._offsets = np.array([self._outcomes[0].base_offset])
            return
        if rows <= FEW_ROWS_MAX:
            self._index_few(rows)
            return
        offsets = np.zeros(rows, np.int64)
        owners = np.zeros(rows, np.int32)
        for number, outcome in enumerate(self._outcomes):
            owners[outcome.rows] = number
            kept = np.ones(len(outcome.rows), bool)
            kept[[repeat.row for repeat in outcome.repeats]] = False
            offsets[outcome.rows] = outcome.base_offset + np.cumsum(kept) - 1
        self._partitions = owners
        self._offsets = offsets

    def _index_few(self, rows: int) -> None:
        """Do the same one by one: a call of numpy costs as much as several rows."""
        offsets, owners = [0] * rows, [0] * rows
        for number, outcome in enumerate(self._outcomes):
            left_out = {repeat.row for repeat in outcome.repeats}
            offset = outcome.base_offset - 1
            for place, row in enumerate(outcome.rows.tolist()):
                offset += place not in left_out
                offsets[row], owners[row] = offset, number
        self._partitions, self._offsets = owners, offsets


def complain(loop: asyncio.AbstractEventLoop, whose: str, fault: Exception) -> None:
    """Report what a caller's own code raised, as event loops do."""
    loop.call_exception_handler({"message": f"{whose} raised", "exception": fault})


_ONE_ROW = np.zeros(1, np.int32)


class SendFuture(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one ``send``. Works in threads and, awaited, in an event loop."""

    _pile: Pile
    _at: int
    """Where it was added: divided only when somebody asks."""

    @property
    def _row(self) -> int:
        return self._at // FIELDS

    def done(self) -> bool:
        """Tell whether the broker has answered."""
        return self._pile.is_row_done(self._row)

    def result(self, timeout: float | None = None) -> Place:
        """Wait for the broker's ack and return where the message is, or raise why it failed."""
        if not self._pile.wait(self._row, timeout):
            raise DeadlineExceededError(f"no answer in {timeout:g} s; the message may still go out")
        return self._pile.place_of(self._row)

    def exception(self, timeout: float | None = None) -> GoQueueError | None:
        """Wait for the broker's answer and return the error, or None if the message is placed."""
        if not self._pile.wait(self._row, timeout):
            raise DeadlineExceededError(f"no answer in {timeout:g} s; the message may still go out")
        return self._pile.failure_of(self._row)

    def add_done_callback(self, callback: Callable[["SendFuture"], None]) -> None:
        """Call back with this future when the broker has answered; it must not block."""
        self._pile.when_row_done(self._row, lambda: callback(self))

    def __await__(self) -> Generator[Any, None, Place]:
        if not self._pile.is_row_done(self._row):
            loop = asyncio.get_running_loop()
            waiting = loop.create_future()

            def wake() -> None:
                if not waiting.done():
                    waiting.set_result(None)

            self._pile.hurry(self._pile)
            # The sender mostly lives in this very loop; then nobody needs to be woken by a pipe.
            is_here = self._pile.loop is loop
            told = wake if is_here else partial(loop.call_soon_threadsafe, wake)
            self._pile.when_row_done(self._row, told)
            yield from waiting
        return self._pile.place_of(self._row)
