"""Tracing at work: takes notes of what happens to sampled messages and hands them on.

What happens to messages is noted once for many of them; what a span needs beyond its note (the
lease it ends, the trace its sender gave) is remembered here within bounds, or read from the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from itertools import islice
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec
from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError
from goqueue.base.limits import TRACE_LOOKUPS_MAX, TRACE_MEMORIES_MAX
from goqueue.core.offset_sets import each
from goqueue.core.tracing.ids import TracePlace
from goqueue.core.tracing.note import Note
from goqueue.core.tracing.traceparent import TraceParent
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.trace_metrics import TraceMetrics
from goqueue.observability.trace_ring import TraceRing
from goqueue.runtime.clock import Clock

FORGOTTEN_SHARE: Final = 16
"""When there are too many memories of one kind, one in so many is forgotten."""
LOG: Final = "log"
"""The name under which spans are counted as dropped whose traces had to be read and were not."""

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
Read = Callable[[TracePlace, BitMap64], Awaitable[Mapping[int, TraceParent]]]
log = get_logger("goqueue.tracing")


def harmless(hook: Callable[Arguments, Answer]) -> Callable[Arguments, Answer | None]:
    """Let a hook fail without failing what it looks at: that is done already, traced or not.

    A bug shows in the log once for each hook, not once for each message.
    """
    is_told = False

    @wraps(hook)
    def run(*args: Arguments.args, **fields: Arguments.kwargs) -> Answer | None:
        nonlocal is_told
        try:
            return hook(*args, **fields)
        except Exception:
            if not is_told:
                log.exception(LogEvent.TRACE_NOT_RECORDED)
            is_told = True
            return None

    return run


class Exporter(Protocol):
    """Takes notes somewhere else. Never waits."""

    name: str

    def offer(self, note: Note) -> None:
        """Take a note, or count it as dropped."""
        ...


class LeaseMemory(NamedTuple):
    """When messages were leased, to whom and how many, and which of them are traced."""

    at_ns: int
    member: str
    messages: int
    chosen: BitMap64


class Tracer:
    """Runs in the broker's event loop."""

    def __init__(
        self,
        ring: TraceRing,
        *,
        clock: Clock,
        metrics: TraceMetrics,
        exporters: Iterable[Exporter] = (),
    ) -> None:
        self.ring = ring
        self.clock = clock
        self._exporters = tuple(exporters)
        self._metrics = metrics
        self._read: Read | None = None
        self._leases: dict[int, LeaseMemory] = {}
        self._callers: dict[tuple[int, int], TraceParent] = {}
        self._dooms: dict[tuple[int, int], int] = {}
        self._holds: dict[tuple[int, str, int], BitMap64] = {}
        self._lookups: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Tracer with {self.ring!r}>"

    def now_ns(self) -> int:
        """Return the time."""
        return self.clock.now_us() * 1_000

    def read_with(self, read: Read) -> None:
        """Use this to find out which traces messages carry."""
        self._read = read

    async def stop(self) -> None:
        """Look up nothing any more."""
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    # Memories.

    def remember_lease(self, nonce: int, memory: LeaseMemory) -> None:
        """Remember when messages were leased."""
        self._leases[nonce] = memory
        _bound(self._leases)

    def lease(self, nonce: int) -> LeaseMemory | None:
        """Return what is known of a lease."""
        return self._leases.get(nonce)

    def forget_lease(self, nonce: int) -> None:
        """Forget a lease that is over: nothing more can happen under it."""
        self._leases.pop(nonce, None)

    def remember_callers(self, tag: int, base: int, callers: Mapping[int, TraceParent]) -> None:
        """Remember which traces the messages of a frame carry."""
        known = self._callers
        for row, caller in callers.items():
            known[tag, base + row] = caller
        _bound(known)

    def forget_callers(self, tag: int, end_offset: int) -> None:
        """Forget the traces of messages that were cut off a partition, from an offset on."""
        gone = [place for place in self._callers if place[0] == tag and place[1] >= end_offset]
        for place in gone:
            del self._callers[place]

    def callers(self, tag: int, offsets: BitMap64) -> dict[int, TraceParent]:
        """Return the traces of messages, those that are known."""
        known = self._callers
        found = ((offset, known.get((tag, offset))) for offset in each(offsets))
        return {offset: caller for offset, caller in found if caller is not None}

    def remember_doom(self, tag: int, offsets: BitMap64, nonce: int) -> None:
        """Remember under which lease messages failed for good."""
        for offset in each(offsets):
            self._dooms[tag, offset] = nonce
        _bound(self._dooms)

    def take_doom(self, tag: int, offset: int) -> int | None:
        """Return the lease a message failed under, and forget it."""
        return self._dooms.pop((tag, offset), None)

    def remember_hold(self, tag: int, group: str, transaction: int, offsets: BitMap64) -> None:
        """Remember what a transaction will settle."""
        place = (tag, group, transaction)
        self._holds[place] = self._holds.get(place, BitMap64()) | offsets
        _bound(self._holds)

    def take_hold(self, tag: int, group: str, transaction: int) -> BitMap64 | None:
        """Return what a transaction settles, and forget it."""
        return self._holds.pop((tag, group, transaction), None)

    # Notes.

    def emit(self, note: Note) -> None:
        """Keep a note and hand it to every exporter."""
        self.ring.add(note)
        self._metrics.spans.inc(note.count)
        for exporter in self._exporters:
            exporter.offer(note)

    def emit_later(self, note: Note) -> None:
        """Emit a note about messages whose traces must be read from the log first."""
        if self._read is None or len(self._lookups) >= TRACE_LOOKUPS_MAX:
            self._metrics.dropped.labels(LOG).inc(note.count)
            return
        task = asyncio.get_running_loop().create_task(self._look_up(self._read, note))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, read: Read, note: Note) -> None:
        try:
            found = await read(note.place, note.offsets)
        except GoQueueError as error:
            log.debug(LogEvent.TRACE_CALLERS_UNREADABLE, place=str(note.place), error=error.message)
            found = {}
        self.remember_callers(note.place.tag, 0, found)
        known = note.offsets & BitMap64(found)
        if known:
            self.emit(msgspec.structs.replace(note, messages=known, callers=found))
        if len(known) < note.count:
            self._metrics.dropped.labels(LOG).inc(note.count - len(known))


def _bound(memory: dict[Any, Any]) -> None:
    """Forget the oldest, many at once: finding the first of a dictionary passes those deleted."""
    if len(memory) > TRACE_MEMORIES_MAX:
        for old in list(islice(memory, TRACE_MEMORIES_MAX // FORGOTTEN_SHARE)):
            del memory[old]
