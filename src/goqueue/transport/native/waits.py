"""Requests that wait, and packets that answer them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.service.gate import Session
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire.packet import Buffer, Kind, Operation, Packet, encode_packet

WAITS: Final = frozenset({Operation.POLL, Operation.NEXT, Operation.FETCH, Operation.TAIL_TRACES})
"""Requests that may wait for something to happen; all others end by themselves soon."""


LAST_REPLIES_SECONDS: Final = 0.25
"""How long requests that were admitted may be answered when their credential has ended."""


def end_waits(
    dispatch: Dispatch,
    session: Session,
    under_way: Mapping[asyncio.Future[None], Packet | None],
    refuse: Callable[[Packet, GoQueueError], None],
) -> None:
    """End the requests that wait and would be refused now."""
    for future, packet in list(under_way.items()):
        if packet is None or packet.operation not in WAITS or future.done():
            continue
        try:
            dispatch.judge(session, packet.operation, packet.header)
        except GoQueueError as error:
            refuse(packet, error)
            future.cancel()


def packed(
    operation: int, correlation: int, kind: Kind, header: bytes, payload: Sequence[Buffer]
) -> list[Buffer]:
    """Return what to write for a packet."""
    return encode_packet(
        operation=operation, kind=kind, correlation=correlation, header=header, payload=payload
    )
