"""The traced messages of one partition: chosen here, and noted when something happens to them."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from goqueue.core.delivery.runs import Written, peek_at, runs_of, written_of
from goqueue.core.offset_sets import each
from goqueue.core.record.check import CheckedFrame
from goqueue.core.topics.settings import FSYNC, OS
from goqueue.core.tracing import kinds
from goqueue.core.tracing.ids import TracePlace
from goqueue.core.tracing.note import NO_CALLERS, Note
from goqueue.core.tracing.sampling import SCALE, Sampler
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.runtime.tracing.tracer import Tracer, harmless
from goqueue.wire.times import format_time_us

_DURABILITY: Final = {one: {"durability": one} for one in (FSYNC, OS)}
HULL_MAX = 10_000
"""So many offsets are chosen at once from a range that holds a set, or else run by run."""


class Traced(NamedTuple):
    """The traced messages of a request that was appended and is not yet acknowledged."""

    offsets: BitMap64
    appended_ns: int
    delays: Sequence[tuple[int, int]]
    """Delayed ones, and when they are due."""


class PartitionTrace:
    """Belongs to a partition. Only the event loop's thread calls it."""

    def __init__(
        self, tracer: Tracer, place: TracePlace, queue: PartitionVisibility, rate: float
    ) -> None:
        self.tracer = tracer
        self.place = place
        self._queue = queue
        self._sampler = Sampler(place.tag, rate)
        queue.on_fired = self.fired

    def __repr__(self) -> str:
        return f"<PartitionTrace {self.place.topic}/{self.place.partition} {self._sampler!r}>"

    def change_rate(self, rate: float, *, from_offset: int) -> None:
        """Choose by another rate from an offset on."""
        self._sampler.change(rate, from_offset=from_offset)

    # Choosing.

    @property
    def is_idle(self) -> bool:
        """Tell that no message here is traced."""
        return self._sampler.is_off and not self._queue.callers.sampled

    def choose(self, start: int, end: int) -> BitMap64:
        """Return the traced messages of a range: as their sender said, or else by chance."""
        chosen = self._sampler.choose(start, end)
        callers = self._queue.callers
        if callers.known and callers.known.range_cardinality(start, end):
            here = BitMap64()
            here.add_range(start, end)
            chosen = (chosen - callers.known) | (here & callers.sampled)
        return chosen

    def choose_from(self, written: Written) -> BitMap64:
        """Return the traced messages of a set."""
        if not written or self.is_idle:
            return BitMap64()
        if len(written) == 2 and not isinstance(written, bytes):  # noqa: PLR2004 - one run
            return self.choose(written[0], written[1])
        return self._among(peek_at(written))

    def _among(self, offsets: BitMap64) -> BitMap64:
        if not offsets:
            return offsets
        start, end = offsets.min(), offsets.max() + 1
        if (end - start) * self._sampler.millionths <= HULL_MAX * SCALE:
            chosen = self.choose(start, end)
            return chosen & offsets if chosen else chosen
        chosen = BitMap64()
        runs = runs_of(offsets)
        for place in range(0, len(runs), 2):
            chosen |= self.choose(runs[place], runs[place + 1])
        return chosen

    @harmless
    def made(self, nonce: int) -> Written:
        """Return the traced messages of a lease whose senders gave no trace."""
        memory = self.tracer.lease(nonce)
        if memory is None or not memory.chosen:
            return b""
        callers = self._queue.callers.sampled
        return written_of(memory.chosen - callers if callers else memory.chosen)

    # Publishing.

    @harmless
    def appended(self, frames: Sequence[CheckedFrame], base: int) -> Traced | None:
        """Choose from messages that were just appended."""
        end = base
        for frame in frames:
            if frame.queue is not None and frame.queue.callers is not None:
                callers = frame.queue.callers.sampled
                self.tracer.remember_callers(self.place.tag, end, callers)
            end += frame.rows
        if end == base or self.is_idle:
            return None
        if self._sampler.is_quiet(base, end) and not self._queue.callers.known:
            return None
        chosen = self.choose(base, end)
        if not chosen:
            return None
        return Traced(chosen, self.tracer.now_ns(), _delays_of(frames, base, chosen))

    @harmless
    def published(self, traced: Traced, *, received_ns: int, durability: str) -> None:
        """Note messages that were acknowledged."""
        self._note(
            kinds.PUBLISHED,
            traced.offsets,
            began_ns=received_ns,
            appended_ns=traced.appended_ns,
            attributes=_DURABILITY[durability],
        )
        for offset, due_ms in traced.delays:
            due = {"deliver_at": format_time_us(due_ms * 1_000)}
            self._note(
                kinds.SCHEDULED, BitMap64([offset]), at_ns=traced.appended_ns, attributes=due
            )

    # Waiting.

    @harmless
    def fired(self, due: BitMap64) -> None:
        """Note delayed messages that became due."""
        chosen = BitMap64() if self.is_idle else self._among(due)
        for part, since_ns in self.tracer.ring.ready(self.place, chosen) if chosen else ():
            self._note(kinds.FIRED, part, began_ns=since_ns)

    @harmless
    def canceled(self, offset: int) -> None:
        """Note a delayed message that will never be delivered."""
        self._note(kinds.CANCELED, self.choose(offset, offset + 1))

    @harmless
    def rescheduled(self, offset: int, due_ms: int) -> None:
        """Note that a delayed message was given another time."""
        due = {"deliver_at": format_time_us(due_ms * 1_000)}
        self._note(kinds.RESCHEDULED, self.choose(offset, offset + 1), attributes=due)

    # Everything.

    def note(self, kind: str, offsets: BitMap64, **fields: Any) -> None:  # noqa: ANN401
        """Note what happened to messages that were chosen."""
        self._note(kind, offsets, **fields)

    def _note(self, kind: str, offsets: BitMap64, **fields: Any) -> None:  # noqa: ANN401
        if not offsets:
            return
        tracer, callers = self.tracer, NO_CALLERS
        fields.setdefault("at_ns", 0)
        fields["at_ns"] = fields["at_ns"] or tracer.now_ns()
        index = self._queue.callers
        if index.sampled:
            carrying = offsets & index.sampled
            callers = tracer.callers(self.place.tag, carrying) if carrying else NO_CALLERS
            if len(callers) < len(carrying):
                unknown = carrying - BitMap64(callers)
                tracer.emit_later(Note(kind=kind, place=self.place, messages=unknown, **fields))
                offsets = offsets - unknown
                if not offsets:
                    return
        tracer.emit(Note(kind=kind, place=self.place, messages=offsets, callers=callers, **fields))


def _delays_of(
    frames: Iterable[CheckedFrame], base: int, chosen: BitMap64
) -> list[tuple[int, int]]:
    """Return the chosen messages that are delayed, and when they are due."""
    found: list[tuple[int, int]] = []
    for frame in frames:
        delays = frame.queue.delays if frame.queue is not None else None
        if delays is not None:
            offsets = delays.rows + base
            is_chosen = np.isin(offsets, each(chosen).tolist())
            due_ms = delays.due_ms[is_chosen].tolist()
            found += zip(offsets[is_chosen].tolist(), due_ms, strict=True)
        base += frame.rows
    return found
