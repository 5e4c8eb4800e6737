"""Acks inside transactions: a ledger keeps messages for a transaction until that has ended."""

from collections.abc import Sequence

from goqueue.base.ids import TopicPartition
from goqueue.core.delivery import settle
from goqueue.core.delivery.settle import Claim, Settled
from goqueue.runtime.clock import Clock
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.settlements import Settlement


def ledger_of(consume: Consumption, group: str, place: TopicPartition) -> HostedLedger | None:
    """Return a group's ledger of a partition, if it has one; raise if that is unknown here."""
    return consume.ledgers.find(group, place)


def hold_all(
    consume: Consumption, clock: Clock, number: int, group: str, parts: Sequence[Settlement]
) -> tuple[list[Settled], list[HostedLedger]]:
    """Hold what a group has leased; return what is refused of each part, and who holds it now."""
    outcomes: list[Settled] = []
    ledgers: dict[HostedLedger, None] = {}
    for part in parts:
        ledger = ledger_of(consume, group, part.partition)
        if ledger is None:
            outcomes.append(Settled(consume.refuse(part)))
            continue
        claim = Claim(part.nonce, part.offsets)
        decision = settle.hold(ledger.ledger, claim, number, now_ms=clock.monotonic_ms())
        ledger.commit(decision.events)
        ledgers[ledger] = None
        outcomes.append(decision.reply)
    return outcomes, list(ledgers)
