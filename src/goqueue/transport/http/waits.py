"""Requests that wait for something to happen, and are judged again when rules change meanwhile."""

from typing import Final

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError
from goqueue.transport.http.exchange import Exchange

WAITS: Final = frozenset({Deed.POLL, Deed.NEXT, Deed.FETCH, Deed.TAIL_TRACES})
"""Requests that may wait for something to happen; all others end by themselves soon."""


def refusal_of(exchange: Exchange) -> GoQueueError | None:
    """Return why a request that waits would be refused now; None if it would not, or ends soon."""
    grant = exchange.grant
    if grant is None or grant.deed not in WAITS:
        return None
    try:
        exchange.session.admit(grant.deed, grant.names)
    except GoQueueError as error:
        return error
    return None
