"""Publishing one message at a time, waited for in the caller's own thread.

Whoever waits for every message gains nothing from gathering, and pays for two threads that wake
each other. So one thread at a time sends by a blocking connection of its own and takes the answer
itself.
"""

import threading
import time

from goqueue.base.fast_path import fast_path
from goqueue.base.units import NS_PER_US
from goqueue.client.blocking.brief import brief
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.sender import BlockingSender
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.packing import FIRST_ROW, Packing, draft_of
from goqueue.client.producer.sizes import size_of
from goqueue.client.producer.special import PublishFields, extra_of, special_of
from goqueue.client.protocol.outbox import Batch, Outbox
from goqueue.client.protocol.outcome import Outcome, Part, Place
from goqueue.core.record.row import PackedRows
from goqueue.core.record.stamp import REFUSED_OFFSET


class Publisher:
    """Publishes for one thread at a time: ``begin``, then ``publish``, then ``end``."""

    def __init__(
        self,
        link: BlockingLink,
        topic: str,
        *,
        partitions: int,
        options: ProducerOptions,
    ) -> None:
        self._topic = topic
        self._options = options
        self._link = link
        self._packing = Packing(partitions, None, turn=time.monotonic_ns() % partitions)
        outbox = Outbox[_One](acks=options.acks, in_flight_max=1, on_settled=lambda _: None)
        self._sender = BlockingSender(link, outbox, is_limited=True)
        self._number = 0
        # Held by the thread whose turn it is; only who closes waits for it.
        self._turn = threading.Lock()
        self._holder = 0

    def __repr__(self) -> str:
        return f"<Publisher of {self._topic} by {self._link!r}>"

    def begin(self) -> bool:
        """Take the turn; tell whether no other thread has it."""
        if not self._turn.acquire(blocking=False):
            return False
        self._holder = threading.get_ident()
        return True

    def end(self) -> None:
        """Give the turn back."""
        self._holder = 0
        self._turn.release()

    def close(self, timeout_s: float | None = None) -> None:
        """Take the turn for good and end the connection; who publishes now has so much time."""
        if self._holder != threading.get_ident():
            # No publish takes longer; an interrupt in the wrong place may leave the turn to nobody.
            longest_s = self._options.delivery_timeout_ms / 1_000
            self._turn.acquire(timeout=min(longest_s, timeout_s or longest_s))
        # Otherwise a signal's handler closes within a publish, which fails.
        self._sender.is_closed = True
        self._link.close()

    @fast_path(
        of="Gatherer.send, SendFuture.result",
        bench="latency",
        test="tests/client/test_fast_sends.py",
    )
    def publish(self, value: bytes | None, key: bytes | None, fields: PublishFields) -> Place:
        """Publish a message and return where it is, or raise why it is not."""
        size_of(value, key)
        extra = None
        if fields:
            partitions = self._packing.partitions
            extra, _ = extra_of(special_of(fields), partitions=partitions, is_in_transaction=False)
        time_us = time.time_ns() // NS_PER_US
        if extra is not None and extra.timestamp_us is not None:
            time_us = extra.timestamp_us
        draft = draft_of(value, key, time_us=time_us, extra=extra)
        part = Part(self._packing.partition_of(key, extra), FIRST_ROW, PackedRows([draft]))
        one = _One(self._topic)
        self._number += 1
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1_000
        # One request at a time: when there is room for the next, this one is settled.
        self._sender.submit([Batch(one, part, number=self._number, deadline=deadline)])
        return one.place(time_us)


class _One:
    """One message, and what became of it."""

    __slots__ = ("_outcome", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._outcome: Outcome | None = None

    def settle(self, outcome: Outcome) -> bool:
        """Take what became of it."""
        self._outcome = outcome
        return True

    def place(self, time_us: int) -> Place:
        """Return where it is, or raise why it is not."""
        outcome = self._outcome
        assert outcome is not None, "settled"
        if outcome.error is not None:
            raise brief(outcome.error)
        partition, offset, durability = outcome.partition, outcome.base_offset, outcome.durability
        if not outcome.repeats:
            is_duplicate = outcome.is_duplicate
            return Place(self.topic, partition, offset, time_us, durability, is_duplicate)
        repeat = outcome.repeats[0]
        if repeat.offset == REFUSED_OFFSET:
            raise outcome.refusal(0)
        return Place(self.topic, repeat.partition, repeat.offset, time_us, durability, True)  # noqa: FBT003 - a repeat
