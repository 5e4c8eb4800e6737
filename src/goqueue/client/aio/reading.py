"""Chunks of a topic in an event loop: the next reply is under way while one is looked at."""

import asyncio
from collections.abc import AsyncGenerator

from goqueue.base.errors import DeadlineExceededError, GoQueueError
from goqueue.base.units import SECOND_MS
from goqueue.client.aio.link import Link, retry
from goqueue.client.protocol.chunk import Chunk
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.fetching import Fetching
from goqueue.client.protocol.routed_fetching import NodeFetch, RoutedFetching
from goqueue.wire.packet import Operation


async def plain_chunks(
    link: Link, fetching: Fetching, *, timeout_s: float
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a topic of one broker."""

    async def ask() -> Answer:
        request = fetching.request()
        answer: Answer = await retry(
            lambda: link.request(Operation.FETCH, request), timeout_s=timeout_s
        )
        return answer

    pending: asyncio.Task[Answer] | None = None
    try:
        while not fetching.is_over:
            answer = await (pending or ask())
            chunks = fetching.take(answer)
            # The next reply is under way while this one is looked at.
            pending = None
            if not fetching.is_over:
                pending = asyncio.ensure_future(ask())
            for chunk in chunks:
                yield chunk
    finally:
        if pending is not None:
            pending.cancel()


async def routed_chunks(
    link: Link, routed: RoutedFetching, *, timeout_s: float
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of a topic of a cluster: from every leader as they come."""
    loop = asyncio.get_running_loop()
    under_way = _UnderWay(link, routed, timeout_s)
    try:
        while not routed.is_over:
            under_way.ask(loop.time())
            chunks = await under_way.next_chunks()
            under_way.ask(loop.time())
            for chunk in chunks:
                yield chunk
    finally:
        under_way.cancel()


class _UnderWay:
    """The requests of one reader, at most one for each node."""

    def __init__(self, link: Link, routed: RoutedFetching, timeout_s: float) -> None:
        self._link = link
        self._routed = routed
        self._timeout_s = timeout_s
        self._pending: dict[asyncio.Task[Answer], str] = {}

    def ask(self, now_s: float) -> None:
        """Ask every leader that owes no answer; refresh the view where that is due."""
        for fetch in self._routed.requests(now_s):
            self._pending[asyncio.ensure_future(self._ask(fetch))] = fetch.node
        cluster = self._link.cluster
        if cluster is not None and cluster.is_due(now_s):
            self._link.refresh_soon()

    async def next_chunks(self) -> list[Chunk]:
        """Return what came next; nothing when a partition is to be tried again before that."""
        loop = asyncio.get_running_loop()
        wakes_s = self._routed.wakes_s(loop.time())
        if not self._pending:
            await asyncio.sleep(wakes_s or 0)
            return []
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(self._pending, timeout=wakes_s, return_when=first)
        chunks: list[Chunk] = []
        for task in [one for one in self._pending if one in done]:
            chunks += self._taken(self._pending.pop(task), task, loop.time())
        return chunks

    def _taken(self, node: str, task: asyncio.Task[Answer], now_s: float) -> list[Chunk]:
        error = task.exception()
        if error is None:
            return self._routed.taken(node, task.result(), now_s)
        if not isinstance(error, GoQueueError):
            raise error
        self._routed.failed(node, error, now_s)
        return []

    async def _ask(self, fetch: NodeFetch) -> Answer:
        seconds = self._timeout_s + fetch.header.wait_ms / SECOND_MS
        link = self._link.at(fetch.node)
        try:
            async with asyncio.timeout(seconds):
                return await link.request(Operation.FETCH, fetch.header)
        except TimeoutError as error:
            link.drop()
            raise DeadlineExceededError(f"no answer in {seconds:g} s") from error

    def cancel(self) -> None:
        """Wait for nothing any more."""
        for task in self._pending:
            task.cancel()
