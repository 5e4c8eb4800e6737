"""Waiting for a poll as long as somebody waits for its answer."""

import asyncio
import contextlib
from typing import Any, Final

from goqueue.base.errors import GoQueueError
from goqueue.runtime.broker import Broker
from goqueue.runtime.polling import Demand, Polled
from goqueue.transport.http.call import Call
from goqueue.transport.http.exchange import DisconnectedError

LIVE_SIGNS: Final = 3
"""How often, in one session's time, a member that waits counts as heard of."""


class PollWait:
    """One poll of one member. Its open connection is a sign of life, and the end of it an end."""

    def __init__(self, broker: Broker, call: Call, group: str, member: str) -> None:
        self._broker = broker
        self._call = call
        self._group = group
        self._member = member

    async def run(self, generation: int | None, demand: Demand) -> Polled:
        """Return what was leased; when the client goes away nothing stays leased for it."""
        consume = self._broker.consume
        polled = await consume.poll_ready(self._group, self._member, generation, demand)
        if polled is not None:
            if self._call.is_gone:
                consume.give_back(self._group, polled)
                raise DisconnectedError
            return polled
        poll = asyncio.ensure_future(consume.poll(self._group, self._member, generation, demand))
        gone = asyncio.ensure_future(self._call.gone())
        try:
            await self._until_either(poll, gone)
            if not gone.done():
                return poll.result()
        finally:
            gone.cancel()
            if not poll.done():
                poll.cancel()
                await asyncio.wait([poll])
        if not poll.cancelled() and poll.exception() is None:
            consume.give_back(self._group, poll.result())
        raise DisconnectedError

    async def _until_either(self, poll: asyncio.Future[Polled], gone: asyncio.Future[None]) -> None:
        pause = self._broker.groups.get(self._group).options.session_timeout_ms / 1_000 / LIVE_SIGNS
        while True:
            either: list[asyncio.Future[Any]] = [poll, gone]
            await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if poll.done() or gone.done():
                return
            with contextlib.suppress(GoQueueError):
                self._broker.groups.get(self._group).touch(self._member)
