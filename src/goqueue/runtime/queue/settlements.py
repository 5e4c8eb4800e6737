"""Settlements of leased messages: what a member asks for, and what waits for the disk."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from pyroaring import BitMap64

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import TopicPartition
from goqueue.core.decision import Decision
from goqueue.core.delivery import settle
from goqueue.core.delivery.events import Event
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.runs import Written
from goqueue.core.delivery.settle import Claim, Moment, Policy, Settled
from goqueue.runtime.queue.waiting_polls import PendingPoll

ACK: Final = "ack"


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """Messages under one lease and what is to become of them."""

    partition: TopicPartition
    nonce: int
    verb: str
    offsets: BitMap64
    written: Written | None = None
    """The same offsets as they came, if they did."""
    reason: str = ""
    delay_ms: int | None = None
    extension_ms: int | None = None


class Settling(NamedTuple):
    """Settlements that were decided and written, and what they wait for."""

    outcomes: list[Settled]
    durable: asyncio.Future[None] | None
    """Done when the disk has them; None where nothing was changed."""
    tell: Callable[[], None]
    """Count them, once they are answered."""


class Next(NamedTuple):
    """What was settled and what was leased instead, which the same sync makes durable."""

    settling: Settling
    poll: PendingPoll

    @property
    def ready(self) -> asyncio.Future[None] | None:
        """Done when both may be answered; None where that is now."""
        return self.poll.ready or self.settling.durable


def acked(ledger: Ledger, part: Settlement, *, now_ms: int) -> Decision[Event, Settled]:
    """Decide about an ack."""
    claim = Claim(part.nonce, part.offsets, part.written)
    return settle.ack(ledger, claim, now_ms=now_ms)


def decide(
    ledger: Ledger, part: Settlement, policy: Policy, moment: Moment
) -> Decision[Event, Settled]:
    """Decide what becomes of messages, or raise."""
    claim = Claim(part.nonce, part.offsets, part.written)
    match part.verb:
        case "ack":
            return settle.ack(ledger, claim, now_ms=moment.now_ms)
        case "nack":
            return settle.nack(
                ledger, claim, policy, moment, error=part.reason, delay_ms=part.delay_ms
            )
        case "reject":
            return settle.reject(ledger, claim, moment, error=part.reason)
        case "extend":
            if part.extension_ms is None:
                raise InvalidRequestError("extension_ms: must be positive")
            return settle.extend(ledger, claim, now_ms=moment.now_ms, lease_ms=part.extension_ms)
        case "release":
            return settle.release(ledger, claim, moment)
        case _:
            raise InvalidRequestError("verb: must be one of ack, nack, reject, extend, release")
