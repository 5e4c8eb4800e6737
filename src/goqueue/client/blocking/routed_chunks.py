"""Where the chunks of a synchronous reader of a cluster come from: every leader, as they come."""

import time
from collections.abc import Iterator

from goqueue.base.errors import ClosedError, GoQueueError
from goqueue.client.blocking.chunks import ChunkSource
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.protocol.chunk import Chunk
from goqueue.client.protocol.cluster_view import LOST, MOVED
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, Reply, decode
from goqueue.client.protocol.fetching import FOLLOW_WAIT_MS, Fetching, ReadOptions
from goqueue.client.protocol.positions import Position, resolve, time_of
from goqueue.client.protocol.routed_fetching import RoutedFetching
from goqueue.wire import calls
from goqueue.wire.packet import Operation


class RoutedChunkSource:
    """Reads one topic from the leaders of its partitions, and from their heirs."""

    def __init__(self, link: RoutedBlockingLink, *, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._is_closed = False
        self._single: ChunkSource | None = None

    def __repr__(self) -> str:
        return f"<RoutedChunkSource by {self._link!r}>"

    def chunks(self, topic: str, options: ReadOptions) -> Iterator[Chunk]:
        """Yield the chunks of a topic; the next are asked for before one is handed out."""
        fetching = Fetching(topic, options)
        parts = fetching.pick(self._ranges(topic, None, options))
        end = None
        if not options.follow:
            end = self._resolve(topic, options.last, parts, options, other="latest")
        start = self._resolve(topic, options.start, parts, options)
        fetching.begin(parts, start=start, end=end)
        if not options.follow:
            yield from self._from_one(topic, fetching)
        yield from self._from_all(topic, fetching)

    def _from_one(self, topic: str, fetching: Fetching) -> Iterator[Chunk]:
        """Yield what one node leads that leads everything, by its files where they can be had."""
        view = self._link.cluster
        leaders = {view.leader_of(topic, one) for one in fetching.open_partitions}
        (leader,) = leaders if len(leaders) == 1 else (None,)
        if leader is None:
            return
        link = self._link.at(leader)
        self._single = ChunkSource(link, timeout_s=self._timeout_s)
        try:
            if link.connection is None:
                link.request(Operation.PING, calls.Nothing())
            yield from self._single.read(fetching)
        except (*MOVED, *LOST):
            # What is left is read where it is by now.
            view.mark_stale()
        finally:
            self._single.release()
            self._single = None

    def _from_all(self, topic: str, fetching: Fetching) -> Iterator[Chunk]:
        view = self._link.cluster
        routed = RoutedFetching(topic, fetching, view, timeout_s=self._timeout_s)
        fetching.in_place = False
        asked: dict[int, str] = {}
        while not routed.is_over:
            self._ask(routed, asked)
            wakes_s = routed.wakes_s(time.monotonic())
            wait_s = FOLLOW_WAIT_MS / 1_000 if wakes_s is None else wakes_s
            chunks: list[Chunk] = []
            if asked:
                reply = self._link.receive_within(wait_s)
                chunks = [] if reply is None else self._taken(routed, asked, reply)
                self._ask(routed, asked)
            else:
                time.sleep(wait_s)
            yield from chunks

    def _ask(self, routed: RoutedFetching, asked: dict[int, str]) -> None:
        if self._is_closed:
            raise ClosedError("the client was closed")
        for node, header in routed.requests(time.monotonic()):
            asked[self._link.send_to(node, Operation.FETCH, header)] = node
        if self._link.cluster.is_due(time.monotonic()):
            self._link.refresh_soon()

    def _taken(self, routed: RoutedFetching, asked: dict[int, str], reply: Reply) -> list[Chunk]:
        if self._is_closed:
            raise ClosedError("the client was closed")
        node = asked.pop(reply.correlation, None)
        if node is None:
            return []
        if isinstance(reply.outcome, GoQueueError):
            routed.failed(node, reply.outcome, time.monotonic())
            return []
        return routed.taken(node, reply.outcome, time.monotonic())

    def _ranges(
        self, topic: str, timestamp_us: int | None, options: ReadOptions
    ) -> list[calls.OffsetsPart]:
        header = calls.Offsets(topic, timestamp_us, options.is_committed)
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                answer = self._link.request(Operation.OFFSETS, header)
            except LOST:
                # Asked again of whoever leads by then.
                if self._is_closed or time.monotonic() > deadline_s:
                    raise
                time.sleep(BACKOFF_SECONDS)
            else:
                return decode(answer.header, calls.OffsetsReply).parts

    def _resolve(
        self,
        topic: str,
        position: Position,
        parts: list[calls.OffsetsPart],
        options: ReadOptions,
        *,
        other: str = "earliest",
    ) -> dict[int, int]:
        moment = time_of(position)
        at_time = [] if moment is None else self._ranges(topic, moment, options)
        return resolve(position, parts, at_time, other=other)

    def close(self) -> None:
        """Release the connections; who waits for a reply in another thread is told."""
        self._is_closed = True
        if self._single is not None:
            self._single.close()
        self._link.close()
