"""One message that is sent by itself, without a pile."""

import asyncio
from collections.abc import Callable
from functools import partial

from goqueue.base.errors import GoQueueError
from goqueue.base.fast_path import fast_path
from goqueue.base.units import NS_PER_US
from goqueue.client.producer.packing import FIRST_ROW, Packing, draft_of
from goqueue.client.producer.pile import Moment, Pile, complain
from goqueue.client.producer.untold import Untold
from goqueue.client.protocol.outcome import Outcome, Part, Place
from goqueue.core.record.row import PackedRows
from goqueue.core.record.single_row import PackedRow
from goqueue.core.record.stamp import REFUSED_OFFSET


class Single:
    """A message on its way, and what became of it."""

    __slots__ = ("_is_told", "_on_done", "_outcome", "_untold", "part", "sealed_size", "time_us",
                 "topic")  # fmt: skip

    def __init__(self, topic: str, part: Part, *, size: int, time_us: int) -> None:
        self.topic = topic
        self.part = part
        self.sealed_size = size
        self.time_us = time_us
        self._outcome: Outcome | None = None
        self._on_done: Callable[[], object] | None = None
        self._is_told = False
        self._untold: Callable[[], None] | None = None

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back when the message is placed or failed, which it is not yet."""
        self._on_done = callback

    def settle(self, outcome: Outcome) -> bool:
        """Take what became of it."""
        self._outcome = outcome
        if self._on_done is not None:
            self._on_done()
        return True

    def result(self) -> Place:
        """Return where it is, or raise why it is not."""
        outcome = self._outcome
        assert outcome is not None, "settled"
        error = self.first_error()
        if error is not None:
            self._tell()
            raise error
        partition, offset = outcome.partition, outcome.base_offset
        is_duplicate, durability = outcome.is_duplicate, outcome.durability
        for repeat in outcome.repeats:
            partition, offset, is_duplicate = repeat.partition, repeat.offset, True
        return Place(
            self.topic,
            partition,
            offset,
            self.time_us,
            durability,
            is_duplicate,
            outcome.replicas,
        )

    def first_error(self) -> GoQueueError | None:
        """Return why it was not published, or None if it was."""
        outcome = self._outcome
        assert outcome is not None, "settled"
        if outcome.error is not None or not outcome.repeats:
            return outcome.error
        return outcome.refusal(0) if outcome.repeats[0].offset == REFUSED_OFFSET else None

    def errors(self) -> list[tuple[GoQueueError, int]]:
        """Return why it was not published, if it was not, with how many messages there are."""
        error = self.first_error()
        return [] if error is None else [(error, 1)]

    def count_untold(self, untold: Untold) -> None:
        """Let it be counted, if it failed, until somebody has asked about it."""
        for error, count in self.errors():
            if not self._is_told:
                self._untold = partial(untold.tell, untold.add(error, count))

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            if self._untold is not None:
                self._untold()


Sent = Pile | Single
"""Whose messages a batch has."""


def report(
    sent: Sent,
    on_error: Callable[[GoQueueError, int], object] | None,
    untold: Untold,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Say which messages were not published: to ``on_error``, or to who flushes or closes."""
    if on_error is None:
        sent.count_untold(untold)
        return
    for error, count in sent.errors():
        try:
            on_error(error, count)
        except Exception as fault:  # noqa: BLE001 - the caller's code must not stop the sender
            complain(loop, "on_error", fault)


@fast_path(of="Gatherer.send, Packing.cut", bench="latency", test="tests/client/test_fast_sends.py")
def single_of(
    topic: str,
    packing: Packing,
    value: bytes | None,
    key: bytes | None,
    *,
    moment: Moment,
    size: int,
) -> Single:
    """Return a message as a pile of one would send it; its size was looked at before."""
    time_ns, extra = moment if isinstance(moment, tuple) else (moment, None)
    time_us = time_ns // NS_PER_US
    if extra is None and value and key:
        # Most messages: nothing is looked at twice.
        row = PackedRow(value, key, time_us)
        part = Part(packing.partition_of(key, None), FIRST_ROW, row)
        return Single(topic, part, size=size, time_us=time_us)
    if extra is not None and extra.timestamp_us is not None:
        time_us = extra.timestamp_us
    draft = draft_of(value, key, time_us=time_us, extra=extra)
    part = Part(packing.partition_of(key, extra), FIRST_ROW, PackedRows([draft]))
    return Single(topic, part, size=size, time_us=time_us)
