"""Messages that tasks of an event loop wait for, one each: those of one turn share a request.

A task that awaits ``publish`` gains nothing from lingering. Its message waits only until the other
tasks that are ready had their turn, or a request may go out at all. A message by itself is sent
without a pile; several become one. They use the outbox of their producer, so that they and what
was given to ``send`` go out in the order of the calls.
"""

import asyncio
from functools import partial
from time import time_ns
from typing import Any, Final

from goqueue.client.producer.gatherer import Gatherer
from goqueue.client.producer.pile import FIELDS, Pile, SendFuture
from goqueue.client.producer.single import Single, single_of
from goqueue.client.producer.sizes import size_of
from goqueue.client.producer.special import PublishFields, extra_of, special_of

ROWS_MAX: Final = 1_000
"""So many messages go out as soon as they are there."""

Waiting = asyncio.Future[SendFuture | Single]
"""Done when a message is placed or failed; its result tells which."""


class AwaitedSends:
    """The messages of one producer that are awaited. Belongs to the thread of its event loop."""

    def __init__(self, gatherer: Gatherer, loop: asyncio.AbstractEventLoop) -> None:
        self._gatherer = gatherer
        self._loop = loop
        self._rows: list[Any] = []
        """Value, key and moment of each message, as in a pile."""
        self._waiting: list[Waiting] = []
        self._size = 0
        self._extra_count = 0
        gatherer.on_submit = self.flush
        gatherer.on_slot = self._slot_free

    def __repr__(self) -> str:
        return f"<AwaitedSends: {len(self._waiting)} not sent>"

    def publish(
        self, value: bytes | None, key: bytes | None, fields: PublishFields
    ) -> Waiting | None:
        """Queue a message; return None if it must go the way of ``send``."""
        gatherer = self._gatherer
        packing = gatherer.packing_alone
        if packing is None or asyncio.get_running_loop() is not self._loop:
            return None
        size = size_of(value, key)
        if fields:
            partitions = packing.partitions
            extra, more = extra_of(
                special_of(fields), partitions=partitions, is_in_transaction=False
            )
            self._rows += (value, key, (time_ns(), extra))
            self._extra_count += 1
            size += more
        else:
            self._rows += (value, key, time_ns())
        self._size += size
        waiting: Waiting = self._loop.create_future()
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turn_over)
        elif len(self._waiting) >= ROWS_MAX or self._size >= gatherer.pile_bytes_max:
            self.flush()
        return waiting

    def _turn_over(self) -> None:
        # Without a slot they wait for one, and others may come meanwhile.
        if self._gatherer.has_slot:
            self.flush()

    def _slot_free(self) -> None:
        if self._waiting:
            self.flush()

    def flush(self) -> None:
        """Give the messages to the sender."""
        if not self._waiting:
            return
        rows, waiting, size = self._rows, self._waiting, self._size
        has_extras = self._extra_count
        self._rows, self._waiting, self._size, self._extra_count = [], [], 0, 0
        if len(waiting) == 1:
            self._send_one(rows, waiting[0], size)
            return
        pile = self._gatherer.fresh_pile()
        pile.rows, pile.size, pile.extra_count = rows, size, has_extras
        for row, one in enumerate(waiting) if pile.is_apart else ():
            pile.when_row_done(row, partial(_settle_row, pile, row, one))
        pile.when_done(partial(_settle, pile, waiting))
        self._gatherer.submit_pile(pile)

    def _send_one(self, rows: list[Any], waiting: Waiting, size: int) -> None:
        gatherer = self._gatherer
        packing = gatherer.packing
        assert packing is not None, "known since it was queued"
        value, key, moment = rows
        single = single_of(gatherer.topic, packing, value, key, moment=moment, size=size)
        single.when_done(partial(_settle_one, single, waiting))
        gatherer.submit_single(single)


def _settle_one(single: Single, waiting: Waiting) -> None:
    # Who was cancelled does not wait any more.
    if not waiting.done():
        waiting.set_result(single)


def _settle_row(pile: Pile, row: int, waiting: Waiting) -> None:
    if not waiting.done():
        waiting.set_result(SendFuture(pile, row * FIELDS))


def _settle(pile: Pile, waiting: list[Waiting]) -> None:
    for row, one in enumerate(waiting):
        if not one.done():
            one.set_result(SendFuture(pile, row * FIELDS))
