"""Publishing one message at a time, waited for in the caller's own thread.

Whoever waits for every message gains nothing from gathering, and pays for two threads that wake
each other. So one thread at a time sends by a blocking connection of its own and takes the answer
itself. What fails in a way that may pass goes out again with the same number, so the broker
recognises what it already has.
"""

import threading
import time
from typing import Final

from goqueue.base.errors import DeadlineExceededError, GoQueueError, from_code
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.base.units import NS_PER_US
from goqueue.client.blocking import BlockingLink
from goqueue.client.link import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, decode
from goqueue.client.packing import Packing, draft_of
from goqueue.client.pile import Place, misfit
from goqueue.client.producer_options import ProducerOptions
from goqueue.client.sender import IN_DOUBT, NOT_THERE
from goqueue.client.sizes import size_of
from goqueue.client.special import PublishFields, extra_of, special_of
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import REFUSED_OFFSET, ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import Operation

NOBODY: Final = calls.ProducerIdentity(0, 0)


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
        self._identity = NOBODY
        self._is_known = False
        self._sequences: dict[int, int] = {}
        self._is_closed = False
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
        self._is_closed = True
        self._link.close()

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
        partition = self._packing.partition_of(key, extra)
        try:
            produced = self._send(partition, draft)
        except BaseException as error:
            # Its number may be taken or not: those to come are numbered anew.
            self._is_known = False
            if not isinstance(error, GoQueueError):
                # An answer may still come, and must not be taken for that to another message.
                self._link.close()
            raise
        return self._place(produced, time_us)

    def _place(self, produced: calls.Produced, time_us: int) -> Place:
        part = produced.parts[0]
        partition, offset, is_duplicate = part.partition, part.base_offset, part.is_duplicate
        if part.repeats:
            repeat = part.repeats[0]
            if repeat.offset == REFUSED_OFFSET:
                raise misfit(part.misfits, 0)
            partition, offset, is_duplicate = repeat.partition, repeat.offset, True
        return Place(self._topic, partition, offset, time_us, produced.durability, is_duplicate)

    def _send(self, partition: int, draft: Draft) -> calls.Produced:
        """Send a message until the broker has it or says that it will not."""
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1_000
        backoff_s, is_unsure = BACKOFF_SECONDS, False
        while True:
            try:
                return self._ask(partition, draft, deadline)
            except GoQueueError as error:
                if isinstance(error, (*IN_DOUBT, *NOT_THERE)):
                    is_unsure = isinstance(error, IN_DOUBT)
                if isinstance(error, NOT_THERE):
                    self._is_known = False
                elif not error.retryable:
                    raise
                if time.monotonic() + backoff_s < deadline and not self._is_closed:
                    time.sleep(backoff_s)
                    backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
                    # Either may have come while nobody looked.
                    if time.monotonic() < deadline and not self._is_closed:
                        continue
                doubt = "; it may be published" if is_unsure else ""
                reason = f"not acked in time{doubt}: {error.message}"
                raise DeadlineExceededError(reason) from error

    def _ask(self, partition: int, draft: Draft, deadline: float) -> calls.Produced:
        """Send a message once and wait for the answer."""
        self._link.limit(deadline - time.monotonic())
        if not self._is_known:
            self._introduce()
            self._link.limit(deadline - time.monotonic())
        sequence = self._sequences.get(partition, 0)
        stamp = ProducerStamp(
            ProducerId(self._identity.producer_id), Epoch(self._identity.epoch), Sequence(sequence)
        )
        frame = encode_row(draft, stamp=stamp)
        parts = [calls.ProducePart(partition, len(frame))]
        header = calls.Produce(self._topic, self._options.acks, parts)
        answer = self._link.request(Operation.PRODUCE, header, [frame])
        produced = decode(answer.header, calls.Produced)
        failure = produced.parts[0].failure
        if failure is not None:
            raise from_code(failure.code, failure.message)
        self._sequences[partition] = sequence + 1
        return produced

    def _introduce(self) -> None:
        """Get an identity, or the next life of the one that was."""
        old, self._identity = self._identity, NOBODY
        wish = calls.InitProducer(old.producer_id, old.epoch)
        try:
            answer = self._link.request(Operation.INIT_PRODUCER, wish)
        except GoQueueError as error:
            if error.retryable or old is NOBODY:
                self._identity = old
                raise
            # Another data directory, the last epoch, or an answer that was lost: begin anew.
            answer = self._link.request(Operation.INIT_PRODUCER, calls.InitProducer(0, 0))
        self._identity = decode(answer.header, calls.ProducerIdentity)
        self._sequences.clear()
        self._is_known = True
