"""Adoption: a transaction takes over others, which end as it does.

Shape: decider. The adopter's event is the truth: an adopted producer writes nothing of its own
until it follows the outcome, so there are no two records that could differ after a crash.
"""

from collections.abc import Iterable

from goqueue.base.errors import AdoptionRefusedError, InvalidRequestError
from goqueue.base.limits import TX_ADOPTED_MAX
from goqueue.core.decision import Decision
from goqueue.core.tx import events
from goqueue.core.tx.producer import Identity, TxProducer
from goqueue.core.tx.states import TxState


def adopt(
    parent: TxProducer, who: Identity, wanted: Iterable[tuple[Identity, TxProducer | None]]
) -> Decision[events.Event, None]:
    """Adopt transactions, each named by who has it open; one that cannot be had refuses all."""
    parent.check_open(who)
    fresh: dict[int, events.Child] = {}
    for identity, child in wanted:
        if child is None:
            raise AdoptionRefusedError(f"producer {identity.producer_id} is not known")
        if _is_ours(parent, identity, child):
            continue
        reason = _reason_against(parent, identity, child)
        if reason is not None:
            raise AdoptionRefusedError(f"{child.name}: transaction {_digits(identity)} {reason}")
        fresh[child.number] = events.Child(
            name=child.name,
            producer_id=child.producer_id,
            epoch=child.epoch,
            number=child.number,
        )
    if len(parent.adopted) + len(fresh) > TX_ADOPTED_MAX:
        raise InvalidRequestError(f"children: a transaction may adopt {TX_ADOPTED_MAX} at most")
    return Decision((events.Adopted(children=list(fresh.values())),) if fresh else (), None)


def _is_ours(parent: TxProducer, identity: Identity, child: TxProducer) -> bool:
    known = parent.adopted.get(identity.number or 0)
    return (
        known is not None
        and child.adopter == parent.name
        and (known.producer_id, known.epoch) == (identity.producer_id, identity.epoch)
    )


def _reason_against(parent: TxProducer, identity: Identity, child: TxProducer) -> str | None:
    if child is parent:
        return "cannot adopt itself"
    if identity.epoch != child.epoch or child.is_closing:
        return "was fenced by a newer instance"
    if identity.number != child.number:
        return "is over"
    if child.state is not TxState.ONGOING:
        return f"is not open any more: {child.state}"
    if child.adopter:
        return f"was adopted by {child.adopter}"
    return None if child.is_detached else "was not detached"


def _digits(identity: Identity) -> str:
    return f"{identity.number or 0:016x}"
