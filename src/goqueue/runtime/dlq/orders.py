"""What is asked of a redrive or purge, checked before anything is kept of it."""

from collections.abc import Iterable
from typing import Final

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import REDRIVE_RATE_MAX, REDRIVE_RUNS_MAX, REDRIVES_MAX
from goqueue.base.names import is_internal
from goqueue.core.dlq.names import is_dlq, source_of
from goqueue.core.dlq.redrive import Kind, Order
from goqueue.runtime.dlq.dead_letters import Topics

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Order).decode


def checked_order(name: str, order: Order, topics: Topics, names: Iterable[str]) -> Order:
    """Return an order with its target, or raise naming what is wrong with it."""
    if not 0 <= order.rate <= REDRIVE_RATE_MAX:
        raise InvalidRequestError(f"rate: must be between 0 and {REDRIVE_RATE_MAX}")
    if not 0 <= order.max_redrives <= REDRIVES_MAX:
        raise InvalidRequestError(f"max_redrives: must be between 0 and {REDRIVES_MAX}")
    try:
        # What is kept must be readable at the next start.
        _decode(_encode(order))
    except msgspec.ValidationError as error:
        raise InvalidRequestError(str(error)) from error
    if not order.filter.is_sound:
        raise InvalidRequestError(
            f"places: at most {REDRIVE_RUNS_MAX} runs of offsets, start and end, ascending"
        )
    if order.kind is Kind.PURGE:
        return order
    target = order.target or (source_of(name, names) if is_dlq(name) else name)
    if is_internal(target) or is_dlq(target):
        raise InvalidRequestError("target: must be an ordinary topic")
    topics.topic(target)
    return msgspec.structs.replace(order, target=target)
