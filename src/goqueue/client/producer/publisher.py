"""Publishing one message at a time, waited for in the caller's own thread.

Whoever waits for every message gains nothing from gathering, and pays for two threads that wake
each other. So one thread at a time sends by a blocking connection of its own and takes the answer
itself.
"""

import threading
import time
from functools import partial

from goqueue.base.errors import GoQueueError
from goqueue.client.blocking.brief import brief
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.blocking.sender import BlockingSender
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.packing import Packing
from goqueue.client.producer.pile import Moment
from goqueue.client.producer.single import Single, single_of
from goqueue.client.producer.sizes import size_of
from goqueue.client.producer.special import PublishFields, extra_of, special_of
from goqueue.client.protocol.outbox import Batch, Outbox
from goqueue.client.protocol.outcome import Place
from goqueue.client.protocol.routed_outbox import RoutedOutbox
from goqueue.client.protocol.sending import Sending


class Publisher:
    """Publishes for one thread at a time: ``begin``, then ``publish``, then ``end``."""

    def __init__(
        self,
        link: BlockingLink | RoutedBlockingLink,
        topic: str,
        *,
        partitions: int,
        options: ProducerOptions,
    ) -> None:
        self._topic = topic
        self._options = options
        self._link = link
        self._packing = Packing(partitions, None, turn=time.monotonic_ns() % partitions)
        make = partial(
            Outbox[Single], acks=options.acks, in_flight_max=1, on_settled=lambda _: None
        )
        cluster = link.cluster
        outbox: Sending[Single]
        outbox = make() if cluster is None else RoutedOutbox(cluster, make, in_flight_max=1)
        self._is_routed = cluster is not None
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

    def publish(self, value: bytes | None, key: bytes | None, fields: PublishFields) -> Place:
        """Publish a message and return where it is, or raise why it is not."""
        size, packing = size_of(value, key), self._packing
        moment: Moment = time.time_ns()
        if fields:
            partitions = packing.partitions
            extra, _ = extra_of(special_of(fields), partitions=partitions, is_in_transaction=False)
            moment = (time.time_ns(), extra)
        single = single_of(self._topic, packing, value, key, moment=moment, size=size)
        self._number += 1
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1_000
        # One request at a time: when there is room for the next, this one is settled.
        self._sender.submit([Batch(single, single.part, number=self._number, deadline=deadline)])
        if self._is_routed:
            # There is room for one at each node.
            self._sender.flush()
        try:
            return single.result()
        except GoQueueError as error:
            raise brief(error) from None
