"""Waiting for a poll as long as its client is there."""

import asyncio
import contextlib
from typing import Any, Final

from goqueue.base.errors import GoQueueError
from goqueue.base.units import SECOND_MS
from goqueue.service.queue import Polled, Queue
from goqueue.service.verb import RequestContext
from goqueue.transport.http.call import Call
from goqueue.transport.http.exchange import DisconnectedError
from goqueue.wire.queue_calls import Poll

LIVE_SIGNS: Final = 3
"""How often, in one session's time, a member that waits counts as heard of."""


class PollWait:
    """One poll of one member. Its open connection is a sign of life, and the end of it an end."""

    def __init__(self, queue: Queue, call: Call, poll: Poll) -> None:
        self._queue = queue
        self.call = call
        self._poll = poll

    @property
    def has_one_topic(self) -> bool:
        """Whether the members of the group read a single topic now."""
        return self._queue.has_one_topic(self.call.grant, self._poll.group)

    async def run(self, context: RequestContext) -> Polled:
        """Return what was leased; when the client goes away nothing stays leased for it."""
        queue, grant = self._queue, self.call.grant
        waiting = queue.begin_wait(grant, self._poll.group, self._poll.member)
        is_cut = False
        try:
            return await self._run(context)
        except DisconnectedError:
            is_cut = True
            raise
        finally:
            queue.end_wait(grant, waiting, is_cut=is_cut)

    async def _run(self, context: RequestContext) -> Polled:
        queue, grant = self._queue, self.call.grant
        polled = await queue.lease_ready(grant, self._poll, context)
        if polled is not None:
            if self.call.is_gone:
                self.give_back(polled)
                raise DisconnectedError
            return polled
        poll = asyncio.ensure_future(queue.lease(grant, self._poll, context))
        gone = asyncio.ensure_future(self.call.gone())
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
            self.give_back(poll.result())
        raise DisconnectedError

    def give_back(self, polled: Polled) -> None:
        """End the leases of an answer that was not sent."""
        self._queue.give_back(self.call.grant, self._poll.group, polled)

    def undo(self, polled: Polled) -> None:
        """End the leases of an answer that could not be sent, and count its poll as cut."""
        self.give_back(polled)
        queue, grant = self._queue, self.call.grant
        with contextlib.suppress(GoQueueError):
            waiting = queue.begin_wait(grant, self._poll.group, self._poll.member)
            queue.end_wait(grant, waiting, is_cut=True)

    async def _until_either(self, poll: asyncio.Future[Polled], gone: asyncio.Future[None]) -> None:
        group, member, grant = self._poll.group, self._poll.member, self.call.grant
        pause = self._queue.session_timeout_ms(grant, group) / SECOND_MS / LIVE_SIGNS
        while True:
            either: list[asyncio.Future[Any]] = [poll, gone]
            await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if poll.done() or gone.done():
                return
            with contextlib.suppress(GoQueueError):
                self._queue.touch(grant, group, member)
