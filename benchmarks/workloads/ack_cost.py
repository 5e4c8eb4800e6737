"""What one ack costs the broker's ledger while few or very many messages are unacked behind it.

Half of the messages are acked in a comb, every other one, which is the worst a set of offsets can
look like; the rest is under lease. Acks then come one at a time, from anywhere.
"""

import time
from functools import partial
from random import Random

import msgspec
from pyroaring import BitMap64

from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload
from goqueue.base.ids import Offset
from goqueue.core.delivery import events, settle
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.settle import Claim

UNACKED = {"10 k unacked": 10_000, "10 M unacked": 10_000_000}
LEASE_MESSAGES = 10_000
ACKS = 5_000
COST = Metric(name="ack", unit="us", better=Better.LOWER)


def trials(_bench: Bench) -> list[Trial]:
    """One ledger with few messages behind, one with many."""
    return [
        Trial(case=case, peer="goqueue", measure=partial(measure, unacked))
        for case, unacked in UNACKED.items()
    ]


def measure(unacked: int) -> Measured:
    """Ack messages one by one: decide, encode for the journal, apply."""
    ledger = _comb(2 * unacked)
    random = Random(1)
    encode = msgspec.msgpack.Encoder().encode
    chosen = random.sample(range(unacked), ACKS)
    started = time.perf_counter()
    for number in chosen:
        offset = 2 * number
        claim = Claim(offset // LEASE_MESSAGES, BitMap64([offset]))
        decision = settle.ack(ledger, claim, now_ms=0)
        encode(decision.events)
        for event in decision.events:
            ledger.apply(event)
    return {COST: (time.perf_counter() - started) / ACKS * 1e6}


def _comb(messages: int) -> Ledger:
    ledger = Ledger(origin=Offset(0), by_key=False)
    for nonce, start in enumerate(range(0, messages, LEASE_MESSAGES)):
        end = start + LEASE_MESSAGES
        ledger.apply(
            events.Leased(
                offsets=[start, end],
                nonce=nonce,
                member="m",
                deadline_ms=10**9,
                lease_ms=10**9,
                at_ms=0,
                cursors=(end,) * 5,
            )
        )
        odd = [bound for offset in range(start + 1, end, 2) for bound in (offset, offset + 1)]
        ledger.apply(events.Acked(offsets=odd, nonce=nonce))
    return ledger


WORKLOAD = Workload(
    name="ack-cost",
    title="cost of one ack in the ledger, by messages unacked behind it",
    trials=trials,
    rounds_max=3,
)
